"""Clock of the stand-in, which tests advance where a wait would be long."""

import threading
from collections.abc import Callable
from datetime import datetime, timezone

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


class Clock:
    """
    The time that somebody tells, and what it was advanced by.

    Args:
        tell_time: Returns the seconds since 1970.
    """

    def __init__(self, tell_time: Callable[[], float]) -> None:
        self._tell_time, self._ahead = tell_time, 0.0
        self._lock = threading.Lock()

    def read(self) -> float:
        """Return the seconds since 1970."""
        with self._lock:
            return self._tell_time() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        with self._lock:
            self._ahead += seconds

    def format(self, later: float = 0.0) -> str:
        """
        Return the time as objects have it.

        Args:
            later: Seconds to add.
        """
        return f"{datetime.fromtimestamp(self.read() + later, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def parse_time(text: str) -> float:
    """Return the seconds since 1970 of a time of an object."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def format_age(since: str, now: float) -> str:
    """Return the time since then in the form of `kubectl get`."""
    seconds = max(0, int(now - parse_time(since)))
    unit, letter = next((each for each in _UNITS if seconds >= 2 * each[0]), (1, "s"))
    return f"{seconds // unit}{letter}"
