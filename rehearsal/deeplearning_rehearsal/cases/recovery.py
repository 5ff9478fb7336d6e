"""The elastic job seen from outside: its progress, a JSON line an event, and how it went on after a fault."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from cdk_rehearsal.run.timeline import Span
from deeplearning_rehearsal.report.paid_seconds import DETECTION, REPLAY, RESTART, STARTING, TRAINING

PROGRESS_FILE = "progress.jsonl"
RESULT_FILE = "result.json"
EVENTS = ("start", "commit", "reset", "done")


@dataclass(frozen=True)
class Step:
    """
    A line of progress, by rank 0.

    Attributes:
        time: Seconds of the wall clock.
        event: `start`: a job begins, from its checkpoint if there is one; `commit`: progress that will not be lost;
            `reset`: a new world of ranks goes on from the last commit; `done`: the end.
        batch: Batches trained, over all epochs.
        size: Ranks of the world.
    """

    time: float
    event: str
    batch: int
    size: int


def parse_steps(text: str) -> tuple[Step, ...]:
    """Read the lines that are whole; a line that a killed rank left broken is no progress."""
    steps = []
    for line in text.splitlines():
        try:
            document = json.loads(line)
            step = Step(float(document["time"]), document["event"], int(document["batch"]), int(document["size"]))
        except (ValueError, KeyError, TypeError):
            continue
        if step.event in EVENTS:
            steps.append(step)
    return tuple(steps)


class ElasticJob:
    """The job as its files on the shared file systems show it; `folders` returns the folders behind those."""

    def __init__(self, folders: Callable[[], Iterable[Path]]) -> None:
        self._folders = folders
        self._file: Path | None = None

    def steps(self) -> tuple[Step, ...]:
        """Return the progress so far."""
        self._file = self._file or next(
            (path for folder in self._folders() for path in sorted(folder.rglob(PROGRESS_FILE))), None
        )
        if self._file is None:
            return ()
        try:
            return parse_steps(self._file.read_text(errors="replace"))
        except OSError:
            return ()

    def commits(self, ranks: int) -> int:
        """Return how often a world of so many ranks has committed."""
        return sum(step.event == "commit" and step.size == ranks for step in self.steps())

    def result(self) -> dict[str, Any] | None:
        """Return the job's own result; None before its end."""
        if self._file is None or not any(step.event == "done" for step in self.steps()):
            return None
        try:
            document = json.loads((self._file.parent / RESULT_FILE).read_text())
        except (OSError, ValueError):
            return None  # being written just now
        return document if isinstance(document, dict) else None


@dataclass(frozen=True)
class Recovery:
    """
    The effect of one fault on training.

    Attributes:
        seconds: From the fault to the first progress of a new world beyond the last commit before it. None: none came.
        lost_commits: Commits before the fault that the new world did not go on from. None: there is no new world.
        sizes_after: Ranks of the worlds after it, in order.
        regained_seconds: From the fault to the first line of a world with all ranks again. None: there was none.
    """

    seconds: float | None
    lost_commits: int | None
    size_before: int
    sizes_after: tuple[int, ...]
    regained_seconds: float | None = None

    @property
    def has_regained_size(self) -> bool:
        """True if a later world had all ranks again, after a smaller one or at once."""
        return self.size_before > 0 and self.size_before in self.sizes_after


def measure_recovery(steps: Sequence[Step], epoch: float) -> Recovery:
    """
    Return what a fault did to training; `epoch` is its time in seconds of the wall clock, `steps` the oldest first.
    """
    worlds = [index for index, step in enumerate(steps) if step.time >= epoch and step.event in {"start", "reset"}]
    before = [step for step in steps if step.time < epoch]
    size = before[-1].size if before else 0
    sizes = tuple(steps[index].size for index in worlds)
    if not worlds:
        return Recovery(None, None, size, sizes)
    committed = [step.batch for step in steps[: worlds[0]] if step.event == "commit"]
    last = committed[-1] if committed else 0
    gained = next((step for step in steps[worlds[0] :] if step.event in {"commit", "done"} and step.batch > last), None)
    resumed = steps[worlds[0]].batch
    lost = len({batch for batch in committed if batch > resumed})
    whole = next((steps[index].time - epoch for index in worlds if steps[index].size == size), None)
    return Recovery(None if gained is None else gained.time - epoch, lost, size, sizes, whole)


def list_elastic_spans(steps: Sequence[Step], faults: Iterable[float], begun: float, began: float) -> list[Span]:
    """
    Return what an elastic job did, its spans one after the other.

    A new world without a fault is one that has grown.

    Args:
        steps: Its progress, by the wall clock.
        faults: When it lost ranks, by the wall clock.
        begun: When the cluster formed, in seconds since the rehearsal began.
        began: When the rehearsal began, by the wall clock.
    """
    if not steps:
        return []
    struck = [fault - began for fault in faults]
    spans = [Span(STARTING, begun, steps[0].time - began - begun)]
    committed = 0
    for before, after in pairwise(steps):
        start, end = before.time - began, after.time - began
        committed = max(committed, before.batch if before.event == "commit" else 0)
        if after.event in {"start", "reset"}:
            hit = next((fault for fault in struck if start <= fault < end), None)
            if hit is not None:
                spans += [Span(TRAINING, start, hit - start), Span(DETECTION, hit, end - hit)]
            else:
                spans.append(Span(RESTART if committed else STARTING, start, end - start))
        elif before.event in {"start", "reset"} and committed:
            spans.append(Span(RESTART, start, end - start))
        else:
            spans.append(Span(REPLAY if after.batch <= committed else TRAINING, start, end - start))
    return spans
