"""
The record of what capacity the stack asks for: an item beside the state item, for the adjuster alone.

The template's groups have no desired capacity of their own. A deployment that creates the cluster, or changes how many
nodes it is to have, makes one request; each is carried out once, in two steps, so that a crash between any two calls is
made good and nobody's own scaling is overwritten:

    recorded ── the groups are seen ──> planned ── each group set, if it still is as seen ──> done

The policy is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole

RESOURCE_BEGIN = "capacity-"
"""By which an id that the adjuster gave to the stack's resource is known."""
_MOST_KNOWN = 20
"""Requests that are remembered, so that one that is delivered again, even late, changes nothing."""
_ORDER = (NodeRole.WORKER, NodeRole.MASTER)
"""The master's group is last: a cluster that has its master never looks complete before its workers are asked for."""


@dataclass(frozen=True)
class CapacityRequest:
    """A request of the stack."""

    request_id: str  # Id of the request; each is one request
    resource: str  # Id of the stack's resource that makes it
    master: int  # Masters wanted
    workers: int  # Workers wanted
    candidate: str  # Value of the candidate tag of the groups that are asked
    is_creation: bool  # Whether the resource is being created


@dataclass(frozen=True)
class GroupTarget:
    """What one group is asked for."""

    group: str
    before: int  # Its desired capacity when the request was read
    target: int  # What it is set to


@dataclass(frozen=True)
class RequestedCapacity:
    """The last request for capacity, and what became of it."""

    revision: int  # Counts every write; the compare-and-set condition
    request: CapacityRequest  # The request; its id is the request's
    known: tuple[str, ...]  # Ids of the requests that were taken, the newest last
    asks: tuple[GroupTarget, ...] = ()  # What each group is asked for, in that order; empty until the groups were seen
    former: tuple[GroupTarget, ...] = ()  # What the request before asked of them
    is_open: bool = True  # Whether it is still to be carried out
    is_over: bool = False  # Whether the stack deletes the cluster, so that nothing is asked for any more
    # While an invocation carries it out, the time after which that cannot be alive any more, in seconds since the
    # epoch; else 0
    lease_until: int = 0

    def intend(self, asks: Sequence[GroupTarget], lease_until: int) -> "RequestedCapacity":
        """Return the next revision, in the hands of an invocation that carries it out."""
        return replace(self, revision=self.revision + 1, asks=tuple(asks), lease_until=lease_until)

    def release(self, asks: Sequence[GroupTarget]) -> "RequestedCapacity":
        """Return the next revision, to be carried out by whoever comes next, with what had been intended before."""
        return replace(self, revision=self.revision + 1, asks=tuple(asks), lease_until=0)

    def close(self) -> "RequestedCapacity":
        """Return the next revision, carried out or settled otherwise."""
        return replace(self, revision=self.revision + 1, is_open=False, lease_until=0)

    def end(self) -> "RequestedCapacity":
        """Return the next revision, with the cluster on its way out."""
        return replace(self.close(), is_over=True)


BLANK_REQUEST = RequestedCapacity(0, CapacityRequest("", "", 0, 0, "", is_creation=False), (), is_open=False)
"""Of a record that cannot be read: nothing is asked for by it."""
_CANCELLED = replace(BLANK_REQUEST, revision=1, is_over=True)
"""Of a resource that is deleted before its creation was taken."""


def is_held(requested: RequestedCapacity | None, now: float) -> bool:
    """Return whether an invocation that may be alive carries a request out."""
    return requested is not None and requested.is_open and now < requested.lease_until <= now + LONGEST_LEASE_SECONDS


def record_request(requested: RequestedCapacity | None, request: CapacityRequest) -> RequestedCapacity | None:
    """Return the record with another request of the stack; None when the request was recorded before."""
    if requested is None:
        return RequestedCapacity(1, request, (request.request_id,))
    if request.request_id in requested.known:
        return None
    known = (*requested.known, request.request_id)[-_MOST_KNOWN:]
    if requested.is_over and not requested.known:  # This is the creation that was cancelled before it was taken.
        return replace(requested, revision=requested.revision + 1, known=known)
    return RequestedCapacity(requested.revision + 1, request, known, former=requested.asks or requested.former)


def cancel_request(requested: RequestedCapacity | None, resource: str) -> RequestedCapacity | None:
    """
    Return the record of a cluster that is being deleted; None when there is nothing to write.

    When another resource of the stack fails, CloudFormation cancels a creation that has no response yet, and deletes it
    at once by an id that it makes up (cloudformation-coverage-roadmap#1814). So a foreign id means the creation that
    came last, or one that is still to come. One of our ids, of a resource that has been replaced since, changes
    nothing.
    """
    if requested is None:
        return _CANCELLED
    is_cancelled = requested.request.is_creation and not resource.startswith(RESOURCE_BEGIN)
    is_last = requested.request.resource == resource or is_cancelled
    return requested.end() if is_last and not requested.is_over else None


def is_idle(state: ClusterState | None, requested: RequestedCapacity, groups: Sequence[GroupObservation]) -> bool:
    """
    Return whether a request is settled without a change of capacity.

    A failed cluster gets none. A resource that is created for a cluster that has capacity already, because an earlier
    version of the template set it, must not rescale it.
    """
    if state is not None and state.phase is Phase.FAILED:
        return True
    is_new = requested.request.is_creation and not requested.asks
    return is_new and (state is not None or any(group.desired > group.min_size for group in groups))


def plan_targets(requested: RequestedCapacity, groups: Sequence[GroupObservation]) -> tuple[GroupTarget, ...] | None:
    """Decide the desired capacity of each group, once for a request; None while a group is absent or being deleted."""
    if any(group.is_deleting for group in groups):
        return None
    if requested.asks:
        return requested.asks
    request = requested.request
    wanted = {NodeRole.WORKER: request.workers, NodeRole.MASTER: request.master}
    asked = {group.role: group for group in groups if group.candidate == request.candidate}
    if not asked.keys() >= set(_ORDER):
        return None
    return tuple(_plan_target(asked[role], wanted[role]) for role in _ORDER)


def find_due(
    asks: Sequence[GroupTarget], groups: Sequence[GroupObservation], former: Sequence[GroupTarget] = ()
) -> tuple[GroupTarget, ...]:
    """
    Find the groups that are still as they were when the request was read.

    Any other desired capacity means that the group is done, or that its user has scaled it since, which is left alone.
    A group that has its target is set all the same: the read may be older than the request before, which a rollback
    follows within seconds. So a group also counts as unchanged with the target of the former request, if the first read
    showed the capacity from before that request.
    """
    desired = {group.name: group.desired for group in groups}
    late = {(last.group, last.before): last.target for last in former}
    there = (ask for ask in asks if ask.group in desired)
    return tuple(ask for ask in there if desired[ask.group] in (ask.before, late.get((ask.group, ask.before))))


def _plan_target(group: GroupObservation, wanted: int) -> GroupTarget:
    # Auto Scaling refuses what lies outside of the group's own limits.
    return GroupTarget(group.name, group.desired, max(group.min_size, min(wanted, group.max_size)))
