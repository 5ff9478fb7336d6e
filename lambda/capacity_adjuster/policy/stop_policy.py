"""
Policy of automatic stops, as pure functions.

A deadline counts from the creation of the groups, which changes only with their replacement: a redeployment with
another time takes effect at once. After a stop the cluster is left alone until its user scales it up again, which
starts a new allowance. A stop lowers the desired capacity of both groups to their own minimum, which is 0 unless a user
has raised it; it does not change the membership.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from deeplearning_contract.settings import AdjusterSettings

DEADLINE = "deadline"
BUDGET = "budget used up"
WARNING_SECONDS = 900
"""Time before the deadline at which the nodes are notified, so that training can write a checkpoint."""
SETTLED_SECONDS = 60
"""Time after a stop during which reads may be older than it."""
NOTICE_BEGIN = "the cluster stops by itself at "
"""Prefix of the adjuster's notices of a stop."""


@dataclass(frozen=True)
class StopRecord:
    """
    Record of stops: an item beside the state record, only for the adjuster.

    A stop happens once, even if an invocation dies during it; a user who scales the cluster up again has a new
    allowance.
    """

    revision: int = 0  # Counts every write; the compare-and-set condition
    # Start of the current allowance in seconds since the epoch; 0 for the first, which starts with the groups' creation
    counted_from: int = 0
    cause: str = ""  # Cause of the current or last stop; empty before the first
    message_id: str = ""  # Last message of AWS Budgets that stopped it, to ignore its copies
    # During a stop, the time after which its invocation is certainly over, in seconds since the epoch; else 0
    lease_until: int = 0
    stopped_at: int = 0  # Time of the stop in seconds since the epoch; 0 while its allowance runs

    @property
    def is_open(self) -> bool:
        """True during a stop."""
        return self.lease_until > 0

    @property
    def is_stopped(self) -> bool:
        """True after a stop until its user scales the cluster up again."""
        return self.stopped_at > 0

    def believe(self, now: float) -> "StopRecord":
        """
        Return the same revision without invalid times, far in the future.

        Such times would prevent every stop.
        """
        limit = now + LONGEST_LEASE_SECONDS
        return replace(
            self,
            counted_from=self.counted_from if self.counted_from <= limit else 0,
            stopped_at=self.stopped_at if self.stopped_at <= limit else 0,
            lease_until=self.lease_until if self.lease_until <= limit else 0,
        )

    def begin(self, cause: str, message_id: str) -> "StopRecord":
        """Return the next revision, with a started stop, without its lease."""
        return replace(self, revision=self.revision + 1, cause=cause, message_id=message_id, stopped_at=0)

    def close(self, now: int) -> "StopRecord":
        """Return the next revision, with the cluster stopped."""
        return replace(self, revision=self.revision + 1, lease_until=0, stopped_at=now)

    def allow(self, now: int) -> "StopRecord":
        """Return the next revision, with an allowance that starts now."""
        return replace(self, revision=self.revision + 1, counted_from=now, lease_until=0, stopped_at=0)


@dataclass(frozen=True)
class StartStop:
    """Stop the cluster; the record to write, without its lease."""

    record: StopRecord


@dataclass(frozen=True)
class ScaledUpAgain:
    """Start a new allowance, since a user has scaled the stopped cluster up."""

    record: StopRecord


@dataclass(frozen=True)
class AlreadyStopped:
    """Change nothing, since the cluster is stopped or another invocation stops it."""

    why: str


def judge_stop(
    groups: Sequence[GroupObservation], record: StopRecord, *, settings: AdjusterSettings, message_id: str, now: float
) -> StartStop | ScaledUpAgain | AlreadyStopped | None:
    """
    Decide whether the cluster stops at a time in seconds since the epoch; None while it continues.

    `message_id` is the id of a message with which AWS Budgets requests a stop; empty without one.
    """
    if not groups or any(group.is_deleting for group in groups):
        return None
    record = record.believe(now)
    if record.is_open:
        if now < record.lease_until:
            return AlreadyStopped("another invocation stops the cluster")
        return StartStop(record.begin(record.cause, record.message_id))
    if message_id and message_id != record.message_id:
        return StartStop(record.begin(BUDGET, message_id))
    if record.is_stopped:
        is_resting = is_at_rest(groups, record, now)
        return AlreadyStopped("the cluster is stopped") if is_resting else ScaledUpAgain(record.allow(math.floor(now)))
    deadline = find_deadline(groups, record, settings)
    is_over = deadline is not None and now >= deadline
    return StartStop(record.begin(DEADLINE, record.message_id)) if is_over else None


def find_deadline(groups: Sequence[GroupObservation], record: StopRecord, settings: AdjusterSettings) -> int | None:
    """Return the time of the cluster's stop in seconds since the epoch; None without a deadline."""
    # A group without a creation time was not read completely: it must not count as old as the epoch.
    created = [group.created for group in groups if group.created > 0]
    begin = record.counted_from or (math.floor(min(created)) if created else 0)
    return begin + settings.stop_after_seconds if begin and settings.stop_after_seconds else None


def plan_notice(
    groups: Sequence[GroupObservation], record: StopRecord, *, settings: AdjusterSettings, now: float
) -> str:
    """Return the notice of the stop for the nodes; empty long before the stop, and after it."""
    record = record.believe(now)
    deadline = find_deadline(groups, record, settings)
    if deadline is None or record.is_stopped or now < deadline - WARNING_SECONDS:
        return ""
    if not groups or any(group.is_deleting for group in groups):
        return ""
    moment = datetime.fromtimestamp(deadline, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{NOTICE_BEGIN}{moment}, as long after its creation as spending.stop_after allows"


def is_at_rest(groups: Sequence[GroupObservation], record: StopRecord, now: float) -> bool:
    """Return whether a cluster was stopped and has not been scaled up again."""
    return record.is_stopped and (now < record.stopped_at + SETTLED_SECONDS or not is_up(groups))


def is_up(groups: Sequence[GroupObservation]) -> bool:
    """Return whether any group's desired capacity exceeds its own minimum."""
    return any(group.desired > group.min_size for group in groups)
