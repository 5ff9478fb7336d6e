"""What a launcher is tried with, and what must come of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from deeplearning_rehearsal.checks.training import MINIMUM_ACCURACY, find_missing_figures


@dataclass(frozen=True)
class Way:
    """
    One way to start a job.

    Attributes:
        kind: `run`: through `deeplearning run`; `seed`: with the command of the predecessors' own instructions;
            `look`: no job, but a look at what one left, which must end with 0.
        command: For bash, in the folder of the examples on the shared file system, in a login shell on the master.
    """

    kind: Literal["run", "seed", "look"]
    command: str


@dataclass(frozen=True)
class Trial:
    """
    A launcher with the ways to start it.

    Attributes:
        launcher: Its name, as `deeplearning run --launcher` takes it.
        ways: Through `deeplearning run`, and the predecessors' where they had one.
    """

    launcher: str
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Attempt:
    """
    What came of one way.

    Attributes:
        way: Which way.
        status: Exit status; None where the job was given up.
        result: The job's own result; empty without one.
        seconds: Until the command ended.
        last_lines: The last lines of what it wrote, for a reader who wants the cause.
    """

    way: Way
    status: int | None
    result: Mapping[str, Any]
    seconds: float
    last_lines: str


def judge_attempt(attempt: Attempt, hosts: int, ranks: int) -> tuple[str, ...]:
    """
    Say what is not as promised about one way.

    Args:
        attempt: What came of it.
        hosts: Nodes that must have taken part.
        ranks: Ranks that must have.
    """
    if attempt.status != 0:
        ended = "was given up" if attempt.status is None else f"ended with status {attempt.status}"
        return (f"it {ended}: {attempt.last_lines}",)
    if attempt.way.kind == "look":
        return ()
    result = attempt.result
    if missing := find_missing_figures(result):
        return (f"its result must have {', '.join(missing)}, it wrote: {attempt.last_lines}",)
    problems = []
    if result["accuracy"] < MINIMUM_ACCURACY:
        problems.append(f"held-out accuracy must be at least {MINIMUM_ACCURACY}, got {result['accuracy']}")
    if result["ranks"] != ranks:
        problems.append(f"it must have {ranks} ranks, got {result['ranks']}")
    if len(set(result["hosts"])) != hosts:
        problems.append(f"it must run on {hosts} hosts, got {sorted(set(result['hosts']))}")
    return tuple(problems)
