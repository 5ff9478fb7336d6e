"""
Circuit breaker: stops launches of workers that repeatedly die before they join the cluster.

Its record is a separate item beside the state record, which distinguishes a crash during the suspension from a user who
resumes the launches. The policy is pure; it never changes the desired capacity.
"""

import math
from dataclasses import dataclass, replace

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import NO_REASON, Reason

MOST_FAILURES = 3
"""Workers lost before they joined that trip it: one can be chance, two a bad host, three are a pattern."""
FAILURE_SHARE = 0.05
"""The same as a share of a large group's desired capacity: bad hosts among hundreds are no fault of the cluster."""
FAILURE_SECONDS = 1800
"""Longest time between losses of one fault: a worker boots, dies and is replaced in some minutes."""
LAUNCH_PROCESS = "Launch"
_MOST_NAMED = 3


@dataclass(frozen=True)
class Breaker:
    """Record of the breaker."""

    revision: int  # Counts every write; the compare-and-set condition
    group: str  # Name of the workers' group
    members: tuple[str, ...] = ()  # Instances that have been members; the state record contains only the last that left
    is_tripped: bool = False  # Whether launches are suspended, or a suspension was started
    reason: Reason = NO_REASON  # Reason of the trip; false before
    counted_from: int = 0  # Earlier losses do not count, in seconds since the epoch
    # During the suspension, the time after which its invocation is certainly over, in seconds since the epoch; 0 once
    # it is done
    lease_until: int = 0

    def confirm(self) -> "Breaker":
        """Return the next revision, with the launches suspended."""
        return replace(self, revision=self.revision + 1, lease_until=0)

    def rearm(self, counted_from: int) -> "Breaker":
        """Return the next revision, which counts from zero."""
        revision = self.revision + 1
        return replace(self, revision=revision, is_tripped=False, counted_from=counted_from, lease_until=0)


@dataclass(frozen=True)
class Trip:
    """Suspend the launches of the workers' group."""

    breaker: Breaker  # The record to write, without its lease
    failed: tuple[str, ...]  # Ids of the lost workers, which determine the decision


@dataclass(frozen=True)
class Rearm:
    """Count from zero, since a user has resumed the launches."""

    breaker: Breaker


@dataclass(frozen=True)
class RecordMembers:
    """Record the members, to recognize a member after it has left."""

    breaker: Breaker


def judge_breaker(
    workers: GroupObservation, state: ClusterState | None, breaker: Breaker | None, now: float
) -> Trip | Rearm | RecordMembers | None:
    """
    Decide the action of the breaker at a time in seconds since the epoch; None for none.

    The state was read after the group's activities, so that it contains the workers that joined before they died.
    `breaker` is None before the first record, or when it cannot matter.
    """
    found = breaker if breaker is not None and breaker.group == workers.name else None
    is_held = LAUNCH_PROCESS in workers.suspended
    if found is not None and found.is_tripped and not found.lease_until:
        # Before a membership is published this fails the cluster, with or without the suspension.
        return None if is_held or not _is_published(state) else Rearm(found)
    if found is not None and now < found.lease_until <= now + LONGEST_LEASE_SECONDS:
        return None
    failed = find_failures(workers, state, found, now)
    known = found.members if found else ()
    members = {member.instance_id for member in state.members} if state else set()
    following = replace(
        found or Breaker(0, workers.name),
        revision=1 + (breaker.revision if breaker else 0),
        members=known if members.issubset(known) else tuple(sorted(members | _keep_recent(known, workers))),
        lease_until=0,
    )
    was_interrupted = found is not None and found.is_tripped
    if len(failed) >= count_most(workers):
        return Trip(replace(following, is_tripped=True, reason=_explain(failed, workers)), failed)
    if found is not None and was_interrupted:
        return Trip(following, failed) if is_held else Rearm(found)
    return RecordMembers(following) if following.members != known else None


def count_most(workers: GroupObservation) -> int:
    """Return the number of failures that trip the breaker of a group."""
    return max(MOST_FAILURES, math.ceil(FAILURE_SHARE * workers.desired))


def find_failures(
    workers: GroupObservation, state: ClusterState | None, breaker: Breaker | None, now: float
) -> tuple[str, ...]:
    """
    Return the ids of workers that a health check took out of service recently and that never were members.

    An instance that died before it was in service is a failed launch, which has its own reason.
    """
    since = max(now - FAILURE_SECONDS, breaker.counted_from if breaker else 0)
    known = set(breaker.members) if breaker else set()
    if state is not None:
        known.update(member.instance_id for member in state.members)
        known.update(departure.instance_id for departure in state.departed)
    lost = {activity.instance_id for activity in _find_losses(workers) if activity.start >= since}
    return tuple(sorted(lost - known - workers.stillborn))


def needs_record(workers: GroupObservation, state: ClusterState | None, now: float) -> bool:
    """Return whether the breaker's record may matter; it is not read while a cluster forms."""
    is_held = LAUNCH_PROCESS in workers.suspended
    return is_held or _is_published(state) or len(find_failures(workers, state, None, now)) >= count_most(workers)


def _is_published(state: ClusterState | None) -> bool:
    return state is not None and state.phase is not Phase.LAUNCHED


def _find_losses(workers: GroupObservation) -> list[Activity]:
    return [activity for activity in workers.activities or () if activity.is_loss]


def _keep_recent(members: tuple[str, ...], workers: GroupObservation) -> set[str]:
    """Drop members that neither live nor have died recently: no activity that is read names them."""
    if workers.activities is None:
        return set(members)
    present = {instance.instance_id for instance in workers.instances}
    return set(members) & (present | {activity.instance_id for activity in workers.activities})


def _explain(failed: tuple[str, ...], workers: GroupObservation) -> Reason:
    last = max((loss for loss in _find_losses(workers) if loss.instance_id in failed), key=lambda loss: loss.start)
    named = ", ".join(failed[:_MOST_NAMED]) + (", …" if len(failed) > _MOST_NAMED else "")
    return Reason(
        f"workers must join the cluster, got {len(failed)} that died before within {FAILURE_SECONDS // 60} minutes "
        f"({named}), the last {last.loss_words}",
        f"launches are suspended: see /var/log/deeplearning-agent.log of such a node, correct the cause, then resume "
        f"the process {LAUNCH_PROCESS} of {workers.name}",
    )
