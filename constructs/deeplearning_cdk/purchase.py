"""How the workers are paid for: on demand, as spot instances, or in a capacity block that was bought."""

import re
from dataclasses import dataclass

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2

_Template = ec2.CfnLaunchTemplate
ON_DEMAND, SPOT = "on-demand", "spot"
_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")


@dataclass(frozen=True)
class Purchase:
    """
    A checked choice.

    Attributes:
        choice: `on-demand`, `spot`, or the id of a Capacity Block's reservation.
    """

    choice: str = ON_DEMAND

    @property
    def reservation_id(self) -> str:
        """Id of the Capacity Block's reservation; empty without one."""
        return "" if self.choice in (ON_DEMAND, SPOT) else self.choice

    @property
    def is_placeable(self) -> bool:
        """Whether a placement group can be asked for: a Capacity Block has its own."""
        return not self.reservation_id

    @property
    def market(self) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
        """The market of a launch template; None on demand."""
        if self.choice == ON_DEMAND:
            return None
        return _Template.InstanceMarketOptionsProperty(market_type="capacity-block" if self.reservation_id else SPOT)

    @property
    def reservation(self) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
        """The reservation of a launch template; None without a Capacity Block."""
        if not self.reservation_id:
            return None
        return _Template.CapacityReservationSpecificationProperty(
            capacity_reservation_target=_Template.CapacityReservationTargetProperty(
                capacity_reservation_id=self.reservation_id
            )
        )


def read_purchase(value: str | None) -> Purchase:
    """
    Check how the workers are to be paid for.

    Args:
        value: `on-demand`, `spot`, or a reservation's id, which may be a token. Default: on demand.

    Raises:
        ValueError: It is something else.
    """
    choice = value or ON_DEMAND
    if not Token.is_unresolved(choice) and choice not in (ON_DEMAND, SPOT) and not _RESERVATION.fullmatch(choice):
        raise ValueError(
            f"worker_purchase must be 'on-demand', 'spot' or the id of a Capacity Block's reservation, got {value!r}; "
            "list yours with `aws ec2 describe-capacity-reservations`"
        )
    return Purchase(choice)
