"""Capacity reservations and Capacity Blocks of the account, whose states move with time."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.base.scaling_group import now

_FULL = "The requested reservation does not have sufficient compatible and available capacity for this request."
_NOT_BEGUN = "Your Capacity Block reservation {name} is not active yet."
"""The messages: Amazon EC2 Auto Scaling User Guide, "Troubleshoot instance launch failures"."""


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """
    A capacity reservation, or a Capacity Block.

    Attributes:
        id: Id.
        zone: Availability Zone.
        instance_type: Instance type.
        instances: Instances that it reserves.
        is_block: Whether it is a Capacity Block. Default: it is.
        begins: Seconds from the creation of the first stack to its start. Default: it has begun.
        ends: Seconds from there to its end. Default: never.
        before: State before it begins, such as `payment-pending`. Default: `scheduled`.
        after: State once it has ended, such as `cancelled` or `payment-failed`. Default: `expired`.
    """

    id: str
    zone: str
    instance_type: str
    instances: int
    is_block: bool = True
    begins: float = 0.0
    ends: float = float("inf")
    before: str = "scheduled"
    after: str = "expired"


@dataclass
class Reservations:
    """
    The reservations of the account; what begins by itself does so after the time that it has.

    Attributes:
        given: The reservations.
        opened: When their time began to run: on the monotonic clock, and as a date.
        assumed: Those that the account is assumed to have, because a stack launches into them: active, and never full.
        begun: Id of each that was let begin -> seconds after that time.
    """

    given: Sequence[Reservation] = ()
    opened: tuple[float, datetime] = field(default_factory=lambda: (time.monotonic(), now()))
    assumed: dict[str, Reservation] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)

    def find(self, name: str) -> Reservation | None:
        """Return a reservation that is given; None for any other."""
        return next((each for each in self.given if each.id == name), None)

    def list(self) -> dict[str, Reservation]:
        """Return id -> reservation, of all."""
        return {each.id: each for each in (*self.given, *self.assumed.values())}

    def assume(self, reservation: Reservation) -> None:
        """Assume that the account has a reservation, unless it is given."""
        if self.find(reservation.id) is None:
            self.assumed[reservation.id] = reservation

    def begin(self, name: str) -> None:
        """Let a reservation begin now."""
        self.begun[name] = time.monotonic() - self.opened[0]

    def find_state(self, reservation: Reservation) -> str:
        """Return the state of a reservation."""
        age = time.monotonic() - self.opened[0]
        if age < self._begins(reservation):
            return reservation.before
        return "active" if age < reservation.ends else reservation.after

    def find_dates(self, reservation: Reservation) -> tuple[datetime, datetime | None]:
        """Return when a reservation begins, and when it ends; None: never."""
        ends = None if reservation.ends == float("inf") else self._date(reservation.ends)
        return self._date(self._begins(reservation)), ends

    def require(self, name: str, instance_type: str, zone: str, taken: Collection[str]) -> None:
        """
        Raise LaunchError where a reservation has no capacity for a launch.

        The codes: EC2 User Guide, "Configure your EC2 Fleet to launch instances into Capacity Blocks", for a block that
        has not begun; EC2 API, "Error codes for the Amazon EC2 API", for a reservation without capacity.

        Args:
            name: Its id; it is given.
            instance_type: Instance type of the launch.
            zone: Zone of the launch.
            taken: Instances that are in the reservation.
        """
        found = self.find(name)
        assert found is not None
        state = self.find_state(found)
        if found.is_block and state == found.before:
            raise LaunchError("InsufficientInstanceCapacity", _NOT_BEGUN.format(name=name))
        is_compatible = (found.instance_type, found.zone) == (instance_type, zone)
        if state != "active" or not is_compatible or len(taken) >= found.instances:
            raise LaunchError("ReservationCapacityExceeded", _FULL)

    def _begins(self, reservation: Reservation) -> float:
        return min(self.begun.get(reservation.id, float("inf")), reservation.begins)

    def _date(self, seconds: float) -> datetime:
        return self.opened[1] + timedelta(seconds=seconds)
