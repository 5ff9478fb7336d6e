"""Prop `network` of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.network.addresses import VpcCidr
from deeplearning_cdk.network.zones import find_zone
from deeplearning_cdk.props.check import Rule, check_fields, names_checked
from deeplearning_cdk.props.regions import may_be_zone
from deeplearning_cdk.props.rules import matching

AvailabilityZone = Annotated[
    str,
    matching(
        r"[a-z][a-z0-9-]{1,63}", "be the name of an availability zone", "write e.g. us-east-1a", takes_tokens=True
    ),
    Rule(
        must="begin with the name of an AWS region",
        remedy="write e.g. us-east-1a",
        is_kept=may_be_zone,
        can_carry=lambda _: True,
    ),
]
"""Zone of all nodes."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class Network:
    """
    The network of a cluster.

    Attributes:
        vpc: VPC of the nodes. Default: a new one.
        cidr: Addresses of a new VPC, /16 to /26. Default: 10.0.0.0/16.
        availability_zone: Zone of all nodes; needed with a subnet that does not name its own. Default: the region's
            first, or that of the subnet.
        worker_subnet: Subnet of the workers in `vpc`. Default: the zone's first private one.
        master_subnet: Subnet of the master in `vpc`. Default: the workers' subnet, or with `master.ssh_peer` the zone's
            first public one where the VPC has one.
        isolated: Give nodes no route to the Internet, and create the endpoints that they need. Default: nodes use the
            NAT gateway of a new VPC, or the routes of `vpc`.
        efa: Use EFA on accelerated types that support it, and install AWS's EFA software where the image lacks it; if
            False, NCCL uses TCP. Default: EFA is used.
        security_groups: Additional security groups of every node, such as one that a database allows. Default: none.
    """

    vpc: ec2.IVpc | None = None
    cidr: VpcCidr | None = None
    availability_zone: AvailabilityZone | None = None
    worker_subnet: ec2.ISubnet | None = None
    master_subnet: ec2.ISubnet | None = None
    isolated: bool = False
    efa: bool = True
    security_groups: Sequence[ec2.ISecurityGroup] = ()

    def __post_init__(self) -> None:
        check_fields(self, "network.")
        if self.vpc is not None and self.cidr is not None:
            raise ValueError(
                f"network.cidr must be left out with network.vpc, got {self.cidr!r}; the VPC has its own addresses"
            )
        if self.vpc is None and (self.worker_subnet or self.master_subnet):
            raise ValueError(
                "network.vpc must be given with network.worker_subnet or network.master_subnet, got none; pass the "
                "subnets' VPC"
            )
        if self.vpc is None and self.security_groups:
            raise ValueError(
                "network.vpc must be given with network.security_groups, got none; pass the groups' VPC, since a new "
                "VPC has none of them"
            )

    @property
    def zone(self) -> str | None:
        """Zone of all nodes; None when neither zone nor subnet names it."""
        if self.worker_subnet is None:
            return self.availability_zone
        return self.availability_zone or find_zone("network.worker_subnet", self.worker_subnet)
