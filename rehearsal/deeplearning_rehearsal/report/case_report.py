"""The part of the report that is about a fault case; keys are added, never renamed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CaseReport:
    """
    The fault case that was rehearsed.

    Attributes:
        name: Its name.
        title: What it shows.
        faults: Rows of the fault catalogue.
        injections: What was injected: `at` in seconds since the beginning, `when`, `what`, `instance_id`, `problem`.
        findings: Each expectation: `expectation`, `held`, `found`.
        failure_seconds: From the cause to the stack's failure; None where it did not fail, or without a cause.
        recovery_seconds: From the fault to new progress of training, the longest; None when there was none to measure.
        lost_commits: The most commits that one fault cost; None when there was none to measure.
        problems: What does not hold.
    """

    name: str
    title: str
    faults: Sequence[int]
    injections: Sequence[Mapping[str, Any]]
    findings: Sequence[Mapping[str, Any]]
    failure_seconds: float | None
    recovery_seconds: float | None
    lost_commits: int | None
    problems: Sequence[str]
