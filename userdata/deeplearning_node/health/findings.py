"""What a node says of its own health: findings, and the line of JSON in which they travel."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.document import ContractError, excerpt, field, object_list, parse_object

LONGEST_DETAIL = 300
"""Characters of a detail or a remedy; what programs print may be of any size."""
LONGEST_NAME = 40
MOST_FINDINGS = 50
LATEST = 1e11
"""Seconds since 1970 that no clock shows; JSON in Python also carries NaN and infinity."""
KIND = "health"


@dataclass(frozen=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        name: What was looked at.
        is_ok: Whether the node is fit, as far as this goes.
        detail: What was found, in one line.
        remedy: What the user can do; empty when nothing is to be done.
    """

    name: str
    is_ok: bool
    detail: str
    remedy: str = ""

    @classmethod
    def fit(cls, name: str, detail: str) -> "Finding":
        """Return a finding with which the node is fit."""
        return cls(name, is_ok=True, detail=clean(detail))

    @classmethod
    def fault(cls, name: str, detail: str, remedy: str) -> "Finding":
        """Return a finding with which the node is unfit."""
        return cls(name, is_ok=False, detail=clean(detail), remedy=remedy)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Finding":
        """
        Read a finding from its JSON object.

        Raises:
            ContractError: A field is absent or malformed.
        """
        return cls(
            clean(field(document, "name", str, "finding"), LONGEST_NAME),
            field(document, "ok", bool, "finding"),
            clean(field(document, "detail", str, "finding")),
            clean(field(document, "remedy", str, "finding")),
        )

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `from_document` reads."""
        return {"name": self.name, "ok": self.is_ok, "detail": self.detail, "remedy": self.remedy}


@dataclass(frozen=True)
class HealthReport:
    """
    All that one node found.

    Attributes:
        instance_id: The node.
        at: Its wall clock, in seconds since 1970.
        generation: Of the membership that it has installed; 0 for none.
        findings: What it looked at.
    """

    instance_id: str
    at: float
    generation: int
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether the node is fit in every respect."""
        return all(finding.is_ok for finding in self.findings)

    def to_line(self) -> str:
        """Return one line of JSON that `from_output` finds again among others."""
        findings = [finding.to_document() for finding in self.findings]
        return json.dumps(
            {
                "kind": KIND,
                "instance_id": self.instance_id,
                "at": self.at,
                "generation": self.generation,
                "findings": findings,
            }
        )

    @classmethod
    def from_output(cls, output: str) -> "HealthReport":
        """
        Read the report from what a remote shell printed: start-up files of the login user may print as well.

        Raises:
            ContractError: There is no report in it, or it is malformed.
        """
        lines = [line for line in output.splitlines() if line.startswith("{")]
        if not lines:
            raise ContractError(f"the answer must hold a health report, got {last_line(output) or 'nothing'}")
        document = parse_object(lines[-1], "health report")
        if document.get("kind") != KIND:
            raise ContractError("the answer must be of kind health")
        at = document.get("at")
        if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < LATEST:
            raise ContractError(f"health.at must be seconds since 1970, got {excerpt(at)}")
        findings = object_list(document, "findings", "health")[:MOST_FINDINGS]
        return cls(
            instance_id=clean(field(document, "instance_id", str, "health"), LONGEST_NAME),
            at=at,
            generation=field(document, "generation", int, "health"),
            findings=tuple(map(Finding.from_document, findings)),
        )


def clean(text: str, longest: int = LONGEST_DETAIL) -> str:
    """Return a text in one line without control characters: it is shown on terminals and may come from anywhere."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def last_line(output: str) -> str:
    """Return the last line of a program's output that says something."""
    lines = [line for line in output.splitlines() if line.strip()]
    return clean(lines[-1]) if lines else ""
