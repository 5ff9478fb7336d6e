"""
When a cluster stops by itself. Pure, so that every rule can be tried on values.

A deadline counts from the creation of the groups, which nothing but their replacement changes: a redeployment with
another time takes effect at once. Stopped once, the cluster is left alone until its user scales it up again, whose
allowance then begins anew. A stop lowers the desired capacity of both groups to their own minimum, which is 0 unless a
user has raised it; it says nothing of the membership.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.stop_record import StopRecord
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
class Begin:
    """Stop the cluster; the record to write, but for its lease."""

    record: StopRecord


@dataclass(frozen=True)
class Allow:
    """Begin a new allowance, because a user has scaled the stopped cluster up."""

    record: StopRecord


@dataclass(frozen=True)
class Rest:
    """Leave everything as it is, because the cluster is stopped or another invocation stops it."""

    why: str


def judge_stop(
    groups: Sequence[GroupObservation], record: StopRecord, *, settings: AdjusterSettings, message_id: str, now: float
) -> Begin | Allow | Rest | None:
    """
    Decide whether the cluster stops at a time in seconds since the epoch; None when it goes on.

    `message_id` is that of a message by which AWS Budgets asks for a stop; empty without one.
    """
    if not groups or any(group.is_deleting for group in groups):
        return None
    record = record.believe(now)
    if record.is_open:
        if now < record.lease_until:
            return Rest("another invocation stops the cluster")
        return Begin(record.begin(record.cause, record.message_id))
    if message_id and message_id != record.message_id:
        return Begin(record.begin(BUDGET, message_id))
    if record.is_stopped:
        is_resting = is_at_rest(groups, record, now)
        return Rest("the cluster is stopped") if is_resting else Allow(record.allow(math.floor(now)))
    deadline = find_deadline(groups, record, settings)
    is_over = deadline is not None and now >= deadline
    return Begin(record.begin(DEADLINE, record.message_id)) if is_over else None


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
