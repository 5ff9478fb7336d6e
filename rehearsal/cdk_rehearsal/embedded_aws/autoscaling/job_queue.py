"""Runs work later, on a few threads."""

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_log = logging.getLogger(__name__)


class JobQueue:
    """
    Runs jobs when they are due.

    Args:
        workers: Threads that run jobs.
    """

    def __init__(self, workers: int) -> None:
        self._condition = threading.Condition()
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._closing = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="scaling")
        self._thread = threading.Thread(target=self._run, name="scaling-clock", daemon=True)
        self._thread.start()

    def after(self, seconds: float, job: Callable[[], None]) -> None:
        """Run a job once, a time from now; jobs given after `close` are dropped."""
        with self._condition:
            if not self._closing:
                heapq.heappush(self._jobs, (time.monotonic() + seconds, next(self._numbers), job))
                self._condition.notify()

    def close(self) -> None:
        """Drop what is not due and wait for what runs."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._closing and (not self._jobs or self._jobs[0][0] > time.monotonic()):
                    left = self._jobs[0][0] - time.monotonic() if self._jobs else None
                    self._condition.wait(left)
                if self._closing:
                    return
                _, _, job = heapq.heappop(self._jobs)
                self._pool.submit(job).add_done_callback(_report)


def _report(future: "Future[None]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("a job of the embedded AWS failed", exc_info=error)
