"""One membership after another, as values: who leaves, who comes, and in which order they stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import MAX_REASON


@dataclass(frozen=True)
class Change:
    """
    What is to become of a membership.

    Attributes:
        left: Instance id of each member that leaves -> why.
        joined: Those that come, in the order in which they will stand.
    """

    left: Mapping[str, str]
    joined: tuple[Member, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.left or self.joined)


def publish(state: ClusterState, members: Sequence[Member], left_out: Mapping[str, str], user_key: str) -> ClusterState:
    """
    Return the first roster of a generation that launched.

    Args:
        state: The item in phase `launched`.
        members: The roster, master first.
        left_out: Instance id of each node that launched and is no member -> why.
        user_key: The master's public user key.
    """
    generation = max(1, state.generation)
    return explain(state.depart(generation, left_out), left_out).advance(
        Phase.PUBLISHED, generation=generation, members=tuple(members), user_key=user_key
    )


def follow_up(state: ClusterState, change: Change) -> ClusterState:
    """
    Return the next generation: those who stay keep their order, newcomers stand last; the phase stays.

    Once the cluster is as large as was asked for, there is no reason any more why it is not.
    """
    generation = state.generation + 1
    stayed = tuple(member for member in state.members if member.instance_id not in change.left)
    members = (*stayed, *change.joined)
    reason = state.reason if len(members) < state.requested else ""
    return state.depart(generation, change.left).advance(
        state.phase, generation=generation, members=members, reason=reason
    )


def take_over(state: ClusterState, master: Member, user_key: str) -> ClusterState:
    """
    Return the generation in which a new master stands first and the workers stay; all must acknowledge it.

    EC2 gives an address anew only when its last holder has gone: a worker that had the new master's is none any more.
    """
    generation = state.generation + 1
    old = state.members[0]
    others = tuple(m for m in state.members[1:] if m.instance_id != master.instance_id)
    workers = tuple(m for m in others if m.address != master.address)
    gone = {m.instance_id: f"its address {m.address} is the master's now" for m in others if m not in workers}
    reasons = {old.instance_id: f"replaced as master by {master.instance_id}", **gone}
    return state.depart(generation, reasons).advance(
        Phase.PUBLISHED, generation=generation, members=(master, *workers), user_key=user_key
    )


def explain(state: ClusterState, left_out: Mapping[str, str]) -> ClusterState:
    """Return the same revision, with nodes that were left out in its reason."""
    if not left_out:
        return state
    told = "; ".join(f"left out {name}: {reason}" for name, reason in left_out.items())
    return replace(state, reason=join_reasons(state.reason, told))


def join_reasons(first: str, second: str) -> str:
    """Join two reasons in the space that one has."""
    return (f"{first}; {second}" if first else second)[:MAX_REASON]
