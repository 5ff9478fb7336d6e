"""What the elastic example tells of its progress: a JSON line for each start, commit, reset and end."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """
    Follows the job from outside, through the files that it writes on the shared file system.

    Args:
        folders: Returns the folders behind the cluster's file systems.
    """

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
