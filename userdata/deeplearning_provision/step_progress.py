"""Adds up what the threads of a step do, and tells the status."""

import threading
from collections.abc import Callable

from deeplearning_node.deadline import Clock
from deeplearning_provision.status import Status

GUARD_SECONDS = 10.0


class Meter:
    """The progress of one step; any thread may call it."""

    def __init__(self, status: Status, step: str, clock: Clock, guard: Callable[[], None]) -> None:
        """Prepare; `guard` is called once in a while, and ends the step by raising."""
        self._status = status
        self._step = step
        self._clock = clock
        self._guard = guard
        self._guarded = clock.read()
        self._done = 0
        self._lock = threading.Lock()

    def start(self, detail: str, total: int, done: int = 0) -> None:
        """Begin a part of the step that is counted in bytes."""
        self._done = done
        self._status.start(self._step, detail, total, "bytes", done)

    def add(self, count: int) -> None:
        """Say how much more is done."""
        with self._lock:
            self._done += count
            self._tell()

    def reach(self, done: int) -> None:
        """Say how much is done in all."""
        with self._lock:
            self._done = done
            self._tell()

    def _tell(self) -> None:
        now = self._clock.read()
        if now - self._guarded >= GUARD_SECONDS:
            self._guarded = now
            self._guard()
        self._status.advance(self._step, self._done)
