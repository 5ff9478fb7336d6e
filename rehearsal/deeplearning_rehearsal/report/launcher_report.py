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


@dataclass(frozen=True)
class EfficiencyReport:
    """
    What `deeplearning run` costs, against bare horovodrun in the same run.

    Attributes:
        job: What was trained.
        pairs: Each with `order` (which way was first), `run_throughput` and `bare_throughput` (samples a second),
            `run_seconds` and `bare_seconds` (the whole command), `run_cpu_seconds` and `bare_cpu_seconds` (the ranks'
            while they trained), `efficiency`, `cpu_efficiency` and `wall_ratio`.
        median: Median efficiency of the pairs.
        cpu_median: Median efficiency by CPU time, which a shared machine disturbs less.
        goal: Where it is meant to be at least.
        held: Whether it is; that it is not turns no verdict, because a shared machine measures poorly.
    """

    job: str
    pairs: Sequence[Mapping[str, Any]]
    median: float
    cpu_median: float
    goal: float
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


def describe_efficiency(efficiency: EfficiencyReport) -> str:
    """Say in a line what `deeplearning run` costs."""
    each = ", ".join(f"{pair['efficiency']:.3f}" for pair in efficiency.pairs)
    by_cpu = ", ".join(f"{pair['cpu_efficiency']:.3f}" for pair in efficiency.pairs)
    relation = "at least" if efficiency.held else "NOT at least"
    return (
        f"{efficiency.job} through `deeplearning run` against bare horovodrun: median {efficiency.median:.3f} "
        f"({relation} {efficiency.goal:.2f}) of {len(efficiency.pairs)} pairs: {each}; "
        f"by CPU time of the ranks median {efficiency.cpu_median:.3f}: {by_cpu}"
    )
