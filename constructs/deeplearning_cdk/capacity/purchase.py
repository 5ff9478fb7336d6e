"""How nodes are paid for, and what launch template and Auto Scaling group say of it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.props.check import Rule, check_fields
from deeplearning_cdk.props.rules import matching

_Template = ec2.CfnLaunchTemplate
_Group = autoscaling.CfnAutoScalingGroup
PurchaseKind = Literal["on-demand", "spot", "reservation", "capacity-block"]
_LEAST_PRICE = 0.001
"""USD an hour; a launch template takes more than that (CloudFormation, LaunchTemplate SpotOptions)."""
_MOST_PRICE = 1000
"""Above every price of an instance; a typing error."""
_LIST = "list yours with `aws ec2 describe-capacity-reservations`"

ReservationId = Annotated[
    str, matching(r"cr-[0-9a-f]{8,17}", "be cr- and 8 to 17 hex digits", _LIST, takes_tokens=True)
]
"""Id of a reservation."""

ResourceGroupArn = Annotated[
    str,
    matching(
        r"arn:[a-z-]+:resource-groups:[a-z0-9-]+:[0-9]{12}:group/[A-Za-z0-9._-]{1,300}",
        "be the ARN of a resource group",
        "list yours with `aws resource-groups list-groups`",
        takes_tokens=True,
    ),
]
"""ARN of a resource group of reservations."""

PlacementGroupName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9 ._:/()#,@\[\]+=&;{}!*-]{1,255}",
        "be the name of a placement group without $",
        "list yours with `aws ec2 describe-placement-groups`",
        takes_tokens=True,
    ),
]
"""Name of a placement group; it is written into the template alone."""

MaxPrice = Annotated[
    float,
    Rule(
        must=f"be over {_LEAST_PRICE} USD an hour and at most {_MOST_PRICE}",
        remedy="raise it, or leave it out",
        is_kept=lambda price: _LEAST_PRICE < price <= _MOST_PRICE,
    ),
]
"""The most that a spot instance may cost, in USD an hour."""


@dataclass(frozen=True, kw_only=True)
class Purchase:
    """
    How the nodes of a group are paid for; make one with `on_demand`, `spot`, `reservation`, `reservation_group` or
    `capacity_block`.

    Attributes:
        kind: `on-demand`, `spot`, `reservation` or `capacity-block`.
        reservation_id: Id of the reservation; empty without one, or for a group of them.
        resource_group_arn: ARN of a resource group of On-Demand Capacity Reservations; empty without one.
        max_price: The most that a spot instance may cost, in USD an hour; None for up to the on-demand price.
        placement_group: The cluster placement group in which the reservation was made; empty without one.

    Raises:
        ValueError: The values contradict each other, or one does not have its form.
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
        """Pay by the second, for what EC2 has at the moment; an open reservation that matches is used."""
        return cls()

    @classmethod
    def spot(cls, *, max_price: float | None = None) -> "Purchase":
        """
        Take spare instances, which EC2 may take back.

        Args:
            max_price: USD an hour, over 0.001. Default: up to the on-demand price, which interrupts least.
        """
        return cls(kind="spot", max_price=max_price)

    @classmethod
    def reservation(cls, reservation_id: str, *, placement_group: str = "") -> "Purchase":
        """
        Launch in an On-Demand Capacity Reservation, and nowhere else.

        Args:
            reservation_id: Its id, `cr-…`; the cluster's `availability_zone` must be its zone.
            placement_group: Name of the cluster placement group in which it was made. Default: in none.
        """
        return cls(kind="reservation", reservation_id=reservation_id, placement_group=placement_group)

    @classmethod
    def reservation_group(cls, resource_group_arn: str, *, placement_group: str = "") -> "Purchase":
        """
        Launch in the On-Demand Capacity Reservations of a resource group, and nowhere else.

        Args:
            resource_group_arn: The resource group; one of its reservations must be in the cluster's zone.
            placement_group: Name of the cluster placement group in which they were made. Default: in none.
        """
        return cls(kind="reservation", resource_group_arn=resource_group_arn, placement_group=placement_group)

    @classmethod
    def capacity_block(cls, reservation_id: str) -> "Purchase":
        """
        Launch in a Capacity Block, which runs from its beginning to 30 minutes before its end.

        Args:
            reservation_id: Its id, `cr-…`; the cluster's `availability_zone` must be its zone.
        """
        return cls(kind="capacity-block", reservation_id=reservation_id)

    @property
    def is_reserved(self) -> bool:
        """Whether nodes launch in what was reserved, and nowhere else."""
        return self.kind in {"reservation", "capacity-block"}

    @property
    def block_id(self) -> str:
        """Id of the Capacity Block; empty without one."""
        return self.reservation_id if self.kind == "capacity-block" else ""

    @property
    def is_placeable(self) -> bool:
        """
        Whether a placement group of the cluster's own helps.

        A Capacity Block takes none (aws-parallelcluster 3.10 refuses it). With a reservation that was not made in it, a
        launch can fail though capacity is left (aws-parallelcluster, PlacementGroupCapacityReservationValidator).
        """
        return not self.is_reserved

    @property
    def market(self) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
        """The market of a launch template; None on demand and for a reservation, whose instances are on demand too."""
        if self.kind not in {"spot", "capacity-block"}:
            return None
        # An Auto Scaling group makes one-time requests only (CloudFormation, LaunchTemplate SpotOptions).
        options = (
            None
            if self.max_price is None
            else _Template.SpotOptionsProperty(max_price=f"{self.max_price:f}", spot_instance_type="one-time")
        )
        return _Template.InstanceMarketOptionsProperty(market_type=self.kind, spot_options=options)

    @property
    def template_reservation(self) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
        """The reservation of a launch template, where a Capacity Block stands (EKS user guide, capacity-blocks)."""
        if not self.block_id:
            return None
        target = _Template.CapacityReservationTargetProperty(capacity_reservation_id=self.block_id)
        return _Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)

    @property
    def group_reservation(self) -> autoscaling.CfnAutoScalingGroup.CapacityReservationSpecificationProperty | None:
        """
        The reservation of a group, where an On-Demand one stands.

        Without the preference, launches that find no place in it would run on demand (Auto Scaling user guide,
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
"""How a user wants nodes to be paid for."""

ON_DEMAND = Purchase()
"""The default of every group."""


def check_purchase(prop: str, value: Purchase | None, availability_zone: str | None) -> Purchase:
    """
    Check how nodes are to be paid for.

    Args:
        prop: The user's prop, for the error.
        value: What the user gave it. Default: on demand.
        availability_zone: The zone of the nodes; None when the user names none.

    Raises:
        ValueError: The zone of its reservation is not named.
    """
    if value is None:
        return ON_DEMAND
    if value.reservation_id and availability_zone is None:
        raise ValueError(
            f"availability_zone must be that of the reservation in {prop}, got none for {value.reservation_id}; "
            f"read it with `aws ec2 describe-capacity-reservations --capacity-reservation-ids {value.reservation_id}`"
        )
    return value
