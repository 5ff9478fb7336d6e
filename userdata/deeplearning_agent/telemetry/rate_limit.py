"""How often something may be tried: a pace, a few calls before their time, longer pauses while AWS takes nothing."""

from deeplearning_node.deadline import Clock

EARLY_SECONDS = 60.0
"""After this time one more call may come before its time."""
LONGEST_PAUSE_SECONDS = 120.0


class Pace:
    """
    The pace of one kind of call.

    Attributes:
        failures: How many calls in a row have failed.
    """

    def __init__(self, clock: Clock, seconds: float, *, first: float = 0.0, most_early: int = 0) -> None:
        """
        Allow a call each `seconds`, the first one after `first`, and up to `most_early` before their time in one go.
        """
        self._clock = clock
        self._seconds = seconds
        self._most_early = most_early
        self._next = clock.read() + first
        self._early = float(most_early)
        self._counted = clock.read()
        self.failures = 0

    def begin(self, *, is_urgent: bool = False) -> bool:
        """Return whether a call may come now, and count it when it may; while calls fail nothing is urgent."""
        now = self._clock.read()
        self._early = min(self._most_early, self._early + (now - self._counted) / EARLY_SECONDS)
        self._counted = now
        if now < self._next:
            if not is_urgent or self.failures or self._early < 1:
                return False
            self._early -= 1
        self._next = now + self._seconds
        return True

    def succeed(self) -> None:
        """Note that a call was taken."""
        self.failures = 0

    def fail(self) -> None:
        """Note that a call was not taken; the pause before the next one doubles."""
        pause = min(LONGEST_PAUSE_SECONDS, self._seconds * 2**self.failures)
        self.failures += 1
        self._next = self._clock.read() + pause
