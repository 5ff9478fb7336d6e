"""Cost of a synthesis: CPU against an empty stack, and requests to jsii. As a program: counts those of an app."""

import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from jsii._kernel.providers import process

from tests.bench.figure import Figure, take_median

APP = "app.py"
PAIRS = 6
"""An even number, so that each app is the first of a pair as often as the other."""
EMPTY_APP = """
import os
import aws_cdk as cdk
app = cdk.App(outdir=os.environ["CDK_OUTDIR"], analytics_reporting=False, builtin_cloud_formation_validation=False)
cdk.Stack(app, "Empty")
app.synth()
"""


def measure_synthesis(report: Callable[[str], None]) -> list[Figure]:
    """
    Measure `app.py` with the default context.

    Args:
        report: Called with what is measured.
    """
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.py")
        empty.write_text(EMPTY_APP)
        ratios = []
        for number in range(PAIRS):
            apps = (APP, str(empty)) if number % 2 == 0 else (str(empty), APP)
            seconds = {app: measure_cpu([sys.executable, app], Path(folder, "out")) for app in apps}
            ratios.append(seconds[APP] / seconds[str(empty)])
            report(f"pair {number + 1} of {PAIRS}: {APP} {seconds[APP]:.2f} s, empty stack {seconds[str(empty)]:.2f} s")
        requests, resources = count_requests(Path(folder))
    return [
        take_median("CPU time of `app.py` against an empty stack in Python", ratios),
        Figure("resources of the default stack", resources),
        Figure("requests to jsii for each of them", round(requests / resources, 1)),
    ]


def measure_cpu(command: Sequence[str], out: Path) -> float:
    """Return the CPU seconds of a synthesis into a folder, with those of the Node.js that it starts and waits for."""
    before = _read_children()
    synthesize(command, out)
    return _read_children() - before


def synthesize(command: Sequence[str], out: Path) -> None:
    """
    Run an app that writes its assembly into a folder.

    Raises:
        RuntimeError: It failed.
    """
    # Warnings about the default context are no news here.
    answer = subprocess.run(
        command, check=False, env=os.environ | {"CDK_OUTDIR": str(out)}, capture_output=True, text=True
    )
    if answer.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} must synthesize, got:\n{answer.stderr}")


def count_requests(folder: Path) -> tuple[int, int]:
    """Return how many requests `app.py` sends to jsii, and how many resources its stack has."""
    count, out = folder / "requests", folder / "counted"
    command = [sys.executable, "-m", "tests.bench.synthesis", APP, str(count)]
    synthesize(command, out)
    templates = [json.loads(path.read_text()) for path in out.glob("*.template.json")]
    return int(count.read_text()), sum(len(template.get("Resources", {})) for template in templates)


def _read_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(app: str, count: str) -> None:
    """Run an app, and write the number of requests that it sent to jsii into a file."""
    send = process._NodeProcess.send
    requests = 0

    def send_counted(*arguments, **options):
        nonlocal requests
        requests += 1
        return send(*arguments, **options)

    process._NodeProcess.send = send_counted
    sys.argv = [app]
    runpy.run_path(app, run_name="__main__")
    Path(count).write_text(str(requests))


if __name__ == "__main__":
    main(*sys.argv[1:])
