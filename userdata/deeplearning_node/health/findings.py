"""Findings of a node's health check, and their line of JSON."""

import json
from dataclasses import asdict, dataclass, replace

from deeplearning_contract.document import ContractError, excerpt, parse_last_line, read_record

LONGEST_DETAIL = 300
"""Most characters of a detail or a remedy; the output of programs may be of any size."""
LONGEST_NAME = 40
MOST_FINDINGS = 50
LATEST = 1e11
"""Seconds since 1970, beyond any real clock; Python's JSON also accepts NaN and infinity."""
KIND = "health"


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    name: str  # Name of the check
    ok: bool  # Whether the node passed
    detail: str  # Result in one line
    remedy: str = ""  # Action for the user; empty for none

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"

    @classmethod
    def fit(cls, name: str, detail: str) -> "Finding":
        """Return a finding that the node passed."""
        return cls(name, ok=True, detail=clean(detail))

    @classmethod
    def fault(cls, name: str, detail: str, remedy: str) -> "Finding":
        """Return a finding that the node failed."""
        return cls(name, ok=False, detail=clean(detail), remedy=remedy)


@dataclass(frozen=True)
class HealthReport:
    """Report of one node with its findings."""

    instance_id: str  # The node
    at: float  # Its wall clock, in seconds since 1970
    generation: int  # Installed generation; 0 for none
    findings: tuple[Finding, ...]  # Results of its checks

    @property
    def is_healthy(self) -> bool:
        """True if the node passed every check."""
        return all(finding.ok for finding in self.findings)

    def to_line(self) -> str:
        """Return one line of JSON for `from_output`."""
        return json.dumps({"kind": KIND, **asdict(self)})

    @classmethod
    def from_output(cls, output: str) -> "HealthReport":
        """Find the report in a remote shell's output, which may contain other lines; ContractError without one."""
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
    """Return a text in one line without control characters: it comes from any source and is shown on terminals."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def last_line(output: str) -> str:
    """Return the last line of a program's output with a letter or digit; banners end with a frame of dashes."""
    lines = [line for line in output.splitlines() if any(map(str.isalnum, line))]
    return clean(lines[-1]) if lines else ""
