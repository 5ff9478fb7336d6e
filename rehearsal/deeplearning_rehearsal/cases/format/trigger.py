"""When a fault is injected: the words of a case file, and whether their moment has come."""

import re
from dataclasses import dataclass
from typing import Literal, Protocol

from deeplearning_contract.cluster_state import Phase
from deeplearning_rehearsal.cases.format.target import Target, parse_target

FORMS = (
    '"boot worker 2", "state published", "worker 2 says reported ready", "formed", "master has 40 % of data:coco", '
    '"training commit 5 with 4 ranks" or "+10 s"'
)
_BOOT = re.compile(r"boot (.+)")
_STATE = re.compile(r"state (\w+)")
_SAYS = re.compile(r"(.+?) says (.+)")
_COMMIT = re.compile(r"training commit (\d+) with (\d+) ranks")
_HAS = re.compile(r"(.+?) has (\d+) % of (\S+)")
_PAUSE = re.compile(r"\+(\d+(?:\.\d+)?) s")


@dataclass(frozen=True)
class Trigger:
    """
    The moment of an injection.

    Attributes:
        text: As the case file says it.
        kind: `boot`: a machine runs; `state`: the state item is in a phase; `says`: a node's agent has logged a text;
            `formed`: the stack is complete; `has`: a node has brought a part of what jobs need; `commit`: a world of
            so many ranks has committed so often; `pause`: so long after the injection before.
        target: Which machine, where one is meant.
        phase: Phase of the state item.
        logged: Text in the agent's log.
        commits: Number of commits.
        ranks: Size of the world that made them.
        seconds: Length of the pause, in seconds.
        step: What is brought, `data:<name>` or `environment`.
        part: Which part of it, from 0 to 1.
    """

    text: str
    kind: Literal["boot", "state", "says", "formed", "has", "commit", "pause"]
    target: Target | None = None
    phase: str = ""
    logged: str = ""
    commits: int = 0
    ranks: int = 0
    seconds: float = 0.0
    step: str = ""
    part: float = 0.0


class Situation(Protocol):
    """What triggers ask of a rehearsal that runs."""

    def instance(self, target: Target) -> str | None:
        """Return the instance id of a machine that was booted; None before."""

    def phase(self) -> str:
        """Return the phase of the state item; empty without one."""

    def has_said(self, instance_id: str, text: str) -> bool:
        """Tell whether a node's agent has logged a text."""

    def provisioned(self, instance_id: str, step: str) -> float:
        """Return which part of a step of what jobs need a node has done, from 0 to 1."""

    def has_formed(self) -> bool:
        """Tell whether the stack is complete."""

    def commits(self, ranks: int) -> int:
        """Return how often a world of so many ranks has committed."""


def parse_trigger(text: str) -> Trigger | None:
    """Read the words of a case file; None when they are none of the known forms."""
    if text == "formed":
        return Trigger(text, "formed")
    if match := _COMMIT.fullmatch(text):
        return Trigger(text, "commit", commits=int(match[1]), ranks=int(match[2]))
    if match := _PAUSE.fullmatch(text):
        return Trigger(text, "pause", seconds=float(match[1]))
    if match := _STATE.fullmatch(text):
        return Trigger(text, "state", phase=match[1]) if match[1] in {phase.value for phase in Phase} else None
    return _parse_node_trigger(text)


def _parse_node_trigger(text: str) -> Trigger | None:
    if match := _BOOT.fullmatch(text):
        target = parse_target(match[1])
        return Trigger(text, "boot", target) if target else None
    if match := _HAS.fullmatch(text):
        target = parse_target(match[1])
        return Trigger(text, "has", target, step=match[3], part=int(match[2]) / 100) if target else None
    if match := _SAYS.fullmatch(text):
        target = parse_target(match[1])
        return Trigger(text, "says", target, logged=match[2]) if target else None
    return None


def is_due(trigger: Trigger, situation: Situation, waited: float) -> bool:
    """
    Tell whether the moment has come.

    Args:
        trigger: Which moment.
        situation: How the rehearsal stands.
        waited: Seconds since the injection before.
    """
    if trigger.kind == "pause":
        return waited >= trigger.seconds
    if trigger.kind == "formed":
        return situation.has_formed()
    if trigger.kind == "state":
        return situation.phase() == trigger.phase
    if trigger.kind == "commit":
        return situation.commits(trigger.ranks) >= trigger.commits
    return _is_node_due(trigger, situation)


def _is_node_due(trigger: Trigger, situation: Situation) -> bool:
    assert trigger.target is not None
    instance_id = situation.instance(trigger.target)
    if instance_id is None or trigger.kind == "boot":
        return instance_id is not None
    if trigger.kind == "has":
        return situation.provisioned(instance_id, trigger.step) >= trigger.part
    return situation.has_said(instance_id, trigger.logged)
