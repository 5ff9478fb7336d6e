"""The time of one invocation of the function."""

import time
from typing import Any


class InvocationClock:
    """Time of one invocation; `context` is Lambda's context object."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def now(self) -> float:
        """Return the time since the epoch, in seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait, in seconds."""
        time.sleep(seconds)

    def remaining(self) -> float:
        """Return the time until Lambda stops the invocation, in seconds."""
        return float(self._context.get_remaining_time_in_millis()) / 1000
