"""One membership after another, as values: who leaves, who comes, and in which order they stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import NO_REASON, Reason


@dataclass(frozen=True)
class Change:
    """Change of a membership."""

    left: Mapping[str, Reason]  # Reason of each member that leaves, by instance id
    joined: tuple[Member, ...] = ()  # Those that come, in the order in which they will stand

    def __bool__(self) -> bool:
        return bool(self.left or self.joined)


def publish(
    state: ClusterState, members: Sequence[Member], left_out: Mapping[str, Reason], user_key: str
) -> ClusterState:
    """Return the first membership of a launched generation, master first, with the reasons of those left out."""
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
    explained = state if len(members) < state.requested else state.explain(NO_REASON)
    return explained.depart(generation, change.left).advance(state.phase, generation=generation, members=members)


def take_over(state: ClusterState, master: Member, user_key: str) -> ClusterState:
    """
    Return the generation in which a new master stands first and the workers stay; all must acknowledge it.

    EC2 gives an address anew only when its last holder has gone: a worker that had the new master's is none any more.
    """
    generation = state.generation + 1
    old = state.members[0]
    others = tuple(m for m in state.members[1:] if m.instance_id != master.instance_id)
    workers = tuple(m for m in others if m.address != master.address)
    gone = {m.instance_id: Reason(f"its address {m.address} is the master's now") for m in others if m not in workers}
    reasons = {old.instance_id: Reason(f"replaced as master by {master.instance_id}"), **gone}
    return state.depart(generation, reasons).advance(
        Phase.PUBLISHED, generation=generation, members=(master, *workers), user_key=user_key
    )


def explain(state: ClusterState, left_out: Mapping[str, Reason]) -> ClusterState:
    """Return the same revision, with nodes that were left out in its reason."""
    reasons = [Reason.of(state), *(reason.prefix(f"left out {name}: ") for name, reason in left_out.items())]
    return state.explain(join_reasons([reason for reason in reasons if reason])) if left_out else state


def join_reasons(reasons: Sequence[Reason]) -> Reason:
    """Return one reason for several: all causes, and the first remedy and output."""
    causes = "; ".join(reason.cause for reason in reasons)
    remedy = next((reason.remedy for reason in reasons if reason.remedy), "")
    return Reason(causes, remedy, next((reason.output for reason in reasons if reason.output), ""))
