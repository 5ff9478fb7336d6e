"""The report of a rehearsal of any stack: a verdict, and sections of rows that text and JSON both show."""

import shlex
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

STAND_IN = "stand-in"
"""Title of the section with a row for each stand-in."""
_VERDICT = ("verdict", "stack", "cluster", "training")
_LABEL = 11
_WIDTH = 110


@dataclass(frozen=True)
class StackReport:
    """
    The end of a stack.

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
        expected: What was expected of the last stack.
        stacks: The ends of the stacks, in the order of their deployment; after one that failed there is none.
        problems: Differences from what was expected; empty with the verdict `pass`.
        sections: The rest, in the order in which it is shown.
    """

    verdict: Literal["pass", "fail"]
    expected: str
    stacks: tuple[StackReport, ...]
    problems: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def stack(self) -> StackReport:
        """The end of the last stack."""
        return self.stacks[-1]

    def to_document(self) -> dict[str, Any]:
        """Return the report as JSON values, which `from_document` reads."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Report":
        """Read what `to_document` returned."""
        return cls(
            verdict=document["verdict"],
            expected=document["expected"],
            stacks=tuple(StackReport(**entry) for entry in document["stacks"]),
            problems=tuple(document["problems"]),
            sections=tuple(Section(entry["title"], tuple(entry["rows"])) for entry in document["sections"]),
        )

    def to_text(self) -> str:
        """Return the report as lines, all of it and the verdict first, as in report.txt."""
        return render_text(self._list_sections())

    def to_ending(self, report: str, following: str) -> str:
        """
        Return the report as the last lines on a terminal.

        Args:
            report: Where the report is.
            following: What to do next.
        """
        return render_text(list_ending(self._list_sections(), report, following))

    def _list_sections(self) -> tuple[Section, ...]:
        return (
            Section("verdict", (f"{self.verdict.upper()} (expected: {self.expected})", *self.problems)),
            Section(
                "stack", tuple(row for each in self.stacks for row in (f"{each.name}  {each.status}", each.reason))
            ),
            *self.sections,
        )


def list_ending(sections: Sequence[Section], report: str, following: str) -> tuple[Section, ...]:
    """
    Return sections for the end of a terminal's output: stand-ins as their number, and the verdict last.

    Args:
        sections: All of the report.
        report: Where the report is.
        following: What to do next; empty for nothing.
    """
    return (
        *(each for each in sections if each.title not in (*_VERDICT, STAND_IN)),
        *(
            Section(STAND_IN, (f"{len(each.rows)} parts are not the real thing; the report lists each",))
            for each in sections
            if each.title == STAND_IN and each.rows
        ),
        *(each for each in sections if each.title in _VERDICT),
        Section("report", (report,)),
        Section("next", (following,)),
    )


def name_path(path: Path) -> str:
    """Return a path as people write it: relative to the working directory where it is below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def name_following(assembly: Path, patterns: Sequence[str], *, has_passed: bool, seed: int) -> str:
    """Return what to do after a rehearsal of stacks that are to be created: deploy them, or find the cause."""
    if has_passed:
        return shlex.join(["npx", "cdk", "deploy", "--app", name_path(assembly), *patterns])
    return f"--seed {seed} repeats this order of creation; the report has what every machine wrote"


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
