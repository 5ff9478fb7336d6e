"""
Record of the capacity that the stack requests: an item beside the state record, only for the adjuster.

The template's groups have no desired capacity. A deployment that creates the cluster, or changes its number of nodes,
makes one request. Each is applied once, in two steps, so that a crash between any two calls is recovered and no user's
own scaling is overwritten:

recorded ── the groups are read ──> planned ── each group set, if it is still as read ──> done

Workers whose Capacity Block has not begun are requested once it has: such a request is planned for the master alone,
done, and planned again, for the workers alone.

The policy is pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole

RESOURCE_BEGIN = "capacity-"
"""Prefix of the ids that the adjuster gives to the stack's resource."""
_MOST_KNOWN = 20
"""Number of request ids to keep, so that a request that is delivered again, even late, changes nothing."""
_ROUND = "#"
"""Separator between the stack's id of a request and the number of candidates that were asked before."""
_ORDER = (NodeRole.WORKER, NodeRole.MASTER)
"""The master's group is last, so that no cluster seems complete before its workers are requested."""


@dataclass(frozen=True)
class CapacityRequest:
    """Request of the stack."""

    request_id: str  # Id of the request
    resource: str  # Id of the resource in the stack
    master: int  # Number of masters
    workers: int  # Number of workers
    candidate: str  # Candidate tag of the groups that get the capacity
    is_creation: bool  # Whether the resource is being created


@dataclass(frozen=True)
class GroupTarget:
    """Desired capacity for one group."""

    group: str
    before: int  # Desired capacity when the request was read
    target: int  # Desired capacity to set


@dataclass(frozen=True)
class RequestedCapacity:
    """Last request for capacity, and its progress."""

    revision: int  # Counts every write; the compare-and-set condition
    request: CapacityRequest  # The request; its id is the request's
    known: tuple[str, ...]  # Ids of the accepted requests, the newest last
    asks: tuple[GroupTarget, ...] = ()  # Target of each group, in that order; empty until the groups were read
    former: tuple[GroupTarget, ...] = ()  # Targets of the previous request
    is_open: bool = True  # Whether it is still to be applied
    is_over: bool = False  # Whether the stack deletes the cluster, so that no capacity is requested any more
    # While an invocation applies it, the time after which that is certainly over, in seconds since the epoch; else 0
    lease_until: int = 0
    block: CapacityBlock | None = None  # Capacity Block for which its workers wait, or waited in vain; else None

    def intend(self, asks: Sequence[GroupTarget], lease_until: int) -> "RequestedCapacity":
        """Return the next revision, with the lease of an invocation that applies it."""
        return replace(self, revision=self.revision + 1, asks=tuple(asks), lease_until=lease_until)

    def release(self, asks: Sequence[GroupTarget]) -> "RequestedCapacity":
        """Return the next revision without a lease, for the next invocation, with the given targets."""
        return replace(self, revision=self.revision + 1, asks=tuple(asks), lease_until=0)

    def address(self, candidate: str, asked: int) -> "RequestedCapacity":
        """
        Return the same revision, open for a candidate of the search, unless it was addressed to it before.

        `asked` is the number of candidates that were asked before. Such a request has an id of its own, which is not
        among the known ones: they keep the stack's, however often capacity moves.
        """
        stack_id = self.request.request_id.split(_ROUND)[0]
        request_id = f"{stack_id}{_ROUND}{asked}" if asked else stack_id
        request = replace(self.request, request_id=request_id, candidate=candidate)
        if self.is_over or request == self.request:
            return self
        return replace(self, request=request, asks=(), former=self.asks or self.former, is_open=True)

    def note(self, block: CapacityBlock) -> "RequestedCapacity":
        """Return the next revision, with another read of the block."""
        return replace(self, revision=self.revision + 1, block=block)

    def begin(self, groups: Sequence[GroupObservation]) -> "RequestedCapacity":
        """
        Return the next revision, open for the workers alone, now that their block has begun.

        It is closed if the cluster has ended meanwhile, as nobody would be their master. A user's own scaling of the
        workers since the request is kept.
        """
        is_up = any(group.desired for group in groups if group.role is NodeRole.MASTER)
        waited = {ask.group: ask.target for ask in self.asks}
        asks = tuple(
            replace(_plan_target(group, self.request.workers), before=waited[group.name])
            for group in groups
            if is_up and group.role is NodeRole.WORKER and group.name in waited
        )
        return replace(self, revision=self.revision + 1, asks=asks, former=(), is_open=bool(asks), block=None)

    def renew(self) -> "RequestedCapacity":
        """Return the next revision, open again, for a block in place of one that never began."""
        request = replace(self.request, is_creation=False)
        return replace(
            self, revision=self.revision + 1, request=request, asks=(), former=self.asks, is_open=True, block=None
        )

    def close(self) -> "RequestedCapacity":
        """Return the next revision, with the request applied or settled."""
        return replace(self, revision=self.revision + 1, is_open=False, lease_until=0)

    def end(self) -> "RequestedCapacity":
        """Return the next revision, with the cluster being deleted."""
        return replace(self.close(), is_over=True)


BLANK_REQUEST = RequestedCapacity(0, CapacityRequest("", "", 0, 0, "", is_creation=False), (), is_open=False)
"""Replacement of an unreadable record, which requests nothing."""
_CANCELLED = replace(BLANK_REQUEST, revision=1, is_over=True)
"""Record of a resource that is deleted before its creation was accepted."""


def is_held(requested: RequestedCapacity | None, now: float) -> bool:
    """Return whether an invocation that may be alive applies a request."""
    return requested is not None and requested.is_open and now < requested.lease_until <= now + LONGEST_LEASE_SECONDS


def record_request(requested: RequestedCapacity | None, request: CapacityRequest) -> RequestedCapacity | None:
    """Return the record with a new request of the stack; None when it was recorded before."""
    if requested is None:
        return RequestedCapacity(1, request, (request.request_id,))
    if request.request_id in requested.known:
        return None
    known = (*requested.known, request.request_id)[-_MOST_KNOWN:]
    is_cancelled = not requested.known  # A creation, before it was accepted.
    if requested.is_over and (is_cancelled or request.resource == requested.request.resource):
        return replace(requested, revision=requested.revision + 1, known=known)
    return RequestedCapacity(requested.revision + 1, request, known, former=requested.asks or requested.former)


def cancel_request(requested: RequestedCapacity | None, resource: str) -> RequestedCapacity | None:
    """
    Return the record of a cluster that is being deleted; None for no change.

    When another resource of the stack fails, CloudFormation cancels a creation that has no response yet, and deletes it
    at once by an id that it makes up (cloudformation-coverage-roadmap#1814). So an unknown id means the last creation,
    or one that is still to come. A known id of another resource, which has been replaced since, changes nothing.
    """
    if requested is None:
        return _CANCELLED
    is_cancelled = requested.request.is_creation and not resource.startswith(RESOURCE_BEGIN)
    is_last = requested.request.resource == resource or is_cancelled
    return requested.end() if is_last and not requested.is_over else None


def is_idle(state: ClusterState | None, requested: RequestedCapacity, groups: Sequence[GroupObservation]) -> bool:
    """
    Return whether a request is settled without a change of capacity.

    A failed cluster gets none. A resource that is created for a cluster with capacity from an earlier version of the
    template must not rescale it.
    """
    if state is not None and state.phase is Phase.FAILED:
        return True
    is_new = requested.request.is_creation and not requested.asks and _ROUND not in requested.request.request_id
    return is_new and (state is not None or any(group.desired > group.min_size for group in groups))


def plan_targets(requested: RequestedCapacity, groups: Sequence[GroupObservation]) -> tuple[GroupTarget, ...] | None:
    """
    Return the target of each group, once a request; None while a group is absent or being deleted.

    Workers that wait for their block are not requested yet.
    """
    if any(group.is_deleting for group in groups):
        return None
    if requested.asks:
        return requested.asks
    request = requested.request
    wanted = {NodeRole.WORKER: 0 if requested.block else request.workers, NodeRole.MASTER: request.master}
    asked = {group.role: group for group in groups if group.candidate == request.candidate}
    if not asked.keys() >= set(_ORDER):
        return None
    return tuple(_plan_target(asked[role], wanted[role]) for role in _ORDER)


def find_due(
    asks: Sequence[GroupTarget], groups: Sequence[GroupObservation], former: Sequence[GroupTarget] = ()
) -> tuple[GroupTarget, ...]:
    """
    Return the groups that are unchanged since the request was read.

    Any other desired capacity means that the group is done, or that its user has scaled it since, which is kept. A
    group that has its target is set nevertheless: the read may be older than the previous request, which a rollback
    follows within seconds. So a group also counts as unchanged with the target of the previous request, if the first
    read showed the capacity from before that request.
    """
    desired = {group.name: group.desired for group in groups}
    late = {(last.group, last.before): last.target for last in former}
    there = (ask for ask in asks if ask.group in desired)
    return tuple(ask for ask in there if desired[ask.group] in (ask.before, late.get((ask.group, ask.before))))


def _plan_target(group: GroupObservation, wanted: int) -> GroupTarget:
    # Auto Scaling refuses values outside of the group's own limits.
    return GroupTarget(group.name, group.desired, max(group.min_size, min(wanted, group.max_size)))
