"""
`python -m tests.bench`, which `make bench` does: measures the figures that the project stands for.

Writes `build/bench.json` and the table of docs/figures.md. Ends with 1 when a figure is not within its bound.
"""

import datetime as dt
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from docs.generate import fill
from tests.bench.clusters import measure_formation, measure_recovery, measure_rounds
from tests.bench.figure import Figure, render_table
from tests.bench.launching import measure_launching
from tests.bench.synthesis import measure_synthesis
from tests.conftest import PINNED_ENVIRONMENT

OUT = Path("build/bench")
DOCUMENT = Path("build/bench.json")
PAGE = Path("docs/figures.md")


def main() -> int:
    """Measure, write, and print the table."""
    begun, load = time.monotonic(), os.getloadavg()
    os.environ.update(PINNED_ENVIRONMENT)
    # It ends the cluster that is kept, and a shell lets commands in the background ignore it, and their children too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def report(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    measures = (
        lambda: measure_synthesis(report),
        lambda: measure_formation(report),
        lambda: measure_launching(report, OUT / "launching"),
        lambda: measure_recovery(report, OUT / "cases"),
        lambda: measure_rounds(report, OUT / "rounds"),
    )
    figures: list[Figure] = []
    for measure in measures:
        figures += measure()
        table = write(figures, load[0])  # Hours are not lost to a case that fails at last.
    print(table)
    return int(not all(figure.holds for figure in figures))


def write(figures: Sequence[Figure], load: float) -> str:
    """Write the document and the page with the figures so far; return the table."""
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    machine = f"{os.cpu_count()} cores, load average {load:.1f} before"
    content = {"day": day, "machine": machine, "figures": [asdict(figure) for figure in figures]}
    DOCUMENT.write_text(json.dumps(content, indent=2) + "\n")
    table = f"Measured on {day} on a machine with {machine}.\n\n{render_table(figures)}"
    PAGE.write_text(fill(PAGE.read_text(), "figures", table))
    return table


if __name__ == "__main__":
    sys.exit(main())
