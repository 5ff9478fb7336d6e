"""Monitor of the members: who answers, every round, and who is unhealthy, once a minute over SSH."""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deeplearning_agent.membership.liveness import STRIKES, Watch
from deeplearning_contract.membership import Member
from deeplearning_node.health.cluster_check import INSPECTION_SECONDS, SSH, ClusterCheck, NodeCheck
from deeplearning_node.health.gpus import ECC, GPU
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import AGENT, CLOCK
from deeplearning_node.health.storage import DISK, FILE_SYSTEM
from deeplearning_node.node import Node

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
INSPECT_SECONDS = 60
FAULTS = (AGENT, CLOCK, DISK, FILE_SYSTEM, GPU, ECC, NETWORK, SSH)
"""What makes a node leave; a membership that is behind does not, its owner sees to that."""
TRIED_BY_MASTER = frozenset({FILE_SYSTEM, SSH})
"""What the master tries on itself in the same way: if that fails too, it is nobody's fault."""
_UNFIT_TIMES = 2
"""Inspections in a row that a worker must fail: one log-in can fail for reasons of its own."""


@dataclass(frozen=True)
class MemberHealth:
    """Health of the workers, as the master found it."""

    # Instance id of each that does not answer -> the words for it
    silent: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)  # Instance id of each that answers and is of no use -> why
    unanswered: Collection[str] = frozenset()  # Instance ids of those that did not answer just now, members or not
    has_answer: bool = True  # Whether anybody answered; if nobody did, the master itself may be cut off


class MemberMonitor:
    """Monitor of the workers: liveness in each round, health once a minute."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._liveness = Watch()
        self._failures: Counter[str] = Counter()
        self._causes: Mapping[str, str] = {}
        self._inspection: threading.Thread | None = None
        self._next: Deadline = node.limit(INSPECT_SECONDS)

    def probe(self, members: Sequence[Member], others: Sequence[Member] = ()) -> MemberHealth:
        """Look who answers now; who is unfit is what the last two inspections found."""
        names = {worker.address: worker.instance_id for worker in members[1:]}
        asked = {node.address for node in others} | set(names)
        gone = self._liveness.find_silent(asked) & set(names)
        mute = self._liveness.silent
        self._inspect_when_due(members)
        causes = self._causes
        return MemberHealth(
            silent={names[address]: f"it is silent: {STRIKES} rounds without an answer" for address in gone},
            unfit={name: cause for name, cause in causes.items() if self._failures[name] >= _UNFIT_TIMES},
            unanswered=frozenset(node.instance_id for node in (*members[1:], *others) if node.address in mute),
            has_answer=not asked <= mute,
        )

    def _inspect_when_due(self, members: Sequence[Member]) -> None:
        if len(members) == 1 or not self._next.is_over or (self._inspection and self._inspection.is_alive()):
            return
        self._next = self._node.limit(INSPECT_SECONDS)
        self._inspection = threading.Thread(target=self._inspect, args=(tuple(members),), daemon=True)
        self._inspection.start()

    def _inspect(self, members: tuple[Member, ...]) -> None:
        causes = find_unhealthy(self._node, members)
        self._failures = Counter({name: self._failures[name] + 1 for name in causes})
        self._causes = causes


def find_unhealthy(node: Node, members: Sequence[Member]) -> dict[str, str]:
    """
    Check every member, the master itself too, over SSH: a check that fails on the master too blames no other node.

    Takes two and a half minutes at most. Raises nothing: a check that fails finds nobody unhealthy.

    Returns the reason to evict each unhealthy member, by instance id; never the master. A fault that most nodes have at
    the same time is the cluster's, and evicts nobody.
    """
    try:
        check = ClusterCheck(node.login_user(), node.programs, is_root=True)
        own_id = node.identity.instance_id
        causes = find_causes(check.run(members, node.limit(INSPECTION_SECONDS)), own_id)
        return find_fewer_gpus([member for member in members if member.instance_id != own_id]) | causes
    except Exception:
        LOG.exception("the inspection of %d nodes failed", len(members))
        return {}


def find_causes(answers: Iterable[NodeCheck], own_id: str) -> dict[str, str]:
    """Return the faults that count against single nodes, by instance id; `own_id` is the master's."""
    asked = [answer for answer in answers if answer.verdict != "not asked"]
    faults = {answer.member.instance_id: {fault.name: fault for fault in answer.faults} for answer in asked}
    own = faults.get(own_id, {})
    causes: dict[str, list[str]] = {}
    for name in FAULTS:
        bearers = {instance_id: found[name] for instance_id, found in faults.items() if name in found}
        if not bearers:
            continue
        if is_of_one_node(name, len(bearers), len(asked)) and not (name in own and name in TRIED_BY_MASTER):
            for instance_id, fault in bearers.items():
                causes.setdefault(instance_id, []).append(str(fault))
        else:
            example = next(iter(bearers.values()))
            LOG.warning("%d of %d nodes have a fault that makes nobody leave, %s", len(bearers), len(asked), example)
    if own_id in causes:
        LOG.warning("the master is unfit itself, %s", "; ".join(causes.pop(own_id)))
    return {instance_id: "; ".join(found) for instance_id, found in causes.items()}


def find_fewer_gpus(workers: Sequence[Member]) -> dict[str, str]:
    """Find workers that joined with fewer GPUs than most others; `workers` are all members but the master."""
    counts = Counter(worker.gpu_count for worker in workers)
    usual, holders = counts.most_common(1)[0] if counts else (0, 0)
    if 2 * holders <= len(workers):
        return {}
    return {
        worker.instance_id: f"{GPU}: it joined with {worker.gpu_count} GPUs, most workers have {usual}"
        for worker in workers
        if worker.gpu_count < usual
    }


def is_of_one_node(name: str, bearers: int, nodes: int) -> bool:
    """
    Return whether a fault that so many of all nodes have is theirs, rather than the cluster's.

    Of two clocks that differ, nobody knows which one is wrong: that takes a third.
    """
    return 2 * bearers < nodes if name == CLOCK else 2 * bearers <= nodes
