"""
Capacity Block for which workers wait: what EC2 says of it, in the adjuster's record of the request and on the page.

The states are those of `CapacityReservation` (EC2 API reference). A launch before the start of a block fails (EC2 User
Guide, "Launch instances into Capacity Blocks"); its words tell neither when the block begins nor whether it ever does.
"""

from dataclasses import dataclass
from datetime import datetime, timezone

from deeplearning_contract.reason import Reason

NOT_FOUND = "not found"
"""State of a block whose id EC2 does not know."""
_ACTIVE = "active"
_OVER = frozenset({"expired", "cancelled", "failed", "unsupported", "payment-failed", NOT_FOUND})
"""States after which no instance launches any more; in every other one but `active`, the workers wait."""


@dataclass(frozen=True)
class CapacityBlock:
    """Capacity Block, as it was read last."""

    reservation_id: str
    state: str  # State in EC2
    start: int  # Its start in seconds since the epoch; 0 when unknown
    looked: int  # Time of the read in seconds since the epoch
    error: str = ""  # Failure of a later read; empty after one that succeeded

    @property
    def is_active(self) -> bool:
        """True once instances can launch."""
        return self.state == _ACTIVE

    @property
    def is_over(self) -> bool:
        """True if no instance can launch any more."""
        return self.state in _OVER

    @property
    def reason(self) -> Reason:
        """Reason of workers that wait, or that never come."""
        if self.is_over:
            return Reason(
                f"capacity block {self.reservation_id} must be active or begin later, got {self.state}",
                "deploy with the id of another in workers.purchase, or with another purchase",
            )
        begin = f"{datetime.fromtimestamp(self.start, timezone.utc):%Y-%m-%dT%H:%M:%SZ}" if self.start else ""
        words = f"workers wait for the block {self.reservation_id}"
        if self.state == "delayed":
            words += ", which EC2 delays" + (f" beyond {begin}" if begin else "")
        else:
            words += f" until {begin or 'it begins'}"
            words += "" if self.state == "scheduled" else f", which is {self.state}"
        return Reason(words + (f"; it could not be read: {self.error}" if self.error else ""))
