"""The report of a rehearsal of any stack: a verdict, and sections of rows that text and JSON both show."""

import textwrap
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

_LABEL = 11
_WIDTH = 110


@dataclass(frozen=True)
class StackReport:
    """
    The end of the stack.

    Attributes:
        name: Its name.
        status: Its status, as CloudFormation has it.
        reason: Reason of the first failure; empty without one.
        outputs: Its outputs.
    """

    name: str
    status: str
    reason: str
    outputs: dict[str, str]


@dataclass(frozen=True)
class Section:
    """A part of the report: a title and its rows, each a text; empty rows are not shown."""

    title: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """
    The findings of a rehearsal.

    Attributes:
        verdict: `pass` where everything was as expected.
        expected: What was expected of the stack.
        stack: The end of the stack.
        problems: Differences from what was expected; empty with the verdict `pass`.
        sections: The rest, in the order in which it is shown.
    """

    verdict: Literal["pass", "fail"]
    expected: str
    stack: StackReport
    problems: tuple[str, ...]
    sections: tuple[Section, ...]

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON values, which `from_document` reads."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Report":
        """Read what `to_document` returned."""
        return cls(
            verdict=document["verdict"],
            expected=document["expected"],
            stack=StackReport(**document["stack"]),
            problems=tuple(document["problems"]),
            sections=tuple(Section(entry["title"], tuple(entry["rows"])) for entry in document["sections"]),
        )

    def to_text(self) -> str:
        """Return the report as lines for a terminal."""
        return render_text(
            (
                Section("verdict", (f"{self.verdict.upper()} (expected: {self.expected})", *self.problems)),
                Section("stack", (f"{self.stack.name}  {self.stack.status}", self.stack.reason)),
                *self.sections,
            )
        )


def render_text(sections: Iterable[Section]) -> str:
    """Render sections for a terminal, about as wide as one; words stay whole, so that names can be copied."""
    lines = []
    for section in sections:
        label = section.title
        for row in filter(None, section.rows):
            lines += textwrap.wrap(
                row,
                _WIDTH,
                initial_indent=f"{label:<{_LABEL}}",
                subsequent_indent=" " * (_LABEL + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
            label = ""
    return "\n".join(lines)
