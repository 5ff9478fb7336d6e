"""How fast Auto Scaling groups act, and the clock that they act by."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ScalingPace:
    """
    How fast groups act, in seconds.

    Attributes:
        reaction: From a change of capacity to the activities that follow.
        launch: Shortest time from an activity's start to an instance in service.
        failure: From an activity's start to its failure.
        termination: From the order to terminate to the end of the activity.
        retries: Pauses before a failed launch is tried again; the last one repeats for ever.
        notification_gap: From the creation of a group to the set-up of its notifications.
    """

    reaction: float = 0.3
    launch: float = 1.0
    failure: float = 0.1
    termination: float = 0.3
    retries: Sequence[float] = (20.0, 40.0, 80.0, 160.0, 300.0)
    notification_gap: float = 0.6


class JobQueue:
    """Runs jobs when they are due, as many at a time as there are workers."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._free = threading.Semaphore(workers)
        self._timers: list[threading.Timer] = []
        self._closing = False

    def after(self, seconds: float, job: Callable[[], None]) -> None:
        """Run a job once, a time from now; jobs given after `close` are dropped."""
        timer = threading.Timer(seconds, self._run, [job])
        timer.daemon = True
        with self._lock:
            if not self._closing:
                self._timers = [entry for entry in self._timers if entry.is_alive()] + [timer]
                timer.start()

    def close(self) -> None:
        """Drop what is not due and wait for what runs."""
        with self._lock:
            self._closing = True
        for timer in self._timers:
            timer.cancel()
        for timer in self._timers:
            timer.join()

    def _run(self, job: Callable[[], None]) -> None:
        with self._free:
            if self._closing:
                return
            try:
                job()
            except Exception:  # noqa: BLE001 - a defect of one job must not end the others
                _log.exception("a job of the embedded AWS failed")
