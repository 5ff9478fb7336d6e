"""Injects the faults of a case, one after the other, each at its moment."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from cdk_rehearsal.errors import RehearsalError
from deeplearning_rehearsal.cases.format.case import Injection
from deeplearning_rehearsal.cases.format.triggers import RunState

_INTERVAL_SECONDS = 0.1

Action = Callable[[Injection, str], None]
"""Takes the injection and the target's instance id, empty without a target; returns when the fault has struck."""


@dataclass
class Injected:
    """
    An injected fault.

    Attributes:
        instance_id: The machine; empty without a target.
        at: Monotonic time, in seconds.
        epoch: The same moment in seconds of the wall clock, by which training reports progress.
        problem: Why it did not strike as planned; empty when it did.
    """

    injection: Injection
    instance_id: str
    at: float
    epoch: float
    problem: str = ""


class Injector:
    """Waits for the moment of each injection in a thread of its own, looking every `interval` seconds."""

    def __init__(
        self,
        injections: Sequence[Injection],
        situation: RunState,
        act: Action,
        clock: Callable[[], float] = time.monotonic,
        interval: float = _INTERVAL_SECONDS,
    ) -> None:
        self._injections = tuple(injections)
        self._situation = situation
        self._act = act
        self._clock = clock
        self._interval = interval
        self._stop = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="injector", daemon=True)
        self.injected: list[Injected] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def missing(self) -> tuple[Injection, ...]:
        """The injections whose moment has not come."""
        return self._injections[len(self.injected) :]

    def wait(self, seconds: float) -> bool:
        """Wait until everything is injected, a time at most; tell whether it is."""
        return self._done.wait(max(0.0, seconds))

    def _run(self) -> None:
        for injection in self._injections:
            if not self._await(injection):
                return
            self._inject(injection)
        self._done.set()

    def _await(self, injection: Injection) -> bool:
        begin = self._clock()
        while not injection.when.is_due(self._situation, self._clock() - begin):
            if self._stop.wait(self._interval):
                return False
        return True

    def _inject(self, injection: Injection) -> None:
        instance_id = "" if injection.target is None else self._situation.instance(injection.target) or ""
        injected = Injected(injection, instance_id, self._clock(), time.time())
        self.injected.append(injected)
        try:
            if injection.target is not None and not instance_id:
                raise RehearsalError(f"no {injection.target} was launched")  # noqa: TRY301 - told like other problems
            self._act(injection, instance_id)
        except Exception as error:  # noqa: BLE001 - whatever it was, the case has not injected what it says
            injected.problem = f"{type(error).__name__}: {error}"
