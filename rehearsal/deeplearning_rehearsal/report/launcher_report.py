"""The part of the report that is about launchers, and its text; keys are added, never renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class WayReport:
    """
    One way in which a launcher was started.

    Attributes:
        kind: `run` for `deeplearning run`, `seed` for the predecessors' own command, `look` for one that looks at what
            a job left.
        command: What was run.
        status: Its exit status; None where it was given up.
        seconds: From its start to its end.
        result: The job's own result; empty without one.
        problems: What is not as promised.
    """

    kind: str
    command: str
    status: int | None
    seconds: float
    result: Mapping[str, Any]
    problems: Sequence[str]


@dataclass(frozen=True)
class LauncherReport:
    """A launcher: the ways in which it was started, and whether each trained as promised."""

    ways: Sequence[WayReport]
    held: bool


def describe_way(name: str, way: WayReport) -> str:
    """Say in a line how a launcher did one way."""
    figures = way.result
    if way.problems:
        return f"{name} ({way.kind}) FAILED after {way.seconds:.1f} s: {'; '.join(way.problems)}"
    if way.kind == "look":
        return f"{name} ({way.kind}): as promised, {way.seconds:.1f} s: {way.command}"
    return (
        f"{name} ({way.kind}): {figures['framework']}, {figures['ranks']} ranks on {len(set(figures['hosts']))} hosts, "
        f"held-out accuracy {figures['accuracy']:.3f}, {way.seconds:.1f} s"
    )
