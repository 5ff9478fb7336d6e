"""How the master sees its workers: who answers, every two seconds, and who is fit, once a minute over SSH."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deeplearning_agent.membership.evictions import find_unhealthy
from deeplearning_agent.membership.liveness import STRIKES
from deeplearning_agent.membership.liveness import Watch as Liveness
from deeplearning_contract.membership import Member
from deeplearning_node.node import Node

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

INSPECT_SECONDS = 60
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
        self._liveness = Liveness()
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
