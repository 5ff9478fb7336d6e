"""
`python -m tests.horovod_builds`: builds Horovod with each compiler and framework, and tries it.

Exit status: 0 when every build that this machine can carry out is as expected, 1 when one is not, 2 when none could be
tried.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.enclosure import require_namespaces
from cdk_rehearsal.run.progress import report_line
from tests.horovod_builds.build_rows import ROWS, BuildOutcome, BuildRow, judge_outcome
from tests.horovod_builds.row_trial import try_row

_DIFFERENT, _UNAVAILABLE = 1, 2


def main(words: Sequence[str] | None = None) -> int:
    """Carry out the command line, and return the exit status."""
    arguments = _parse(words)
    try:
        require_namespaces()
        cache = (arguments.cache or find_cache()).resolve()
        out = arguments.out.resolve()
        out.mkdir(parents=True, exist_ok=True)
        rows = [row for row in ROWS if not arguments.only or row.name in arguments.only]
        outcomes = {}
        for row in rows:
            outcomes[row] = try_row(row, cache, out, report_line)
            keep_outcome(row, outcomes[row], out)
    except RehearsalError as error:
        report_line(f"horovod-builds: {error}")
        return _UNAVAILABLE
    sys.stdout.write(render_table(outcomes))
    return choose_status(outcomes)


def keep_outcome(row: BuildRow, outcome: BuildOutcome, out: Path) -> None:
    """Write what came of a row beside its log, so that an end before the last row loses nothing."""
    document = {"row": asdict(row), "outcome": asdict(outcome), "result": _describe(row, outcome)}
    (out / f"{row.name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def choose_status(outcomes: Mapping[BuildRow, BuildOutcome]) -> int:
    """Return the exit status: what this machine cannot have counts only when nothing else was tried."""
    tried = {row: outcome for row, outcome in outcomes.items() if not outcome.is_unavailable}
    if not tried:
        return _UNAVAILABLE
    return _DIFFERENT if any(judge_outcome(row, outcome) for row, outcome in tried.items()) else 0


def render_table(outcomes: Mapping[BuildRow, BuildOutcome]) -> str:
    """Return a line for each build: what was built with what, CPU seconds, size, and whether that was expected."""
    lines = [("build", "framework", "compilers", "CUDA", "C++", "CPU s", "wheel MB", "result")]
    for row, outcome in outcomes.items():
        facts = outcome.facts
        compilers = " ".join(f"{name} {version}" for name, version in facts.get("compilers", {}).items())
        size = f"{facts['bytes'] / 1e6:.1f}" if "bytes" in facts else ""
        shown = (facts.get("framework", ""), compilers, facts.get("toolkit", ""), facts.get("standard", ""))
        lines.append((row.name, *shown, f"{outcome.seconds:.0f}" if facts else "", size, _describe(row, outcome)))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines)


def _describe(row: BuildRow, outcome: BuildOutcome) -> str:
    difference = judge_outcome(row, outcome)
    return f"not available here: {difference}" if outcome.is_unavailable else difference or "as expected"


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.horovod_builds", description=__doc__)
    names = [row.name for row in ROWS]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--cache", type=Path, help="keeps roots and downloads; default: the user's cache folder")
    parser.add_argument("--out", type=Path, default=Path("build/horovod-builds"), help="where logs and results go")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
