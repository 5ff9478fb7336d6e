"""
The record of a shrink, written before the shrink begins: a second item beside the state item, for the adjuster alone.

It answers what a crash between two calls would make unanswerable. How many workers were asked for, once desired has
been lowered? Which suspended processes are ours to resume, and which are a user's? Is another invocation at it now?
"""

from dataclasses import dataclass, replace

LONGEST_LEASE_SECONDS = 1800
"""No lease of ours ends later than that from now: Lambda ends every function after 15 minutes."""


@dataclass(frozen=True)
class Adjustment:
    """A shrink of the workers' group."""

    revision: int  # Counts every write; the compare-and-set condition
    group: str
    requested: int  # Workers asked for before the first shrink
    before: int  # Desired capacity when the shrink began
    # Workers that had launched; what desired is, or was to be, lowered to. Once it is known whether it was, both are
    # what desired is.
    target: int
    reason: str  # Why fewer launched, for the user
    processes: tuple[str, ...]  # Processes that were not suspended before, so that they are ours to resume
    # While the shrink is under way, the time after which its invocation cannot be alive any more, in seconds since the
    # epoch; 0 once the processes are resumed
    lease_until: int
    cause: str = ""  # Cause of the reason; empty in records of an older version
    remedy: str = ""  # Remedy of the reason

    @property
    def is_open(self) -> bool:
        """Whether its processes may still be suspended."""
        return self.lease_until > 0

    def is_held(self, now: float) -> bool:
        """Return whether its invocation may be alive; a lease that ends too far ahead is none of ours."""
        return now < self.lease_until <= now + LONGEST_LEASE_SECONDS

    def explains(self, group: str, desired: int) -> bool:
        """Return whether a group's desired capacity is what this shrink left, or found."""
        return group == self.group and desired in (self.before, self.target)

    def close(self) -> "Adjustment":
        """Return the next revision, with its processes resumed."""
        return replace(self, revision=self.revision + 1, processes=(), lease_until=0)

    def end_at(self, desired: int) -> "Adjustment":
        """Return the next revision, with its processes resumed and what became of desired."""
        return replace(self.close(), before=desired, target=desired)
