"""
Bounded waits: monotonic clocks, deadlines and backoff. Nothing else in the agent sleeps.

The kernel's monotonic clock counts from the boot of the machine, is the same for every process
and does not jump when NTP sets the wall clock. So a deadline as a monotonic time survives
restarts of the agent and is void after a reboot: it is kept below /run, which a reboot empties.
"""

import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

from deeplearning_node.atomic_file import write_file

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0


class Clock:
    """Monotonic clock of the machine; tests inject another one."""

    def read(self) -> float:
        """Return the seconds since the boot of the machine."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`; not at all for a negative number."""
        time.sleep(max(0.0, seconds))


class Deadline:
    """Time on a clock at which a wait ends."""

    def __init__(self, clock: Clock, at: float) -> None:
        """Set the deadline; `at` is a reading of the clock in seconds."""
        self.clock = clock
        self.at = at

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> "Deadline":
        """Return the deadline that many seconds from now."""
        return cls(clock, clock.read() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, never negative."""
        return max(0.0, self.at - self.clock.read())

    @property
    def is_over(self) -> bool:
        return self.remaining <= 0

    def at_most(self, seconds: float) -> "Deadline":
        """Return the earlier of this deadline and that many seconds from now."""
        return Deadline(self.clock, min(self.at, self.clock.read() + seconds))

    def at_least(self, seconds: float) -> "Deadline":
        """Return the later of this deadline and that many seconds from now."""
        return Deadline(self.clock, max(self.at, self.clock.read() + seconds))

    def pause(self, seconds: float) -> None:
        """Wait, but never past the deadline."""
        self.clock.wait(min(seconds, self.remaining))

    def attempts(self) -> Iterator[int]:
        """
        Count attempts from 1 and pause between them, twice as long each time, with jitter.

        There is always a first attempt; the last one starts before the deadline.
        """
        number, pause = 1, FIRST_PAUSE_SECONDS
        while True:
            yield number
            if self.is_over:
                return
            self.pause(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter is no secret
            if self.is_over:
                return
            number, pause = number + 1, min(2 * pause, LONGEST_PAUSE_SECONDS)


def setup_deadline(clock: Clock, started_file: Path, seconds: float) -> Deadline:
    """
    Return the end of the set-up time, counted from the agent's first start on this boot.

    Writes the time of the first start to `started_file`, which a reboot must remove.
    """
    now = clock.read()
    try:
        started = float(started_file.read_text())
    except (OSError, ValueError):
        started = math.nan
    # The file may come from the image, with a time of another boot that is ahead of this boot's clock.
    if not 0 <= started <= now:
        started = now
        write_file(started_file, f"{started!r}\n")
    return Deadline(clock, started + seconds)
