"""
The report of a rehearsal: JSON for programs, text for a terminal.

Its schema is public; keys are added, never renamed. `requested` and `formed` count the master; contract values are the
strings that the nodes' shells print.
"""

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from deeplearning_rehearsal.report.case_report import CaseReport
from deeplearning_rehearsal.report.environment_report import EnvironmentReport, describe_environment
from deeplearning_rehearsal.report.launcher_report import (
    LauncherReport,
    describe_way,
)

_WIDTH = 110
_LABEL = 11


@dataclass(frozen=True)
class StackReport:
    """
    The stack as CloudFormation described it at the end.

    Resources are counted by type; overrides are what the rehearsal changed in the template, or assumed of the account.
    """

    name: str
    status: str
    reason: str
    resources: Mapping[str, int]
    outputs: Mapping[str, str]
    overrides: Mapping[str, str]


@dataclass(frozen=True)
class ClusterReport:
    """
    The cluster that formed.

    Attributes:
        requested: Nodes asked for, master included.
        formed: Nodes in the membership, master included; 0 when none formed.
        generation: Generation of the membership; 0 when none formed.
        formation_seconds: From the first instance's launch to the success signal; None when none formed.
        aws_calls: Calls that nodes and Lambda made until the cluster formed.
        aws_calls_by_name: The same by `service.Operation`.
        aws_calls_by_kind: The same by who called.
        aws_call_bound: The most calls that nodes may make for this size and time.
        reason: Why the cluster is smaller than asked for; else empty.
        log_calls: Of the calls, those by which nodes shipped their logs and events; `aws_call_bound` is without them.
        log_call_bound: The most of these for this size and time.
        log_lines: Instance id -> lines that it shipped.
        metrics: Metric -> values in those lines.
    """

    requested: int
    formed: int
    generation: int
    formation_seconds: float | None
    aws_calls: int
    aws_calls_by_name: Mapping[str, int]
    aws_calls_by_kind: Mapping[str, int]
    aws_call_bound: int | None
    reason: str
    log_calls: int = 0
    log_call_bound: int | None = None
    log_lines: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, int] = field(default_factory=dict)


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
class Report:
    """Everything that a rehearsal found out."""

    verdict: Literal["pass", "fail"]
    expected: str
    reasons: Sequence[str]
    stack: StackReport
    cluster: ClusterReport
    nodes: Sequence[NodeReport]
    training: TrainingReport | None
    phases: Sequence[Mapping[str, Any]]
    stand_ins: Sequence[Mapping[str, str]]
    peak_memory_mib: int
    timeline: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    case: CaseReport | None = None
    launchers: Mapping[str, LauncherReport] = field(default_factory=dict)
    environment: EnvironmentReport | None = None

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object."""
        return asdict(self)


def write_report(report: Report, folder: Path, page: str) -> None:
    """
    Write `report.json`, `report.txt` and `report.html`.

    Args:
        report: What was found out.
        folder: Where the files go; made when absent.
        page: The HTML page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report.to_document(), indent=2) + "\n")
    (folder / "report.txt").write_text(render_text(report) + "\n")
    (folder / "report.html").write_text(page)


def render_text(report: Report) -> str:
    """Render the report for a terminal, about as wide as one."""
    lines = [
        *_row("verdict", f"{report.verdict.upper()} (expected: {report.expected})"),
        *(line for reason in report.reasons for line in _row("", reason)),
        *(_render_case(report.case) if report.case else ()),
        *_row(
            "stack",
            f"{report.stack.name}  {report.stack.status}  {sum(report.stack.resources.values())} resources",
        ),
        *(_row("", report.stack.reason) if report.stack.reason else ()),
        *(line for what, value in report.stack.overrides.items() for line in _row("changed", f"{what}: {value}")),
        *_row("cluster", _describe_cluster(report.cluster)),
        *(_row("", report.cluster.reason) if report.cluster.reason else ()),
        *(line for node in report.nodes for line in _row("node", _describe_node(node))),
        *(_row("software", describe_environment(report.environment)) if report.environment else ()),
        *(_row("training", _describe_training(report.training)) if report.training else ()),
        *(line for name, tried in report.launchers.items() for line in _render_launcher(name, tried)),
        *_row("phases", "  ".join(f"{phase['name']} {phase['seconds']:.1f} s" for phase in report.phases)),
        *_row("memory", f"at most {report.peak_memory_mib} MiB for the whole lab"),
    ]
    if report.stand_ins:
        lines += _row("stand-ins", "what was not the real thing")
    for row in report.stand_ins:
        lines += _row("", f"{row['name']} for {row['replaces']}: {row['does']}", hanging="  ")
    return "\n".join(lines)


def summarize_checks(checks: Mapping[str, bool]) -> str:
    """Say how many checks of a node hold, and by name which do not."""
    failed = [name for name, held in checks.items() if not held]
    if not failed:
        return f"all {len(checks)} checks hold"
    return f"{len(failed)} of {len(checks)} checks FAILED: {', '.join(failed)}"


def _render_case(case: CaseReport) -> list[str]:
    lines = _row("case", f"{case.name}: {case.title}")
    for entry in case.injections:
        what = f"{entry['at']:.1f} s: {entry['what']} ({entry['when']}) {entry['instance_id']}".rstrip()
        lines += _row("injected", what + (f", but {entry['problem']}" if entry["problem"] else ""))
    for entry in case.findings:
        lines += _row("seen" if entry["held"] else "NOT SEEN", f"{entry['expectation']}: {entry['found']}")
    return lines


def _render_launcher(name: str, launcher: LauncherReport) -> list[str]:
    return [line for way in launcher.ways for line in _row("launcher", describe_way(name, way))]


def _row(label: str, text: str, hanging: str = "") -> list[str]:
    """Wrap a text behind a label; words are never broken, so that names and commands can be copied."""
    return textwrap.wrap(
        text or "-",
        _WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=" " * _LABEL + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _describe_cluster(cluster: ClusterReport) -> str:
    formed = "not formed" if cluster.formation_seconds is None else f"formed in {cluster.formation_seconds:.1f} s"
    bound = "" if cluster.aws_call_bound is None else f", bound {cluster.aws_call_bound}"
    calls, logs, function = cluster.aws_calls, cluster.log_calls, cluster.aws_calls_by_kind.get("lambda", 0)
    return (
        f"{cluster.formed} of {cluster.requested} nodes, generation {cluster.generation}, {formed}, "
        f"{calls} AWS calls (nodes {calls - function - logs}{bound}; logs {logs}; Lambda {function})"
    )


def _describe_node(node: NodeReport) -> str:
    return f"{node.host:<22} {node.role:<7} {node.address:<15} {summarize_checks(node.checks)}"


def _describe_training(training: TrainingReport) -> str:
    return (
        f"{training.launcher} with {training.framework}: {training.ranks} ranks on {len(set(training.hosts))} hosts, "
        f"{training.dataset}, held-out accuracy {training.accuracy:.3f}, {training.seconds:.1f} s"
    )
