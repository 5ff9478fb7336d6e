"""Costs of clusters: AWS calls to form in the model of the agents' tests, and the times of rehearsed faults."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.figure import Figure, take_percentiles

MODEL = Path("tests/unit/deeplearning_agent/model")
SIZES = (4, 64, 1_000)
FAILURE, KILLED, SILENT = "quota", "worker-killed", "worker-silent"
CASES = (FAILURE, KILLED, SILENT)
RECOVERY_SECONDS = 15
"""Longest recovery that the two cases accept."""
ROUNDS = Path("tests/bench/recovery_cases.py")
STRUCK = {
    "killed-worker": "a worker is killed",
    "silent-worker": "a worker falls silent",
    "lost-master": "the master is lost",
    "cut-network": "a worker's network is cut for 20 s",
    "spot-notice": "EC2 takes a worker back 20 s after its notice",
}
"""Case of `ROUNDS` -> what happens in it."""


def measure_formation(report: Callable[[str], None]) -> list[Figure]:
    """
    Count the AWS calls with which a cluster of agents forms, in virtual time.

    Args:
        report: Called with what is measured.
    """
    sys.path.append(str(MODEL))
    from cluster_model import count_allowed_calls, form_world  # noqa: PLC0415 - its folder is not a package

    figures = []
    for nodes in SIZES:
        report(f"{nodes} agents form in the model")
        formed = form_world(nodes)
        bound = count_allowed_calls(nodes, formed.seconds)
        figures.append(Figure(f"AWS calls with which {nodes:,} nodes form", formed.calls, at_most=bound))
    return figures


def measure_recovery(report: Callable[[str], None], out: Path) -> list[Figure]:
    """
    Rehearse the cases that measure times, one after the other.

    Args:
        report: Called with what is measured.
        out: Where their reports go.

    Raises:
        subprocess.CalledProcessError: A case failed.
    """
    report(f"cases {', '.join(CASES)} are rehearsed")
    results = _rehearse(",".join(CASES), out)
    nodes = results[KILLED]["formed"]
    return [
        Figure("from a refused launch to the reason in the stack", results[FAILURE]["failure_seconds"], "s"),
        Figure(f"formation of {nodes} rehearsed nodes", results[KILLED]["formation_seconds"], "s"),
        *(
            Figure(f"training goes on after a worker {what}", results[case]["recovery_seconds"], "s", RECOVERY_SECONDS)
            for case, what in ((KILLED, "is killed"), (SILENT, "falls silent"))
        ),
        Figure(f"peak memory of a rehearsal that trains on {nodes} nodes", results[KILLED]["peak_memory_mib"], "MiB"),
    ]


def measure_rounds(report: Callable[[str], None], out: Path) -> list[Figure]:
    """
    Rehearse cases in each of which a fault strikes ten times.

    Args:
        report: Called with what is measured.
        out: Where their reports go.

    Raises:
        subprocess.CalledProcessError: A case failed.
    """
    report(f"the cases of {ROUNDS} are rehearsed")
    _rehearse(str(ROUNDS), out)
    figures = []
    for name, what in STRUCK.items():
        rounds = json.loads((out / name / "report.json").read_text())["case"]["injections"]
        for key, end in (("recovery_seconds", "to the next step"), ("regained_seconds", "to the full size")):
            figures.append(take_percentiles(f"{what}: {end}", [entry[key] for entry in rounds]))
    return figures


def _rehearse(cases: str, out: Path) -> dict[str, Any]:
    """Rehearse cases one after the other, and return the entry of each."""
    program = [str(Path(sys.executable).with_name("deeplearning-cdk")), "rehearse", "--app", f"{sys.executable} app.py"]
    subprocess.run([*program, "--case", cases, "--jobs", "1", "--again", "--out", str(out)], check=True)
    results: dict[str, Any] = json.loads((out / "cases.json").read_text())
    return results
