"""The parts of the report that others fill in; its schema is public: keys are added, never renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeReport:
    """One node, with the contract as its own shells see it."""

    host: str
    role: str
    instance_id: str
    address: str
    contract: Mapping[str, str]
    checks: Mapping[str, bool]


@dataclass(frozen=True)
class TrainingReport:
    """The training job's own result, and how it was launched."""

    launcher: str
    framework: str
    ranks: int
    hosts: Sequence[str]
    dataset: str
    accuracy: float
    seconds: float


@dataclass(frozen=True)
class CountReport:
    """The result of the job that counts its ranks: their number, and the host name of each."""

    ranks: int
    hosts: Sequence[str]


@dataclass(frozen=True)
class CaseReport:
    """
    The fault case that was rehearsed.

    Attributes:
        name: Its name.
        title: What it shows.
        faults: Rows of the fault catalogue.
        injections: What was injected: `at` in seconds since the beginning, `when`, `what`, `instance_id`,
            `recovery_seconds` as below and `regained_seconds` until all ranks trained again, for this one.
        findings: Each expectation: `expectation`, `held`, `found`.
        failure_seconds: From the cause to the stack's failure; None where it did not fail, or without a cause.
        recovery_seconds: From the fault to new progress of training, the longest; None when there was none to measure.
        lost_commits: The most commits that one fault cost; None when there was none to measure.
        problems: What does not hold.
        progress: What the elastic job told: `at` in seconds since the beginning, `event`, `batch`, `size` in ranks.
    """

    name: str
    title: str
    faults: Sequence[int]
    injections: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    failure_seconds: float | None
    recovery_seconds: float | None
    lost_commits: float | None
    problems: Sequence[str]
    progress: Sequence[Mapping[str, Any]] = ()


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
