"""The page about faults: the catalogue with its trials."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

from docs.fault_trials import Trial

CATALOGUE = Path("docs/fault_catalogue.toml")
TABLE = Path("docs/faults.md")
_PREFIXES = {"test": "", "case": "rehearsal: ", "injector": "injector: "}

_HEAD = """\
# Faults and their trials

Everything that is known to go wrong in a cluster, the expected behaviour, and the tests and rehearsal cases that inject
it. A trial with the prefix "injector" only proves that the fault can be injected, and does not count.
`make docs` writes this page from `docs/fault_catalogue.toml`, the marks of the tests and the cases.

"""


@dataclass(frozen=True)
class Row:
    """
    Row of the catalogue.

    Attributes:
        key: Number of a fault, id of a defect.
        text: Fault or defect.
        expected: Expected behaviour of the cluster; empty for a defect.
        exemption: Reason for which no trial is needed; else empty.
        lacks: Missing behaviour; else empty.
    """

    key: int | str
    text: str
    expected: str = ""
    exemption: str = ""
    lacks: str = ""

    def is_named_by(self, trial: Trial) -> bool:
        """Return whether a test or case names this row."""
        return self.key in trial.faults or self.key in trial.defects


def read_catalogue(root: Path) -> list[Row]:
    """Return the catalogue's faults, then its defects."""
    document = tomllib.loads((root / CATALOGUE).read_text())
    faults = [Row(e["row"], e["fault"], e["expected"], _exempt(e), e.get("lacks", "")) for e in document["fault"]]
    return faults + [Row(e["id"], e["defect"], exemption=_exempt(e)) for e in document["defect"]]


def _exempt(entry: Mapping[str, str]) -> str:
    if "cannot_occur" in entry:
        return f"cannot occur: {entry['cannot_occur']}"
    return f"later: {entry['later']}" if "later" in entry else ""


def find_mistakes(rows: Sequence[Row], trials: Sequence[Trial]) -> list[str]:
    """Return the mismatches between catalogue and trials, one line each."""
    known = {row.key for row in rows}
    mistakes = [
        f"{trial.path}: {trial.title!r} tries {key}, which the catalogue does not have"
        for trial in trials
        for key in sorted((trial.faults | trial.defects) - known, key=str)
    ]
    for row in rows:
        is_tried = any(_counts(row, trial) for trial in trials)
        if not is_tried and not row.exemption:
            mistakes.append(f"{row.key} ({row.text}) has no test, no case and no reason")
        if is_tried and row.exemption:
            mistakes.append(f"{row.key} ({row.text}) is tried, and yet {row.exemption}")
    return mistakes


def summarize(rows: Sequence[Row], trials: Sequence[Trial]) -> str:
    """Return the summary of the table in one line."""
    faults = [row for row in rows if isinstance(row.key, int)]
    kinds = [{trial.kind for trial in trials if row.is_named_by(trial)} for row in faults]
    tested, rehearsed = (sum(kind in found for found in kinds) for kind in ("test", "case"))
    exempt = sum(bool(row.exemption) for row in faults)
    bare = [
        str(row.key) for row, found in zip(faults, kinds, strict=True) if not row.exemption and found <= {"injector"}
    ]
    text = f"faults: {len(faults)} rows, {tested} with tests, {rehearsed} with cases, {exempt} cannot occur"
    return text + (f", nothing tries {', '.join(bare)}" if bare else "")


def render_table(rows: Sequence[Row], trials: Sequence[Trial]) -> str:
    """Return the page of the catalogue."""
    faults = [
        f"| {row.key} | {row.text} | {_expect(row)} | {_name_trials(row, trials)} |"
        for row in rows
        if isinstance(row.key, int)
    ]
    defects = [f"| {row.key} | {row.text} | {_name_trials(row, trials)} |" for row in rows if isinstance(row.key, str)]
    parts = [
        f"{_HEAD}{summarize(rows, trials)}\n",
        "## Faults\n",
        "| row | fault | expected | tried by |\n|---|---|---|---|",
        *faults,
        "\n## Defects of the predecessor\n",
        "| row | defect | tried by |\n|---|---|---|",
        *defects,
        "\n## Cases of the rehearsal\n",
        "| `CASE=` | what it shows | rows |\n|---|---|---|",
        *(_describe_case(trial) for trial in trials if trial.kind == "case"),
    ]
    return "\n".join(parts) + "\n"


def _describe_case(case: Trial) -> str:
    rows = ", ".join(map(str, sorted(case.faults, key=str))) or "-"
    return f"| [{case.key}](../{case.path}) | {_escape(case.title)} | {rows} |"


def _expect(row: Row) -> str:
    return f"{row.expected}; **not yet: {row.lacks}**" if row.lacks else row.expected


def _name_trials(row: Row, trials: Sequence[Trial]) -> str:
    named = [trial for trial in trials if row.is_named_by(trial)]
    links = [f"{_PREFIXES[trial.kind]}[{_escape(trial.title)}](../{trial.path})" for trial in named]
    bare = [] if any(_counts(row, trial) for trial in named) else [row.exemption or "nothing yet"]
    return "<br>".join(bare + links)


def _escape(text: str) -> str:
    """Escape what Markdown would read as markup, except in code."""
    return re.sub(r"(`[^`]*`)|([\[\]|*_<>`\\])", lambda found: found[1] or "\\" + found[2], text)


def _counts(row: Row, trial: Trial) -> bool:
    return row.is_named_by(trial) and trial.kind != "injector"
