"""
A capacity block ends for all nodes at once: its end is announced in the state item, so that training can checkpoint.

EC2 sends the warning 40 minutes before the end and begins to terminate ten minutes later (EC2 User Guide, "Monitor
Capacity Blocks using EventBridge"). It is the one event that is believed, because nothing that can be read says it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from capacity_adjuster.aws.state_table import StateTable
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.messages import Doorbell

WARNING_TYPES = frozenset({"Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"})
"""The guide's copies differ in the words."""
_WRITE_ATTEMPTS = 5
"""The master writes the item too, some times a generation: who loses so often is too slow to matter."""
_LONGEST_TEXT = 64


@dataclass(frozen=True)
class ExpiryWarning:
    """EC2's warning that a capacity block ends."""

    reservation_id: str
    end: str  # When it ends, in EC2's words; empty when EC2 did not say

    @property
    def notice(self) -> str:
        """Text for the nodes."""
        moment = f"at {self.end}" if self.end else "in about 40 minutes"
        return (
            f"capacity block {self.reservation_id} ends {moment}; EC2 terminates its instances up to 30 minutes earlier"
        )


def read_warning(event: Any) -> ExpiryWarning | None:
    """Read an event as a warning; None when it is anything else, and nothing is raised."""
    if not isinstance(event, Mapping) or event.get("source") != "aws.ec2":
        return None
    kind, detail = event.get("detail-type"), event.get("detail")
    if not isinstance(kind, str) or kind not in WARNING_TYPES or not isinstance(detail, Mapping):
        return None
    reservation_id, end = detail.get("capacity-reservation-id"), detail.get("end-date")
    if not isinstance(reservation_id, str) or not reservation_id:
        return None
    return ExpiryWarning(reservation_id[:_LONGEST_TEXT], end[:_LONGEST_TEXT] if isinstance(end, str) else "")


def announce_expiry(
    warning: ExpiryWarning, *, reservation_id: str, records: StateTable, notify_master: Callable[[Doorbell], None]
) -> str:
    """
    Write a warning into the state record and notify the master; return the outcome for the log.

    A warning that is known changes nothing. RuntimeError where other writers are faster each time: Lambda retries.
    """
    if warning.reservation_id != reservation_id:
        return f"no node of this cluster is in {warning.reservation_id}"
    for _ in range(_WRITE_ATTEMPTS):
        state = records.read_state()
        if state is None or state.phase is Phase.FAILED:
            return "there is no cluster to tell"
        if state.notice == warning.notice:
            # The first delivery may have died before it rang; a doorbell too many only costs a read.
            notify_master(Doorbell(state.cluster, state.generation))
            return "the notice is known"
        if records.write_state(state.advance(state.phase, notice=warning.notice)):
            notify_master(Doorbell(state.cluster, state.generation))
            return f"notice: {warning.notice}"
    raise RuntimeError(f"the notice must be written within {_WRITE_ATTEMPTS} attempts, got as many faster writers")
