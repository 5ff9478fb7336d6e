"""How a VPC's addresses are cut into subnets, and how many nodes a subnet takes."""

import ipaddress
from dataclasses import dataclass

RESERVED_ADDRESSES = 5
"""Addresses of a subnet that AWS keeps: the first four and the last."""

_LARGEST, _SMALLEST = 16, 26
_SMALLEST_SUBNET = 28


@dataclass(frozen=True)
class SubnetSizes:
    """Prefix lengths of the private subnet, where the nodes live, and of the public one."""

    private_prefix: int
    public_prefix: int


def plan_subnets(vpc_cidr: str) -> SubnetSizes:
    """
    Give the private tier half of the VPC, and the public one a /24 or what is left.

    Args:
        vpc_cidr: IPv4 network of the VPC.

    Raises:
        ValueError: It is not an IPv4 network from /16 to /26.
    """
    try:
        network = ipaddress.IPv4Network(vpc_cidr)
    except ValueError as error:
        raise ValueError(f"vpc_cidr must be an IPv4 network, got {vpc_cidr!r} ({error}); write e.g. 10.0.0.0/16") from error
    if not _LARGEST <= network.prefixlen <= _SMALLEST or "/" not in vpc_cidr:
        raise ValueError(
            f"vpc_cidr must be from /{_LARGEST} to /{_SMALLEST}, got {vpc_cidr!r}; "
            "AWS takes /16 at the most, and two subnets must fit"
        )
    public = min(_SMALLEST_SUBNET, max(network.prefixlen + 2, 24))
    return SubnetSizes(private_prefix=network.prefixlen + 1, public_prefix=public)


def usable_addresses(cidr: str) -> int:
    """Return how many addresses of a subnet instances can have."""
    return max(0, ipaddress.IPv4Network(cidr).num_addresses - RESERVED_ADDRESSES)
