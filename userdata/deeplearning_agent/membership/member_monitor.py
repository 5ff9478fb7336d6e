"""Monitor of the members: liveness in every round, and health once a minute over SSH."""

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
"""Checks whose failure evicts a node; an outdated membership does not, since the node updates it itself."""
TRIED_BY_MASTER = frozenset({FILE_SYSTEM, SSH})
"""Checks that the master also runs on itself: if they fail there too, no other node is at fault."""
_UNFIT_TIMES = 2
"""Inspections in a row that a worker must fail: a single login can fail by chance."""


@dataclass(frozen=True)
class MemberHealth:
    """Health of the workers, as the master probed it."""

    # Instance id of each that does not respond -> description
    silent: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, str] = field(default_factory=dict)  # Instance id of each unhealthy node -> reason
    unanswered: Collection[str] = frozenset()  # Instance ids without a response in this round, members or not
    has_answer: bool = True  # Whether any node responded; if none did, the master itself may be cut off


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
        """Probe liveness now; the unhealthy nodes are those of the last two inspections."""
        names = {worker.address: worker.instance_id for worker in members[1:]}
        asked = {node.address for node in others} | set(names)
        gone = self._liveness.find_silent(asked) & set(names)
        mute = self._liveness.silent
        self._inspect_when_due(members)
        causes = self._causes
        return MemberHealth(
            silent={names[address]: f"it is silent: {STRIKES} rounds without a response" for address in gone},
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
    Check every member over SSH, the master included: a check that fails on the master too blames no other node.

    Takes two and a half minutes at most. Raises nothing: an error of the check evicts no node.

    Returns the reason to evict each unhealthy member, by instance id; never the master. A fault that most nodes have at
    the same time is the cluster's, and evicts no node.
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
            LOG.warning("%d of %d nodes have a fault that evicts no node, %s", len(bearers), len(asked), example)
    if own_id in causes:
        LOG.warning("the master itself is unhealthy, %s", "; ".join(causes.pop(own_id)))
    return {instance_id: "; ".join(found) for instance_id, found in causes.items()}


def find_fewer_gpus(workers: Sequence[Member]) -> dict[str, str]:
    """Find workers that joined with fewer GPUs than most others; `workers` are all members except the master."""
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
    Return whether a fault that `bearers` of all nodes have is theirs, rather than the cluster's.

    When only two clocks differ, either may be wrong; a third decides.
    """
    return 2 * bearers < nodes if name == CLOCK else 2 * bearers <= nodes
