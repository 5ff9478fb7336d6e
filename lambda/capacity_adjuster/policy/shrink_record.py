"""
Record of a shrink, written before its start: an item beside the state record, only for the adjuster.

It keeps, over a crash between two calls, the number of requested workers, the suspended processes that the adjuster
must resume (rather than a user's), and the lease of the invocation that shrinks.
"""

from dataclasses import dataclass, replace

from deeplearning_contract.reason import Reason

LONGEST_LEASE_SECONDS = 1800
"""Longest valid lease: Lambda ends every function after 15 minutes."""


@dataclass(frozen=True)
class Adjustment:
    """Shrink of the workers' group."""

    revision: int  # Counts every write; the compare-and-set condition
    group: str
    requested: int  # Requested workers before the first shrink
    before: int  # Desired capacity at the start of the shrink
    # Launched workers, the target of the shrink. After the shrink, this and `before` are the actual desired capacity.
    target: int
    reason: Reason  # Reason of the missing workers
    processes: tuple[str, ...]  # Processes that the shrink itself suspends, and must resume
    # During the shrink, the time after which its invocation is certainly over, in seconds since the epoch; 0 once the
    # processes are resumed
    lease_until: int

    @property
    def is_open(self) -> bool:
        """True while its processes may still be suspended."""
        return self.lease_until > 0

    def is_held(self, now: float) -> bool:
        """Return whether its invocation may be alive; a lease that ends too late is invalid."""
        return now < self.lease_until <= now + LONGEST_LEASE_SECONDS

    def explains(self, group: str, desired: int) -> bool:
        """Return whether a group's desired capacity is that after this shrink, or before it."""
        return group == self.group and desired in (self.before, self.target)

    def close(self) -> "Adjustment":
        """Return the next revision, with its processes resumed."""
        return replace(self, revision=self.revision + 1, processes=(), lease_until=0)

    def end_at(self, desired: int) -> "Adjustment":
        """Return the next revision, with its processes resumed and the actual desired capacity."""
        return replace(self.close(), before=desired, target=desired)
