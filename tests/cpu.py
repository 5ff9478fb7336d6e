"""
Compares the CPU that the parts of the tests take with the figures of the last release in cpu.toml.

CPU seconds follow the load of a machine: the same tests take up to a third more beside others. So a piece of work that
is always the same runs every few seconds beside the tests, and its CPU seconds say how much slower the machine is
than the one of the figures was when nothing else ran.
"""

import ast
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import tomllib

FIGURES = Path(__file__).with_name("cpu.toml")
MOST, SLACK_SECONDS = 1.15, 5.0
"""A part may take so many times its figure, and so many seconds more, which are the noise of short parts."""
UNJUDGED = ("base", "job", "rehearsal-")
"""Beginnings of the names of parts that boot nodes: their CPU follows what earlier runs have left for the nodes."""
_PAUSE_SECONDS = 5.0
_TEXT = "\n".join(f"def f{n}(a, b={n}):\n    return [a + b * x for x in range({n}) if x % 3]\n" for n in range(600))


class Slowness:
    """Measures how slow this machine is while tests run."""

    def __init__(self) -> None:
        self._samples = [work()]
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="slowness", daemon=True)
        self._thread.start()

    def _measure(self) -> None:
        while not self._ending.wait(_PAUSE_SECONDS):
            self._samples.append(work())

    def end(self) -> float:
        """Stop measuring; return the CPU seconds of the piece of work, the median of all."""
        self._ending.set()
        self._thread.join()
        return statistics.median(self._samples)


def work() -> float:
    """Do the piece of work, and return its CPU seconds."""
    begin = time.thread_time()
    sum(len(ast.dump(node)) for node in ast.parse(_TEXT).body)
    return time.thread_time() - begin


def compare(cpu: Mapping[str, float], work_seconds: float) -> tuple[list[str], list[str]]:
    """
    Hold what parts have taken against the figures.

    Args:
        cpu: Part -> its CPU seconds.
        work_seconds: CPU seconds of the piece of work meanwhile.

    Returns:
        A line for each part that is judged, and the names of those that take too much or have no figure.
    """
    figures = tomllib.loads(FIGURES.read_text(encoding="utf-8"))
    slowness = work_seconds / figures["work_seconds"]
    lines = [f"CPU against tests/cpu.toml, at {slowness:.2f} times the CPU of a quiet machine:"]
    wrong = []
    for name, seconds in cpu.items():
        if not name.startswith(UNJUDGED):
            figure, quiet = figures["parts"].get(name, 0.0), seconds / slowness
            is_wrong = quiet > MOST * figure + SLACK_SECONDS
            wrong += [name] if is_wrong else []
            lines.append(f"{quiet:8.1f} s of {figure:6.1f} s  {name}{'  TOO MUCH' if is_wrong else ''}")
    return lines, wrong
