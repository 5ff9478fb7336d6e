"""
The record of stops: an item beside the state item, for the adjuster alone.

It lets a stop happen once, whatever dies in the middle, and a user who scales the cluster up again afterwards has a new
allowance.
"""

from dataclasses import dataclass, replace

from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS


@dataclass(frozen=True)
class StopRecord:
    """What is known of the stops of a cluster."""

    revision: int = 0  # Counts every write; the compare-and-set condition
    # When the present allowance began, in seconds since the epoch; 0 for the first, which began when the groups were
    # made
    counted_from: int = 0
    cause: str = ""  # Why the cluster stops, or stopped last; empty before the first stop
    message_id: str = ""  # The last message of AWS Budgets that stopped it, so that its copies do not
    # While a stop is under way, the time after which its invocation cannot be alive any more, in seconds since the
    # epoch; 0 while none is
    lease_until: int = 0
    stopped_at: int = 0  # When it was stopped, in the same; 0 while its allowance runs

    @property
    def is_open(self) -> bool:
        """Whether a stop is under way."""
        return self.lease_until > 0

    @property
    def is_stopped(self) -> bool:
        """Whether the cluster was stopped and its user has not been seen to scale it up again."""
        return self.stopped_at > 0

    def believe(self, now: float) -> "StopRecord":
        """
        Return the same revision without times that no invocation of ours can have written, because they lie far ahead.

        Such a record would keep the cluster from ever stopping.
        """
        limit = now + LONGEST_LEASE_SECONDS
        return replace(
            self,
            counted_from=self.counted_from if self.counted_from <= limit else 0,
            stopped_at=self.stopped_at if self.stopped_at <= limit else 0,
            lease_until=self.lease_until if self.lease_until <= limit else 0,
        )

    def begin(self, cause: str, message_id: str) -> "StopRecord":
        """Return the next revision, with a stop begun but for its lease."""
        return replace(self, revision=self.revision + 1, cause=cause, message_id=message_id, stopped_at=0)

    def hold(self, until: int) -> "StopRecord":
        """Return the same revision, with the lease of its invocation."""
        return replace(self, lease_until=until)

    def close(self, now: int) -> "StopRecord":
        """Return the next revision, with the cluster stopped."""
        return replace(self, revision=self.revision + 1, lease_until=0, stopped_at=now)

    def allow(self, now: int) -> "StopRecord":
        """Return the next revision, with an allowance that begins now."""
        return replace(self, revision=self.revision + 1, counted_from=now, lease_until=0, stopped_at=0)
