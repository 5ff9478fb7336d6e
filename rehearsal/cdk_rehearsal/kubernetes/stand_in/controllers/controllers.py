"""Runs the controllers: after each change, when something is due, and when a test says so."""

import threading
from collections.abc import Callable, Sequence

from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects
from cdk_rehearsal.kubernetes.stand_in.controllers.daemons import DaemonController
from cdk_rehearsal.kubernetes.stand_in.controllers.garbage import GarbageCollector
from cdk_rehearsal.kubernetes.stand_in.controllers.jobs import JobController
from cdk_rehearsal.kubernetes.stand_in.controllers.nodes import NodeController
from cdk_rehearsal.kubernetes.stand_in.controllers.scheduling import Scheduler
from cdk_rehearsal.kubernetes.stand_in.controllers.volumes import VolumeController

Step = Callable[[], Sequence[float]]
"""Runs a controller once; returns when something is due, in seconds since 1970."""
_MOST_ROUNDS = 100
_LONGEST_WAIT_SECONDS = 5.0


class Controllers:
    """
    The controllers of a control plane.

    Args:
        objects: Objects of the control plane.
        version: Minor version of Kubernetes.
        grace_seconds: Time without a sign of life after which a node is not ready.
    """

    def __init__(self, objects: Objects, version: str, grace_seconds: float) -> None:
        self._store = objects.store
        self._steps: tuple[Step, ...] = (
            GarbageCollector(objects).settle,
            VolumeController(objects.store).settle,
            NodeController(objects, grace_seconds).settle,
            JobController(objects).settle,
            DaemonController(objects).settle,
            Scheduler(objects.store, version).settle,
        )
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="controllers", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        with self._store.changed:
            self._is_stopped = True
            self._store.changed.notify_all()
        self._thread.join()

    def settle(self) -> float:
        """Run the controllers until they change nothing more; return when something is due, in seconds since 1970."""
        with self._store.lock:
            for _ in range(_MOST_ROUNDS):
                before = self._store.version
                due = [at for step in self._steps for at in step()]
                if self._store.version == before:
                    return min(due)
        raise RuntimeError("the controllers of the stand-in undo one another's changes")

    def _run(self) -> None:
        with self._store.changed:
            while not self._is_stopped:
                try:
                    due = self.settle()
                except Exception as error:  # noqa: BLE001 - the API server tells it, since nothing would ever happen again
                    self._store.failure = error
                    return
                seconds = min(_LONGEST_WAIT_SECONDS, max(0.01, due - self._store.clock.read()))
                self._store.changed.wait(seconds)
