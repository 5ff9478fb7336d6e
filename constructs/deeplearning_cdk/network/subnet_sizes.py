"""How a VPC's addresses are cut into subnets, and how many nodes a subnet takes."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated

from deeplearning_cdk.props.check import Rule

_RESERVED = 5
"""Addresses of a subnet that AWS keeps: the first four and the last."""

_WIDEST_OWN = {4: 8, 6: 16}
"""Shortest prefix of a network that one party may have, by version of IP: 10.0.0.0/8, and no IPv6 block is larger."""

_LARGEST_VPC, _SMALLEST_VPC, _SMALLEST_SUBNET = 16, 26, 28

LARGEST_SUBNET_ADDRESSES = 65_531
"""What instances can have in a /16, the largest subnet (EC2 API reference, CreateSubnet)."""

INTERFACE_ENDPOINTS = ("AUTOSCALING", "CLOUDWATCH_LOGS", "EVENTBRIDGE", "SQS", "SSM", "SSM_MESSAGES")
"""
What nodes without a route to the Internet call beside the gateways of S3 and DynamoDB.

Queues and tables call KMS themselves, so nodes need no endpoint of it; metrics go as log lines.
Session Manager needs no ec2messages since version 3.3.40 of its agent, and the newest regions do not have it.
"""


@dataclass(frozen=True)
class SubnetSizes:
    """Prefix lengths of the private subnet, where the nodes live, and of the public one."""

    private_prefix: int
    public_prefix: int


def plan_subnets(vpc_cidr: str) -> SubnetSizes:
    """
    Give the private tier half of the VPC, and the public one a /24 or a quarter.

    Args:
        vpc_cidr: IPv4 network of the VPC.
    """
    prefix = ipaddress.IPv4Network(vpc_cidr).prefixlen
    return SubnetSizes(private_prefix=prefix + 1, public_prefix=min(_SMALLEST_SUBNET, max(prefix + 2, 24)))


def is_ipv4_network(text: str) -> bool:
    """Tell whether a text is an IPv4 network in CIDR form with its host bits 0."""
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return "/" in text


def is_everyone(text: str) -> bool:
    """Tell whether a text is a network wider than anybody's own: IPv4 beyond a /8, IPv6 beyond a /16."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return network.prefixlen < _WIDEST_OWN[network.version]


VpcCidr = Annotated[
    str,
    Rule(must="be an IPv4 network with its host bits 0", remedy="write e.g. 10.0.0.0/16", is_kept=is_ipv4_network),
    Rule(
        must=f"be from /{_LARGEST_VPC} to /{_SMALLEST_VPC}",
        remedy="a VPC takes no more, and two subnets must fit",
        is_kept=lambda text: _LARGEST_VPC <= ipaddress.IPv4Network(text).prefixlen <= _SMALLEST_VPC,
    ),
]
"""Addresses of a new VPC."""


def usable_addresses(prefix: int) -> int:
    """Return how many addresses instances can have in a subnet of a prefix length."""
    return (1 << (32 - prefix)) - _RESERVED


def check_addresses(subnet: str, usable: int, *, workers: int, has_master: bool, isolated: bool) -> None:
    """
    Check that a subnet has an address for every node; an EFA-only interface takes none.

    Args:
        subnet: What the subnet is, for the error.
        usable: Addresses that instances can have.
        workers: Most workers.
        has_master: Whether the master lives there too.
        isolated: Whether interface endpoints live there too.

    Raises:
        ValueError: It has not.
    """
    others = 1 + has_master + (len(INTERFACE_ENDPOINTS) if isolated else 0)
    if workers > usable - others:
        raise ValueError(
            f"worker_max_capacity must not exceed the {max(0, usable - others)} addresses that {subnet} has for "
            f"workers, got {workers}; lower worker_max_capacity or worker_desired_capacity, or take a larger subnet"
        )
