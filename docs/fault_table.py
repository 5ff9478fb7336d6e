"""
Pages about faults: the catalogue with its trials, and the last recorded results.

Results come from `build/faults`, in which tests record themselves, and from `build/rehearsal/cases.json`. A trial
without a record is "not run".
"""

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

from docs.fault_trials import Trial

CATALOGUE = Path("docs/fault_catalogue.toml")
TABLE = Path("docs/faults.md")
RESULTS = Path("docs/results.md")
RECORDS = Path("build/faults")
CASE_RESULTS = Path("build/rehearsal/cases.json")
_NOT_RUN = "not run"
_PREFIXES = {"test": "", "case": "rehearsal: ", "injector": "injector: "}

_HEAD = """\
# Faults and their trials

Everything that is known to go wrong in a cluster, the expected behaviour, and the tests and rehearsal cases that inject
it. A trial with the prefix "injector" only proves that the fault can be injected, and does not count.
[Results](results.md) has their last outcomes. `make docs` writes this page from `docs/fault_catalogue.toml`, the marks
of the tests and the cases.

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


def read_outcomes(root: Path) -> dict[str, str]:
    """Return the last recorded result of each test and case: `passed`, `failed` or `skipped`."""
    outcomes: dict[str, str] = {}
    for path in sorted((root / RECORDS).glob("*.json")):
        outcomes |= json.loads(path.read_text())
    if (root / CASE_RESULTS).exists():
        for name, result in json.loads((root / CASE_RESULTS).read_text()).items():
            outcomes[name] = "passed" if result["verdict"].upper() == "PASS" else "failed"
    return outcomes


def date_outcomes(root: Path) -> str:
    """Return the days on which the results of tests and of cases were recorded last."""
    records = [[*(root / RECORDS).glob("*.json")], [root / CASE_RESULTS]]
    times = [[path.stat().st_mtime for path in paths if path.exists()] for paths in records]
    tests, cases = (time.strftime("%Y-%m-%d", time.gmtime(max(found))) if found else "never" for found in times)
    return f"{tests} by `make test`, {cases} by `make rehearse CASE=all`"


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


def render_results(trials: Sequence[Trial], outcomes: Mapping[str, str], recorded: str) -> str:
    """Return the page of results; `recorded` has the days of the records."""
    ends = {kind: Counter(outcomes.get(t.key, _NOT_RUN) for t in trials if t.kind == kind) for kind in _PREFIXES}
    bad = [trial for trial in trials if trial.kind != "case" and outcomes.get(trial.key, "passed") != "passed"]
    counts = [f"| {kind} | {', '.join(f'{n} {end}' for end, n in sorted(ends[kind].items()))} |" for kind in _PREFIXES]
    return "\n".join(
        [
            "# Results\n",
            "Last outcomes of the trials of [faults](faults.md).\n",
            f"Recorded {recorded}; `make docs` writes this page.\n",
            "| kind of trial | results |\n|---|---|",
            *counts,
            *[f"\n`{trial.key}`: {outcomes[trial.key]}" for trial in bad],
            "\n| case | result |\n|---|---|",
            *(f"| {trial.key} | {outcomes.get(trial.key, _NOT_RUN)} |" for trial in trials if trial.kind == "case"),
            "",
        ]
    )


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
