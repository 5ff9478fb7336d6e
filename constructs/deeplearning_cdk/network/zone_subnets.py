"""Places of the fallbacks' nodes: subnets of other zones, found in an existing VPC or made in a new one."""

import hashlib
import ipaddress
from dataclasses import dataclass
from typing import cast

from aws_cdk import Annotations
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from deeplearning_cdk.network.addresses import SMALLEST_SUBNET, plan_subnets
from deeplearning_cdk.network.subnets import check_route, check_vpc
from deeplearning_cdk.network.zones import find_zone, first_in_zone
from deeplearning_cdk.props.check import is_dummy_value, is_token

FURTHER_ZONES = "deeplearning_cdk:trafficBetweenZones"

_LETTERS = "abcdefgh"
"""Last letters of zones, each with a block of its own in the half of a VPC that has the public subnet."""


@dataclass(frozen=True)
class PlaceChoice:
    """
    The user's choice of the place of a fallback.

    Attributes:
        prop: The fallback's prop.
        zone: Zone of the nodes; None for that of the first candidate.
        worker_subnet: Subnet of the workers; None to find one.
        master_subnet: Subnet of the master; None to find one.
    """

    prop: str = ""
    zone: str | None = None
    worker_subnet: ec2.ISubnet | None = None
    master_subnet: ec2.ISubnet | None = None


@dataclass(frozen=True)
class NodePlace:
    """Subnets of the nodes of one candidate; `has_public_master` is True if the master's is public."""

    worker_subnet: ec2.ISubnet
    master_subnet: ec2.ISubnet
    has_public_master: bool

    @property
    def has_one_subnet(self) -> bool:
        """True if master and workers are in the same subnet."""
        return self.master_subnet is self.worker_subnet or self.master_subnet.subnet_id == self.worker_subnet.subnet_id


def digest_zone(zone: str) -> str:
    """Return the part of construct ids that stands for a zone."""
    return hashlib.sha256(zone.encode()).hexdigest()[:8]


def plan_zone_block(vpc_cidr: str, prop: str, zone: str) -> str:
    """
    Return the addresses of the private subnet of a further zone in a new VPC.

    The half with the public subnet has eight blocks. The zone's letter decides which it gets, from the end, so that a
    zone that is added or moved leaves the subnets of the others alone.

    Raises:
        ValueError: The VPC is too small, or the public subnet has the block.
    """
    vpc = ipaddress.IPv4Network(vpc_cidr)
    free = list(vpc.subnets(1))[1]
    public = next(free.subnets(new_prefix=plan_subnets(vpc_cidr).public_prefix))
    place = _LETTERS.find(zone[-1])
    if place >= 0 and vpc.prefixlen + 4 <= SMALLEST_SUBNET:
        block = list(free.subnets(3))[-1 - place]
        if not block.overlaps(public):
            return str(block)
    raise ValueError(
        f"network.cidr must have room for a subnet in the zone of {prop}, got {vpc_cidr} for {zone}; take a larger "
        "one, such as 10.0.0.0/16, or another zone"
    )


class ZoneSubnets:
    """
    Finder of the places of fallbacks, which makes a private subnet for each further zone of a new VPC.

    Args:
        scope: The network, the scope of new subnets.
        vpc: The VPC.
        first: Place of the first candidate.
        zone: Zone of the first candidate.
        new_cidr: Addresses of a new VPC; None for an existing one.
        public_master: Place the master in a public subnet.
        isolated: Give new subnets no route to the Internet.

    Attributes:
        made: New subnets by zone.
    """

    def __init__(
        self,
        scope: Construct,
        vpc: ec2.IVpc,
        first: NodePlace,
        zone: str,
        *,
        new_cidr: str | None,
        public_master: bool,
        isolated: bool,
    ) -> None:
        self._scope, self._vpc, self._first, self._zone = scope, vpc, first, zone
        self._new_cidr, self._public_master, self._isolated = new_cidr, public_master, isolated
        self.made: dict[str, ec2.ISubnet] = {}

    def find(self, choice: PlaceChoice) -> NodePlace:
        """
        Return the place of a fallback.

        Raises:
            ValueError: A subnet is in another zone or VPC or has no route, or the zone has none.
        """
        zone = choice.zone
        if zone is None or (zone == self._zone and choice.worker_subnet is None and choice.master_subnet is None):
            return self._first
        workers = choice.worker_subnet or self._find_private(choice.prop, zone)
        master = choice.master_subnet or workers
        if choice.master_subnet is None and self._public_master:
            master = first_in_zone(self._vpc.public_subnets, zone, f"{choice.prop}.master_subnet", "public")
        public = {subnet.subnet_id for subnet in self._vpc.public_subnets}
        place = NodePlace(workers, master, master.subnet_id in public)
        if self._new_cidr is None:
            self._check(choice.prop, zone, place)
        return place

    def _find_private(self, prop: str, zone: str) -> ec2.ISubnet:
        if zone == self._zone:
            return self._first.worker_subnet
        if self._new_cidr is None:
            subnets = [*self._vpc.private_subnets, *self._vpc.isolated_subnets]
            return first_in_zone(subnets, zone, f"{prop}.worker_subnet", "private")
        if zone not in self.made:
            self.made[zone] = self._make(zone, plan_zone_block(self._new_cidr, prop, zone))
        return self.made[zone]

    def _make(self, zone: str, block: str) -> ec2.ISubnet:
        subnet = ec2.PrivateSubnet(
            self._scope,
            f"Zone{digest_zone(zone)}",
            vpc_id=self._vpc.vpc_id,
            availability_zone=zone,
            cidr_block=block,
            map_public_ip_on_launch=False,
        )
        if not self._isolated:
            gateway = self._vpc.public_subnets[0].node.find_child("NATGateway")
            subnet.add_default_nat_route(cast("ec2.CfnNatGateway", gateway).ref)
            self._warn(zone)
        return subnet

    def _warn(self, zone: str) -> None:
        # EC2 on-demand pricing, "Data Transfer within the same AWS Region": 0.01 USD per GB in each direction.
        Annotations.of(self._scope).add_warning_v2(
            f"{FURTHER_ZONES}:{zone}",
            f"nodes in {zone} reach the Internet through the NAT gateway in {self._zone}: AWS charges about 0.01 USD "
            "for each gigabyte between zones, in each direction, beside the gateway's own price; S3 and DynamoDB have "
            "endpoints in the VPC and cost nothing",
        )

    def _check(self, prop: str, zone: str, place: NodePlace) -> None:
        subnets = {"worker_subnet": place.worker_subnet, "master_subnet": place.master_subnet}
        for name, subnet in subnets.items():
            check_vpc(f"{prop}.{name}", subnet, "network.vpc", self._vpc)
            named = find_zone(f"{prop}.{name}", subnet, zone)
            if named != zone and not is_token(named) and not is_dummy_value(named):
                raise ValueError(f"{prop}.{name} must lie in {zone}, got one in {named}; pass a subnet of that zone")
        if self._isolated:
            return
        check_route(f"{prop}.worker_subnet", place.worker_subnet, self._vpc, self._scope, has_public_address=False)
        if not place.has_one_subnet:
            check_route(
                f"{prop}.master_subnet",
                place.master_subnet,
                self._vpc,
                self._scope,
                has_public_address=place.has_public_master,
            )
