"""
End of a Capacity Block, for all nodes at once: announced in the state record, so that training can checkpoint.

EC2 sends the warning 40 minutes before the end and begins to terminate ten minutes later (EC2 User Guide, "Monitor
Capacity Blocks using EventBridge"). It is the only event that is trusted, since no call of an API returns the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from capacity_adjuster.aws.state_table import StateTable
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.messages import ClusterNotification

WARNING_TYPES = frozenset({"Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"})
"""Detail types of the warning, which differ between copies of the guide."""
_WRITE_ATTEMPTS = 5
"""Attempts to write the record; the master writes it too, a few times a generation."""
_LONGEST_TEXT = 64


@dataclass(frozen=True)
class ExpiryWarning:
    """Warning of EC2 that a Capacity Block ends."""

    reservation_id: str
    end: str  # End in EC2's format; empty when EC2 sent none

    @property
    def notice(self) -> str:
        """Text for the nodes."""
        moment = f"at {self.end}" if self.end else "in about 40 minutes"
        return (
            f"capacity block {self.reservation_id} ends {moment}; EC2 terminates its instances up to 30 minutes earlier"
        )


def read_warning(event: Any) -> ExpiryWarning | None:
    """Return the warning of an event; None for any other event. Raises nothing."""
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
    warning: ExpiryWarning,
    *,
    reservation_id: str,
    records: StateTable,
    notify_master: Callable[[ClusterNotification], None],
) -> str:
    """
    Write a warning into the state record and notify the master; return the outcome for the log.

    A repeated warning changes nothing. RuntimeError when other writers are faster each time: Lambda retries.
    """
    if warning.reservation_id != reservation_id:
        return f"no node of this cluster is in {warning.reservation_id}"
    for _ in range(_WRITE_ATTEMPTS):
        state = records.read_state()
        if state is None or state.phase is Phase.FAILED:
            return "there is no cluster to notify"
        if state.notice == warning.notice:
            # The first delivery may have died before its notification; one notification too many only costs a read.
            notify_master(ClusterNotification(state.cluster, state.generation))
            return "the notice was announced before"
        if records.write_state(state.advance(state.phase, notice=warning.notice)):
            notify_master(ClusterNotification(state.cluster, state.generation))
            return f"notice: {warning.notice}"
    raise RuntimeError(f"could not write the notice: another writer was faster {_WRITE_ATTEMPTS} times; Lambda retries")
