"""The moments at which a case injects: a row for each form of words, and the machines that they name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

_TARGET = re.compile(r"(master|worker)(?: (\d+))?")


@dataclass(frozen=True)
class Target:
    """
    A machine, by its role and the order of launches: `number` counts from 1.

    Without a number it is the last one launched; only a master can mean that, because replacements go on counting.
    """

    role: NodeRole
    number: int | None

    def __str__(self) -> str:
        return self.role.value if self.number is None else f"{self.role.value} {self.number}"


def parse_target(text: str) -> Target | None:
    """Read the words of a case file; None when they name no machine."""
    match = _TARGET.fullmatch(text)
    if match is None:
        return None
    role, number = NodeRole(match[1]), int(match[2]) if match[2] else None
    if number == 0 or (role is NodeRole.WORKER and number is None):
        return None
    return Target(role, number)


class RunState(Protocol):
    """The state of a running rehearsal, as triggers read it."""

    def instance(self, target: Target) -> str | None:
        """Return the instance id of a machine that was booted; None before."""

    def phase(self) -> str:
        """Return the phase of the state item; empty without one."""

    def has_said(self, instance_id: str, text: str) -> bool:
        """Return whether a node's agent has logged a text."""

    def provisioned(self, instance_id: str, step: str) -> float:
        """Return which part of a step of what jobs need a node has done, from 0 to 1."""

    def has_formed(self) -> bool:
        """Return whether the stack is complete."""

    def commits(self, ranks: int) -> int:
        """Return how often a world of so many ranks has committed."""

    def job_secondary(self) -> str:
        """Return the secondary status of the newest training job; empty without one."""

    def checkpoints(self) -> int:
        """Return the number of checkpoints of the training job's job."""

    def has_printed(self, text: str) -> bool:
        """Return whether a command for jobs has printed a text."""


@dataclass(frozen=True)
class Moment:
    """
    A row of `TRIGGERS`.

    Attributes:
        words: Expression of the words in a case file; its groups are read by `_READERS`.
        example: Such words, for messages.
        is_due: Takes the situation, the seconds since the injection before, and the groups.
    """

    words: str
    example: str
    is_due: Callable[..., bool]


def _ask(now: RunState, target: Target, question: Callable[[str], bool]) -> bool:
    instance_id = now.instance(target)
    return instance_id is not None and question(instance_id)


TRIGGERS: Mapping[str, Moment] = {
    "boot": Moment(r"boot (?P<target>.+)", "boot worker 2", lambda now, _, target: now.instance(target) is not None),
    "state": Moment(r"state (?P<phase>\w+)", "state published", lambda now, _, phase: now.phase() == phase),
    "prints": Moment(
        r"submit prints (?P<text>.+)", "submit prints FailedMount", lambda now, _, text: now.has_printed(text)
    ),
    "says": Moment(
        r"(?P<target>.+?) says (?P<text>.+)",
        "worker 2 says reported ready",
        lambda now, _, target, text: _ask(now, target, lambda node: now.has_said(node, text)),
    ),
    "formed": Moment("formed", "formed", lambda now, _: now.has_formed()),
    "has": Moment(
        r"(?P<target>.+?) has (?P<percent>\d+) % of (?P<step>\S+)",
        "master has 40 % of data:coco",
        lambda now, _, target, percent, step: _ask(
            now, target, lambda node: now.provisioned(node, step) >= percent / 100
        ),
    ),
    "commit": Moment(
        r"training commit (?P<commits>\d+) with (?P<ranks>\d+) ranks",
        "training commit 5 with 4 ranks",
        lambda now, _, commits, ranks: now.commits(ranks) >= commits,
    ),
    "job": Moment(
        r"job (?P<secondary>[A-Z]\w+)", "job Training", lambda now, _, secondary: now.job_secondary() == secondary
    ),
    "checkpoint": Moment("checkpoint", "checkpoint", lambda now, _: now.checkpoints() > 0),
    "pause": Moment(r"\+(?P<seconds>\d+(?:\.\d+)?) s", "+10 s", lambda _, waited, seconds: waited >= seconds),
}
_READERS: Mapping[str, Callable[[str], Any]] = {
    "target": parse_target,
    "phase": lambda text: text if text in {phase.value for phase in Phase} else None,
    "percent": int,
    "commits": int,
    "ranks": int,
    "seconds": float,
}
"""Group of an expression -> its reader, None for what it cannot be; the others are texts."""


@dataclass(frozen=True)
class Trigger:
    """
    The moment of an injection: the text of the case file, its row of `TRIGGERS`, and the groups of the row's
    expression.
    """

    text: str
    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def is_due(self, situation: RunState, waited: float) -> bool:
        """Return whether the moment has come, so many seconds after the injection before."""
        return TRIGGERS[self.kind].is_due(situation, waited, **self.values)


def parse_trigger(text: str) -> Trigger | None:
    """Read the words of a case file; None when they are none of the known forms."""
    for kind, moment in TRIGGERS.items():
        if match := re.fullmatch(moment.words, text):
            values = {name: _READERS.get(name, str)(words) for name, words in match.groupdict().items()}
            return None if None in values.values() else Trigger(text, kind, values)
    return None
