"""Purchase options of nodes, and their properties in launch template and Auto Scaling group."""

from dataclasses import dataclass
from typing import Annotated, Literal

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.props.check import Rule, check_fields, names_checked
from deeplearning_cdk.props.rules import matching

_Template = ec2.CfnLaunchTemplate
_Group = autoscaling.CfnAutoScalingGroup
PurchaseKind = Literal["on-demand", "spot", "reservation", "capacity-block"]
_LEAST_PRICE = 0.001
"""USD per hour; a launch template requires more (CloudFormation, LaunchTemplate SpotOptions)."""
_MOST_PRICE = 1000
"""USD per hour, above the price of every instance; a higher value is a typing error."""
_LIST = "list yours with `aws ec2 describe-capacity-reservations`"

ReservationId = Annotated[
    str, matching(r"cr-[0-9a-f]{8,17}", "be cr- and 8 to 17 hex digits", _LIST, takes_tokens=True)
]
"""Id of a capacity reservation."""

ResourceGroupArn = Annotated[
    str,
    matching(
        r"arn:[a-z-]+:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9._-]{1,300}",
        "be the ARN of a resource group",
        "list yours with `aws resource-groups list-groups`",
        takes_tokens=True,
    ),
]
"""ARN of a resource group of capacity reservations."""

PlacementGroupName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9 ._:/()#,@\[\]+=&;{}!*-]{1,255}",
        "be the name of a placement group without $",
        "list yours with `aws ec2 describe-placement-groups`",
        takes_tokens=True,
    ),
]
"""Name of a placement group, written into the template only."""

MaxPrice = Annotated[
    float,
    Rule(
        must=f"be over {_LEAST_PRICE} USD an hour and at most {_MOST_PRICE}",
        remedy="raise it, or leave it out",
        is_kept=lambda price: _LEAST_PRICE < price <= _MOST_PRICE,
    ),
]
"""Maximum price of a spot instance, in USD per hour."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class Purchase:
    """
    Purchase option of a node group, created with `on_demand`, `spot`, `reservation`, `reservation_group` or
    `capacity_block`.

    Attributes:
        kind: `on-demand`, `spot`, `reservation` or `capacity-block`.
        reservation_id: Id of the capacity reservation. Default: none.
        resource_group_arn: ARN of a resource group of On-Demand Capacity Reservations. Default: none.
        max_price: Maximum price of a spot instance, in USD per hour. Default: the on-demand price.
        placement_group: Cluster placement group in which the reservation was made. Default: none.

    Raises:
        ValueError: A value is malformed, or does not belong to `kind`.
    """

    kind: PurchaseKind = "on-demand"
    reservation_id: Literal[""] | ReservationId = ""
    resource_group_arn: Literal[""] | ResourceGroupArn = ""
    max_price: MaxPrice | None = None
    placement_group: Literal[""] | PlacementGroupName = ""

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_reservation()
        if self.max_price is not None and self.kind != "spot":
            raise ValueError(
                f"max_price must be for spot instances, got {self.max_price:g} with {self.kind}; leave it out"
            )

    def _check_reservation(self) -> None:
        names = {"reservation": ("reservation_id", "resource_group_arn"), "capacity-block": ("reservation_id",)}
        allowed = names.get(self.kind, ())
        given = [name for name in ("reservation_id", "resource_group_arn") if getattr(self, name)]
        if len(given) != bool(allowed) or not set(given) <= set(allowed):
            rule = f"one of {' and '.join(allowed)}" if allowed else "no reservation"
            raise ValueError(f"{self.kind} must have {rule}, got {' and '.join(given) or 'none'}; {_LIST}")

    @classmethod
    def on_demand(cls) -> "Purchase":
        """Use on-demand instances, paid by the second. A matching open capacity reservation is used."""
        return cls()

    @classmethod
    def spot(cls, *, max_price: float | None = None) -> "Purchase":
        """
        Use spot instances, which EC2 can interrupt.

        Args:
            max_price: USD per hour, over 0.001. Default: the on-demand price, which is interrupted least.
        """
        return cls(kind="spot", max_price=max_price)

    @classmethod
    def reservation(cls, reservation_id: str, *, placement_group: str = "") -> "Purchase":
        """
        Launch in an On-Demand Capacity Reservation only.

        Args:
            reservation_id: Its id, `cr-…`; the cluster's `network.availability_zone` must be its zone.
            placement_group: Name of the cluster placement group in which it was made. Default: none.
        """
        return cls(kind="reservation", reservation_id=reservation_id, placement_group=placement_group)

    @classmethod
    def reservation_group(cls, resource_group_arn: str, *, placement_group: str = "") -> "Purchase":
        """
        Launch in the On-Demand Capacity Reservations of a resource group only.

        Args:
            resource_group_arn: The resource group; one of its reservations must be in the cluster's zone.
            placement_group: Name of the cluster placement group in which they were made. Default: none.
        """
        return cls(kind="reservation", resource_group_arn=resource_group_arn, placement_group=placement_group)

    @classmethod
    def capacity_block(cls, reservation_id: str) -> "Purchase":
        """
        Launch in a Capacity Block only; its instances run from its start until 30 minutes before its end.

        Args:
            reservation_id: Its id, `cr-…`; the cluster's `network.availability_zone` must be its zone.
        """
        return cls(kind="capacity-block", reservation_id=reservation_id)

    @property
    def is_reserved(self) -> bool:
        """Return whether nodes launch in reserved capacity only."""
        return self.kind in {"reservation", "capacity-block"}

    @property
    def block_id(self) -> str:
        """Id of the Capacity Block; empty without one."""
        return self.reservation_id if self.kind == "capacity-block" else ""

    @property
    def is_placeable(self) -> bool:
        """
        Return whether the cluster can place the nodes in a placement group of its own.

        A Capacity Block supports none (aws-parallelcluster 3.10 refuses it). With a reservation that was not made in
        the group, a launch can fail although capacity is left (aws-parallelcluster,
        PlacementGroupCapacityReservationValidator).
        """
        return not self.is_reserved

    @property
    def market(self) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
        """Market options of the launch template; None for on-demand instances, with or without a reservation."""
        if self.kind not in {"spot", "capacity-block"}:
            return None
        # An Auto Scaling group supports one-time requests only (CloudFormation, LaunchTemplate SpotOptions).
        options = (
            None
            if self.max_price is None
            else _Template.SpotOptionsProperty(max_price=f"{self.max_price:f}", spot_instance_type="one-time")
        )
        return _Template.InstanceMarketOptionsProperty(market_type=self.kind, spot_options=options)

    @property
    def template_reservation(self) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
        """Reservation in the launch template: a Capacity Block (EKS user guide, capacity-blocks)."""
        if not self.block_id:
            return None
        target = _Template.CapacityReservationTargetProperty(capacity_reservation_id=self.block_id)
        return _Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)

    @property
    def group_reservation(self) -> autoscaling.CfnAutoScalingGroup.CapacityReservationSpecificationProperty | None:
        """
        Reservation in the Auto Scaling group: an On-Demand Capacity Reservation.

        Without the preference, instances beyond its capacity would launch on demand (Auto Scaling user guide,
        target-capacity-reservations).
        """
        if self.kind != "reservation":
            return None
        target = _Group.CapacityReservationTargetProperty(
            capacity_reservation_ids=[self.reservation_id] if self.reservation_id else None,
            capacity_reservation_resource_group_arns=[self.resource_group_arn] if self.resource_group_arn else None,
        )
        return _Group.CapacityReservationSpecificationProperty(
            capacity_reservation_preference="capacity-reservations-only", capacity_reservation_target=target
        )


ChosenPurchase = Annotated[Purchase, "write e.g. Purchase.spot()"]
"""Purchase option as a prop."""

ON_DEMAND = Purchase()
"""Default of every node group."""


def check_purchase(prop: str, value: Purchase | None, availability_zone: str | None) -> Purchase:
    """
    Return the purchase option of a prop, on demand by default.

    Raises:
        ValueError: The purchase option has a reservation, and `network.availability_zone` is not given.
    """
    if value is None:
        return ON_DEMAND
    if value.reservation_id and availability_zone is None:
        raise ValueError(
            f"network.availability_zone must be that of the reservation in {prop}, got none for "
            f"{value.reservation_id}; read it with `aws ec2 describe-capacity-reservations "
            f"--capacity-reservation-ids {value.reservation_id}`"
        )
    return value
