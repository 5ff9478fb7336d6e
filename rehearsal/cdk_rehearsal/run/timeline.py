"""The timeline: all that happened, as one list that progress, verdict and report are made from."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Something that happened so many seconds after the beginning, on a lane such as `stack` or `adjuster`."""

    at: float
    lane: str
    text: str


@dataclass(frozen=True)
class Span:
    """A named phase with its beginning and length, both in seconds."""

    name: str
    start: float
    seconds: float


class Timeline:
    """All that happens, from several threads; the clock returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Event], None]] = []
        self._phase_listeners: list[Callable[[str], None]] = []
        self.events: list[Event] = []
        self.spans: list[Span] = []

    def now(self) -> float:
        """Return the seconds since the rehearsal began."""
        return self._clock() - self._begin

    def at(self, moment: float) -> float:
        """Return a time of the clock as seconds since the rehearsal began."""
        return moment - self._begin

    def report(self, lane: str, text: str) -> None:
        """Record that something happened just now, and pass it on to the listeners."""
        event = Event(self.now(), lane, text)
        with self._lock:
            self.events.append(event)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(event)

    @contextmanager
    def subscribe(self, on_event: Callable[[Event], None], on_phase: Callable[[str], None]) -> Iterator[None]:
        """Have every event, and the name of every phase that begins, passed on until the block ends."""
        with self._lock:
            self._listeners.append(on_event)
            self._phase_listeners.append(on_phase)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(on_event)
                self._phase_listeners.remove(on_phase)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase, recorded also when it ends with an error."""
        start = self.now()
        for listener in tuple(self._phase_listeners):
            listener(name)
        try:
            yield
        finally:
            with self._lock:
                self.spans.append(Span(name, start, self.now() - start))
