"""
`python -m tests.bench`, which `make bench` does: measures the figures that the project stands for.

Writes `build/bench.json` and the table of docs/figures.md. Ends with 1 when a figure is not within its bound.
"""

import datetime as dt
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from docs.generate import fill
from tests.bench.clusters import measure_formation, measure_recovery, measure_rounds
from tests.bench.figure import render_table
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

    def report(text: str) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)

    figures = [
        *measure_synthesis(report),
        *measure_formation(report),
        *measure_launching(report, OUT / "launching"),
        *measure_recovery(report, OUT / "cases"),
        *measure_rounds(report, OUT / "rounds"),
    ]
    day = dt.datetime.now(tz=dt.UTC).date().isoformat()
    machine = f"{os.cpu_count()} cores, load average {load[0]:.1f} before"
    DOCUMENT.write_text(
        json.dumps({"day": day, "machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=2) + "\n"
    )
    table = f"Measured on {day} on a machine with {machine}.\n\n{render_table(figures)}"
    PAGE.write_text(fill(PAGE.read_text(), "figures", table))
    print(table)
    return int(not all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
