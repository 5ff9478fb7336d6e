"""
Observations of the Auto Scaling groups, as values.

Only `InService` and healthy counts as launched. Every other lifecycle state, known or not, counts as in
progress: Auto Scaling adds states, and waiting costs less than a wrong decision.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from capacity_adjuster.policy.activity import Activity
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import FIRST_CANDIDATE, NodeRole

SUSPENDED_PROCESSES = ("Launch", "AZRebalance", "ReplaceUnhealthy")
"""Processes that must not run while a group's desired capacity is set to what it has."""


@dataclass(frozen=True)
class Instance:
    """Instance as its group lists it."""

    instance_id: str
    lifecycle: str
    health: str = "Healthy"
    instance_type: str = ""
    is_protected: bool = False

    @property
    def is_launched(self) -> bool:
        """True if it is in service and healthy."""
        return self.lifecycle == "InService" and self.health == "Healthy"

    @property
    def is_leaving(self) -> bool:
        """True if its group terminates it, or is about to."""
        return self.lifecycle.startswith("Terminating") or self.health != "Healthy"


@dataclass(frozen=True)
class GroupObservation:
    """Observation of one Auto Scaling group."""

    name: str
    role: NodeRole  # Value of its role tag
    min_size: int  # The group's own minimum, which Auto Scaling enforces; not the user's minimum
    desired: int  # Desired capacity
    max_size: int  # Maximum
    instances: tuple[Instance, ...] = ()  # Instances that it lists
    # Scaling activities; None when they were not read: the group then counts as busy
    activities: tuple[Activity, ...] | None = ()
    suspended: frozenset[str] = frozenset()  # Suspended processes
    created: float = 0.0  # Creation in seconds since the epoch
    is_deleting: bool = False  # Whether it is being deleted
    candidate: str = FIRST_CANDIDATE  # Value of its candidate tag, which tells it from the other groups of its role
    elsewhere: int = 0  # Desired capacity of the other groups of its role, which `desired` counts too

    @property
    def launched(self) -> tuple[str, ...]:
        """Ids of the instances that count as launched, sorted."""
        return tuple(sorted(instance.instance_id for instance in self.instances if instance.is_launched))

    @property
    def has_unsettled_instances(self) -> bool:
        """True while an instance launches or terminates."""
        return not all(instance.is_launched for instance in self.instances)

    @property
    def has_leaving_instances(self) -> bool:
        """True while an instance terminates, for which the activities may have a cause."""
        return any(instance.is_leaving for instance in self.instances)

    @property
    def is_busy(self) -> bool:
        """True while anything is in progress, or might be."""
        if self.has_unsettled_instances or self.activities is None:
            return True
        return any(activity.is_in_progress for activity in self.activities)

    @property
    def is_idle(self) -> bool:
        """True if it has no instance and no capacity is requested from it."""
        return not self.desired and not self.instances

    @property
    def keeps_surplus(self) -> bool:
        """True if the group cannot terminate instances beyond its desired capacity."""
        unprotected = sum(not instance.is_protected for instance in self.instances)
        return "Terminate" in self.suspended or unprotected == 0

    @property
    def failed_launches(self) -> tuple[Activity, ...]:
        """Failed launches, oldest first."""
        failed = (activity for activity in self.activities or () if activity.is_failed_launch)
        return tuple(sorted(failed, key=lambda activity: activity.last_moment))

    @property
    def standing_failure(self) -> Activity | None:
        """
        Failed launch that explains missing instances; None without one.

        A group retries a failed launch for ever, and replaces terminated instances. So when an activity began after
        the end of the last failure, the next attempt is pending, and the failure no longer explains anything. The
        termination of an instance that died before it was in service belongs to its failed launch.
        """
        failed = self.failed_launches
        if not failed:
            return None
        last, stillborn = failed[-1], self.stillborn
        later = [activity for activity in self.activities or () if activity.start > last.last_moment]
        has_next = any(activity.kind != "terminate" or activity.instance_id not in stillborn for activity in later)
        return None if has_next else last

    @property
    def stillborn(self) -> frozenset[str]:
        """Ids of the instances that died before they were in service."""
        died = (activity for activity in self.activities or () if activity.is_early_death)
        return frozenset(activity.instance_id for activity in died if activity.instance_id)


@dataclass(frozen=True)
class ClusterObservation:
    """
    Groups of one cluster.

    A role may have several groups, its candidates, of which one has capacity requested at a time. Together they count
    as one group: launched instances, activity and desired capacity are those of all of them.
    """

    groups: tuple[GroupObservation, ...] = ()

    @property
    def master(self) -> GroupObservation | None:
        """The master's groups, as one."""
        return _join(self.groups, NodeRole.MASTER)

    @property
    def workers(self) -> GroupObservation | None:
        """The workers' groups, as one."""
        return _join(self.groups, NodeRole.WORKER)

    @property
    def is_busy(self) -> bool:
        """True while anything is in progress in any group, or might be."""
        return any(group.is_busy for group in self.groups)


def needs_activities(group: GroupObservation, groups: Iterable[GroupObservation]) -> bool:
    """
    Return whether a decision needs the activities of a group.

    While instances launch and terminate it mostly does not, and a cluster of N nodes invokes the adjuster N times. A
    group that lacks instances while none launches may have failed, which must not wait for other groups; one that loses
    instances may lose them repeatedly.
    """
    if group.has_leaving_instances:
        return True
    if group.has_unsettled_instances:
        return False
    return len(group.launched) < group.desired or not any(other.has_unsettled_instances for other in groups)


def is_spare(group: GroupObservation, groups: Iterable[GroupObservation]) -> bool:
    """
    Return whether a group is an idle candidate beside another one of its role, whose activities say nothing.

    Of idle candidates alone, the first is not spare.
    """
    return group.is_idle and _choose([other for other in groups if other.role is group.role]) != group


def needs_decision(groups: tuple[GroupObservation, ...]) -> bool:
    """
    Return whether a decision may be needed.

    None is needed while instances launch or terminate in all groups, unless a suspended process is from an interrupted
    shrink.
    """
    has_suspension = any(not group.suspended.isdisjoint(SUSPENDED_PROCESSES) for group in groups)
    return has_suspension or any(needs_activities(group, groups) for group in groups)


def is_standing(observed: ClusterObservation, state: ClusterState | None) -> bool:
    """
    Return whether the last verdict still matches the groups, so that no decision is needed.

    A suspended process may be from an interrupted shrink, with any verdict.
    """
    if state is None or any(not group.suspended.isdisjoint(SUSPENDED_PROCESSES) for group in observed.groups):
        return False
    if state.phase is not Phase.LAUNCHED:
        return state.phase is Phase.FAILED
    groups = [group for group in (observed.master, observed.workers) if group and not group.has_unsettled_instances]
    launched = tuple(name for group in groups for name in group.launched)
    return launched == state.expected and all(len(group.launched) == group.desired for group in groups)


def _join(groups: tuple[GroupObservation, ...], role: NodeRole) -> GroupObservation | None:
    """Return the groups of a role as one, named after the candidate that is asked."""
    found = sorted((group for group in groups if group.role is role), key=_rank)
    if not found[1:]:
        return found[0] if found else None
    asked = _choose(found)
    read = [group.activities for group in found if group.activities is not None]
    desired = sum(group.desired for group in found)
    return replace(
        asked,
        min_size=sum(group.min_size for group in found),
        desired=desired,
        max_size=sum(group.max_size for group in found),
        instances=tuple(instance for group in found for instance in group.instances),
        activities=tuple(each for part in read for each in part) if len(read) == len(found) else None,
        created=min(group.created for group in found),
        is_deleting=any(group.is_deleting for group in found),
        elsewhere=desired - asked.desired,
    )


def _choose(found: Iterable[GroupObservation]) -> GroupObservation:
    """Return the first candidate with a desired capacity; without one, the first with an instance, or of all."""
    ranked = sorted(found, key=_rank)
    asked = next((group for group in ranked if group.desired > group.min_size), None)
    return asked or next((group for group in ranked if not group.is_idle), ranked[0])


def _rank(group: GroupObservation) -> tuple[int, str, str]:
    return (len(group.candidate), group.candidate, group.name)
