"""Transitions from one membership to the next, as values: members that leave and join, and their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import NO_REASON, Reason


@dataclass(frozen=True)
class Change:
    """Members that leave and join."""

    left: Mapping[str, Reason]  # Reason of each member that leaves, by instance id
    joined: tuple[Member, ...] = ()  # New members, in the order of their ranks

    def __bool__(self) -> bool:
        return bool(self.left or self.joined)


def publish(
    state: ClusterState, members: Sequence[Member], left_out: Mapping[str, Reason], user_key: str
) -> ClusterState:
    """Return the first membership of a launched generation, master first, with the reasons of nodes left out."""
    generation = max(1, state.generation)
    return explain(state.depart(generation, left_out), left_out).advance(
        Phase.PUBLISHED, generation=generation, members=tuple(members), user_key=user_key
    )


def follow_up(state: ClusterState, change: Change) -> ClusterState:
    """
    Return the next generation in the same phase: remaining members keep their order, new ones come last.

    The reason of a reduced size is removed once the cluster has its requested size.
    """
    generation = state.generation + 1
    stayed = tuple(member for member in state.members if member.instance_id not in change.left)
    members = (*stayed, *change.joined)
    reason = state.reason if len(members) < state.requested else NO_REASON
    return state.depart(generation, change.left).advance(
        state.phase, generation=generation, members=members, reason=reason
    )


def take_over(state: ClusterState, master: Member, user_key: str, joined: Sequence[Member] = ()) -> ClusterState:
    """
    Return the generation in which a new master comes first and the workers remain; all must acknowledge it.

    New workers come last.
    """
    generation = state.generation + 1
    old = state.members[0]
    others = tuple(m for m in state.members[1:] if m.instance_id != master.instance_id)
    gone = find_displaced(others, (master, *joined))
    workers = tuple(m for m in others if m.instance_id not in gone)
    reasons = {old.instance_id: Reason(f"replaced as master by {master.instance_id}"), **gone}
    return state.depart(generation, reasons).advance(
        Phase.PUBLISHED, generation=generation, members=(master, *workers, *joined), user_key=user_key
    )


def find_displaced(workers: Sequence[Member], newcomers: Sequence[Member]) -> dict[str, Reason]:
    """
    Find workers whose address a newcomer has: EC2 reuses an address only after its last instance has gone.

    Returns the reason to evict each, by instance id.
    """
    holders = {member.address: member.instance_id for member in newcomers}
    return {
        worker.instance_id: Reason(f"its address {worker.address} is {holders[worker.address]}'s now")
        for worker in workers
        if worker.address in holders
    }


def explain(state: ClusterState, left_out: Mapping[str, Reason]) -> ClusterState:
    """Return the same revision with the nodes that were left out in its reason."""
    reasons = [state.reason, *(reason.prefix(f"left out {name}: ") for name, reason in left_out.items())]
    return replace(state, reason=join_reasons([reason for reason in reasons if reason]))


def join_reasons(reasons: Sequence[Reason]) -> Reason:
    """Return one reason for several: all causes, and the first remedy and output."""
    causes = "; ".join(reason.cause for reason in reasons)
    remedy = next((reason.remedy for reason in reasons if reason.remedy), "")
    return Reason(causes, remedy, next((reason.output for reason in reasons if reason.output), ""))
