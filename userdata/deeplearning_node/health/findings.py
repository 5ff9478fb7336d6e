"""Health of a node: findings, and the line of JSON in which they travel."""

import json
from dataclasses import asdict, dataclass, replace

from deeplearning_contract.document import ContractError, excerpt, parse_last_line, read_record

LONGEST_DETAIL = 300
"""Characters of a detail or a remedy; what programs print may be of any size."""
LONGEST_NAME = 40
MOST_FINDINGS = 50
LATEST = 1e11
"""Seconds since 1970 that no clock shows; JSON in Python also carries NaN and infinity."""
KIND = "health"


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    name: str  # What was looked at
    ok: bool  # Whether the node is fit, as far as this goes
    detail: str  # What was found, in one line
    remedy: str = ""  # What the user can do; empty when nothing is to be done

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"

    @classmethod
    def fit(cls, name: str, detail: str) -> "Finding":
        """Return a finding with which the node is fit."""
        return cls(name, ok=True, detail=clean(detail))

    @classmethod
    def fault(cls, name: str, detail: str, remedy: str) -> "Finding":
        """Return a finding with which the node is unfit."""
        return cls(name, ok=False, detail=clean(detail), remedy=remedy)


@dataclass(frozen=True)
class HealthReport:
    """Findings of one node."""

    instance_id: str  # The node
    at: float  # Its wall clock, in seconds since 1970
    generation: int  # Of the membership that it has installed; 0 for none
    findings: tuple[Finding, ...]  # What it looked at

    @property
    def is_healthy(self) -> bool:
        """Whether the node is fit in every respect."""
        return all(finding.ok for finding in self.findings)

    def to_line(self) -> str:
        """Return one line of JSON that `from_output` finds among others."""
        return json.dumps({"kind": KIND, **asdict(self)})

    @classmethod
    def from_output(cls, output: str) -> "HealthReport":
        """Find the report in a remote shell's output, in which start-up files may print; ContractError without one."""
        document = parse_last_line(output, "a health report")
        if document.get("kind") != KIND:
            raise ContractError("health.kind must be health")
        found = read_record(cls, document, "health")
        if not 0 <= found.at < LATEST:
            raise ContractError(f"health.at must be seconds since 1970, got {excerpt(found.at)}")
        findings = tuple(
            Finding(clean(each.name, LONGEST_NAME), each.ok, clean(each.detail), clean(each.remedy))
            for each in found.findings[:MOST_FINDINGS]
        )
        return replace(found, instance_id=clean(found.instance_id, LONGEST_NAME), findings=findings)


def clean(text: str, longest: int = LONGEST_DETAIL) -> str:
    """Return a text in one line without control characters: it is shown on terminals and may come from anywhere."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def last_line(output: str) -> str:
    """Return the last line of a program's output that says something."""
    lines = [line for line in output.splitlines() if line.strip()]
    return clean(lines[-1]) if lines else ""
