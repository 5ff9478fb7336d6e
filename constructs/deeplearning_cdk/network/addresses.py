"""Addresses of a VPC: its division into subnets, and the number of nodes that fit into one."""

import ipaddress
from dataclasses import dataclass
from typing import Annotated

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.network.interfaces import needs_private_subnet
from deeplearning_cdk.props.check import Rule, is_dummy_value

_RESERVED = 5
"""Addresses of a subnet that AWS keeps: the first four and the last."""

_WIDEST_OWN = {4: 8, 6: 16}
"""Shortest prefix of a network that one party may have, by version of IP: 10.0.0.0/8, and no IPv6 block is larger."""

_LARGEST_VPC, _SMALLEST_VPC = 16, 26
SMALLEST_SUBNET = 28
"""Prefix length of the smallest subnet."""

LARGEST_SUBNET_ADDRESSES = 65_531
"""Addresses for instances in a /16, the largest subnet (EC2 API reference, CreateSubnet)."""

INTERFACE_ENDPOINTS = ("AUTOSCALING", "CLOUDWATCH_LOGS", "EVENTBRIDGE", "SQS", "SSM", "SSM_MESSAGES")
"""
Services that nodes without a route to the Internet call, beside S3 and DynamoDB, which have gateway endpoints.

SQS and DynamoDB call KMS themselves, so nodes need no KMS endpoint; metrics are sent as log lines. Session Manager
needs no ec2messages since version 3.3.40 of its agent, and the newest regions do not have it.
"""


@dataclass(frozen=True)
class SubnetSizes:
    """Prefix lengths of the private subnet, which holds the nodes, and of the public one."""

    private_prefix: int
    public_prefix: int


def plan_subnets(vpc_cidr: str) -> SubnetSizes:
    """Assign half of the VPC to the private tier, and a /24 or a quarter to the public one."""
    prefix = ipaddress.IPv4Network(vpc_cidr).prefixlen
    return SubnetSizes(private_prefix=prefix + 1, public_prefix=min(SMALLEST_SUBNET, max(prefix + 2, 24)))


def is_ipv4_network(text: str) -> bool:
    """Return whether a text is an IPv4 network in CIDR form with its host bits 0."""
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return "/" in text


def is_everyone(text: str) -> bool:
    """Return whether a text is a network wider than one party may have: IPv4 beyond a /8, IPv6 beyond a /16."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return network.prefixlen < _WIDEST_OWN[network.version]


def is_public_network(text: str) -> bool:
    """Return whether an IPv4 network is on the Internet, and neither private nor reserved as a whole."""
    network = ipaddress.IPv4Network(text)
    return network.is_global and not network.is_multicast


VpcCidr = Annotated[
    str,
    Rule(must="be an IPv4 network with its host bits 0", remedy="write e.g. 10.0.0.0/16", is_kept=is_ipv4_network),
    Rule(
        must=f"be from /{_LARGEST_VPC} to /{_SMALLEST_VPC}",
        remedy="a VPC takes no more, and two subnets must fit",
        is_kept=lambda text: _LARGEST_VPC <= ipaddress.IPv4Network(text).prefixlen <= _SMALLEST_VPC,
    ),
]


def usable_addresses(prefix: int) -> int:
    """Return the number of addresses for instances in a subnet of a prefix length."""
    return (1 << (32 - prefix)) - _RESERVED


def check_subnet(
    worker_subnet: ec2.ISubnet,
    *,
    has_master: bool,
    master: InstanceTypeFacts,
    most_workers: int,
    is_public: bool,
    isolated: bool,
    prop: str = "network",
) -> None:
    """
    Check that the nodes fit into the workers' subnet, as far as its addresses are known; `prop` is what names it.

    Raises:
        ValueError: A subnet cannot hold the nodes.
    """
    if is_public:
        _check_public_master(master)
    cidr = _read_cidr(worker_subnet)
    if cidr is not None:
        check_addresses(
            f"{prop}.worker_subnet {cidr}",
            usable_addresses(ipaddress.IPv4Network(cidr, strict=False).prefixlen),
            workers=most_workers,
            has_master=has_master,
            isolated=isolated,
        )


def check_addresses(subnet: str, usable: int, *, workers: int, has_master: bool, isolated: bool) -> None:
    """
    Check that a subnet has an address for every node; an EFA-only interface takes none.

    One address is for the mount target, and `isolated` takes one for each interface endpoint.

    Raises:
        ValueError: It has too few.
    """
    others = 1 + has_master + (len(INTERFACE_ENDPOINTS) if isolated else 0)
    if workers > usable - others:
        raise ValueError(
            f"workers.max_capacity must not exceed the {max(0, usable - others)} addresses that {subnet} has for "
            f"workers, got {workers}; lower workers.max_capacity or workers.desired_capacity, or take a larger subnet"
        )


def _check_public_master(master: InstanceTypeFacts) -> None:
    if needs_private_subnet(master):
        raise ValueError(
            f"master.instance_type must have one network card in a public subnet, got {master.name} with "
            f"{master.network_cards}; leave master.ssh_peer out and log in through Session Manager, "
            "or pass a private network.master_subnet"
        )


def _read_cidr(subnet: ec2.ISubnet) -> str | None:
    try:
        cidr = subnet.ipv4_cidr_block
    except RuntimeError:
        # An imported subnet without its addresses.
        return None
    return None if Token.is_unresolved(cidr) or is_dummy_value(cidr) else cidr
