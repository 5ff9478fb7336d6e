"""Provisioning status of a node, with the rate of each step."""

import contextlib
import fcntl
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.reason import Reason
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock
from deeplearning_node.provision_status import DONE, FAILED, RUNNING, WAITING, Step, load_steps, read_boot

PROGRESS_SECONDS = 1.0
"""Interval at which progress is written; a new state is written at once."""


class Status:
    """Writer of this process's steps to the file that the node's processes share; any thread may call it."""

    def __init__(self, root: Path, clock: Clock, on_change: Callable[[str, Step], None] | None = None) -> None:
        """Call `on_change` with each step that is written."""
        self.root = root
        self._clock = clock
        self._on_change = on_change
        self._steps: dict[str, Step] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._written = float("-inf")
        self._lock = threading.Lock()
        self._adding = threading.Lock()

    def get(self, name: str) -> Step:
        return self._steps.get(name, Step())

    def wait(self, name: str, detail: str) -> None:
        self._put(name, Step(WAITING, detail))

    def start(self, name: str, detail: str, total: int = 0, unit: str = "", done: int = 0) -> None:
        """Report the start of a step or of a part; a `total` of 0 is unknown, `done` is from an earlier attempt."""
        self._began[name] = (self._clock.read(), done)
        self._put(name, Step(RUNNING, detail, done, total, unit))

    def advance(self, name: str, done: int, detail: str = "") -> None:
        """Report progress; it is written at most once a second, a new `detail` at once."""
        now = self._clock.read()
        since, before = self._began.get(name, (now, done))
        rate = (done - before) / (now - since) if now > since else 0.0
        step = self.get(name)
        self._put(name, replace(step, state=RUNNING, detail=detail or step.detail, done=done, rate=max(0.0, rate)))

    def add(self, name: str, count: int) -> None:
        with self._adding:
            self.advance(name, self.get(name).done + count)

    def finish(self, name: str, detail: str) -> None:
        step = self.get(name)
        self._put(name, Step(DONE, detail, step.total, step.total, step.unit))

    def fail(self, name: str, reason: Reason, *, is_final: bool) -> None:
        detail = str(reason)
        self._put(name, replace(self.get(name), state=FAILED, detail=detail, rate=0.0, final=is_final, reason=reason))

    def _put(self, name: str, step: Step) -> None:
        with self._lock:
            old = self._steps.get(name)
            self._steps[name] = step
            is_news = old is None or (old.state, old.detail) != (step.state, step.detail)
            if not is_news and self._clock.read() - self._written < PROGRESS_SECONDS:
                return
            self._write()
            if self._on_change:
                self._on_change(name, step)

    def _write(self) -> None:
        with lock_file(self.root, "status"):
            steps = {**load_steps(self.root), **self._steps}
            document = {"boot": read_boot(self.root), "steps": {n: s.to_document() for n, s in steps.items()}}
            write_file(self.root / PROVISION_FILE.lstrip("/"), json.dumps(document, indent=2) + "\n")
        self._written = self._clock.read()


@contextlib.contextmanager
def lock_file(root: Path, name: str, *, is_patient: bool = True) -> Iterator[None]:
    """Hold a lock of this node until its process ends; BlockingIOError if it is taken and `is_patient` is false."""
    path = (root / PROVISION_FILE.lstrip("/")).with_name(f".{name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
