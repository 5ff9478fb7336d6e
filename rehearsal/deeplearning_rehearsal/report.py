"""
The report of a rehearsal: JSON for programs, text for a terminal.

Its schema is public; keys are added, never renamed. `requested` and `formed` count the master; contract values are the
strings that the nodes' shells print.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class StackReport:
    """The stack as CloudFormation described it at the end; resources are counted by type."""

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
        aws_call_bound: The most calls that the design allows for this size and time.
        reason: Why the cluster is smaller than asked for; else empty.
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
    cluster, training = report.cluster, report.training
    lines = [
        f"verdict    {report.verdict.upper()} (expected: {report.expected})",
        *(f"           {reason}" for reason in report.reasons),
        f"stack      {report.stack.name}  {report.stack.status}  {sum(report.stack.resources.values())} resources",
    ]
    if report.stack.reason:
        lines.append(f"           {report.stack.reason}")
    lines.append(
        f"cluster    {cluster.formed} of {cluster.requested} nodes, generation {cluster.generation}, "
        + (
            f"formed in {cluster.formation_seconds:.1f} s, "
            if cluster.formation_seconds is not None
            else "not formed, "
        )
        + f"{cluster.aws_calls} AWS calls"
        + (f" (bound {cluster.aws_call_bound})" if cluster.aws_call_bound is not None else "")
    )
    if cluster.reason:
        lines.append(f"           {cluster.reason}")
    for node in report.nodes:
        marks = ", ".join(name if held else f"{name} FAILED" for name, held in node.checks.items())
        lines.append(f"node       {node.host:<22} {node.role:<7} {node.address:<15} {marks}")
    if training:
        lines.append(
            f"training   {training.launcher} with {training.framework}: {training.ranks} ranks "
            f"on {len(set(training.hosts))} hosts, "
            f"{training.dataset}, held-out accuracy {training.accuracy:.3f}, {training.seconds:.1f} s"
        )
    lines.append("phases     " + "  ".join(f"{phase['name']} {phase['seconds']:.1f} s" for phase in report.phases))
    lines.append(f"memory     at most {report.peak_memory_mib} MiB for the whole lab")
    lines.append("stand-ins  " + "; ".join(f"{row['name']} ({row['does']})" for row in report.stand_ins))
    return "\n".join(lines)
