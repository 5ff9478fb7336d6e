"""
When a cluster stops by itself. Pure, so that every rule can be tried on values.

A deadline counts from the creation of the groups, which nothing but their replacement changes: a redeployment with
another time takes effect at once. Stopped once, the cluster is left alone until its user scales it up again, whose
allowance then begins anew. A stop lowers the desired capacity of both groups to their own minimum, which is 0 unless a
user has raised it; it says nothing of the membership.
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
"""How long before its deadline the nodes are told, so that training can write a checkpoint."""
SETTLED_SECONDS = 60
"""What is read so soon after a stop may be older than it."""
NOTICE_BEGIN = "the cluster stops by itself at "
"""By which a notice of ours is known."""


@dataclass(frozen=True)
class StopRecord:
    """
    Record of stops: an item beside the state item, for the adjuster alone.

    A stop happens once, whatever dies in the middle, and a user who scales the cluster up again has a new allowance.
    """

    revision: int = 0  # Counts every write; the compare-and-set condition
    # When the present allowance began, in seconds since the epoch; 0 for the first, which began when the groups were
    # made
    counted_from: int = 0
    cause: str = ""  # Why the cluster stops, or stopped last; empty before the first stop
    message_id: str = ""  # The last message of AWS Budgets that stopped it, so that its copies do not
    # While a stop is under way, the time after which its invocation cannot be alive any more, in seconds since the
    # epoch; 0 while none is
    lease_until: int = 0
    stopped_at: int = 0  # When it was stopped, in the same; 0 while its allowance runs

    @property
    def is_open(self) -> bool:
        """Whether a stop is under way."""
        return self.lease_until > 0

    @property
    def is_stopped(self) -> bool:
        """Whether the cluster was stopped and its user has not been seen to scale it up again."""
        return self.stopped_at > 0

    def believe(self, now: float) -> "StopRecord":
        """
        Return the same revision without times that no invocation of ours can have written, because they lie far ahead.

        Such a record would keep the cluster from ever stopping.
        """
        limit = now + LONGEST_LEASE_SECONDS
        return replace(
            self,
            counted_from=self.counted_from if self.counted_from <= limit else 0,
            stopped_at=self.stopped_at if self.stopped_at <= limit else 0,
            lease_until=self.lease_until if self.lease_until <= limit else 0,
        )

    def begin(self, cause: str, message_id: str) -> "StopRecord":
        """Return the next revision, with a stop begun but for its lease."""
        return replace(self, revision=self.revision + 1, cause=cause, message_id=message_id, stopped_at=0)

    def close(self, now: int) -> "StopRecord":
        """Return the next revision, with the cluster stopped."""
        return replace(self, revision=self.revision + 1, lease_until=0, stopped_at=now)

    def allow(self, now: int) -> "StopRecord":
        """Return the next revision, with an allowance that begins now."""
        return replace(self, revision=self.revision + 1, counted_from=now, lease_until=0, stopped_at=0)


@dataclass(frozen=True)
class StartStop:
    """Stop the cluster; the record to write, but for its lease."""

    record: StopRecord


@dataclass(frozen=True)
class ScaledUpAgain:
    """StartStop a new allowance, because a user has scaled the stopped cluster up."""

    record: StopRecord


@dataclass(frozen=True)
class AlreadyStopped:
    """Leave everything as it is, because the cluster is stopped or another invocation stops it."""

    why: str


def judge_stop(
    groups: Sequence[GroupObservation], record: StopRecord, *, settings: AdjusterSettings, message_id: str, now: float
) -> StartStop | ScaledUpAgain | AlreadyStopped | None:
    """
    Decide whether the cluster stops at a time in seconds since the epoch; None when it goes on.

    `message_id` is that of a message by which AWS Budgets asks for a stop; empty without one.
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
    """Return when the cluster stops, in seconds since the epoch; None when nothing says so."""
    # A group without a time of creation is one that could not be read whole: it must not look as old as the epoch.
    created = [group.created for group in groups if group.created > 0]
    begin = record.counted_from or (math.floor(min(created)) if created else 0)
    return begin + settings.stop_after_seconds if begin and settings.stop_after_seconds else None


def plan_notice(
    groups: Sequence[GroupObservation], record: StopRecord, *, settings: AdjusterSettings, now: float
) -> str:
    """Return the notice of the cluster's end for the nodes; empty while it is far, and after it."""
    record = record.believe(now)
    deadline = find_deadline(groups, record, settings)
    if deadline is None or record.is_stopped or now < deadline - WARNING_SECONDS:
        return ""
    if not groups or any(group.is_deleting for group in groups):
        return ""
    moment = datetime.fromtimestamp(deadline, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{NOTICE_BEGIN}{moment}, as long after its creation as spending.stop_after allows"


def is_at_rest(groups: Sequence[GroupObservation], record: StopRecord, now: float) -> bool:
    """Return whether a cluster was stopped and shows no sign of having been scaled up again."""
    return record.is_stopped and (now < record.stopped_at + SETTLED_SECONDS or not is_up(groups))


def is_up(groups: Sequence[GroupObservation]) -> bool:
    """Return whether any group asks for instances beyond those that its own minimum holds."""
    return any(group.desired > group.min_size for group in groups)
