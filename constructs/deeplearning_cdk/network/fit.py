"""Whether the nodes fit into the network: addresses for all, and one card for a master in a public subnet."""

import ipaddress

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.subnet_sizes import check_addresses, plan_subnets, usable_addresses
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.nodes.interfaces import needs_private_subnet
from deeplearning_cdk.props.looked_up import is_stand_in


def check_new_vpc(
    vpc_cidr: str, *, master: InstanceTypeFacts, most_workers: int, is_public: bool, isolated: bool
) -> None:
    """
    Check that the nodes fit into a VPC that is made for them.

    Args:
        vpc_cidr: Its addresses.
        master: The master's instance type.
        most_workers: Most workers that may be scaled to.
        is_public: Whether the master lives in the public subnet.
        isolated: Whether there is no public subnet, and interface endpoints live in the private one.

    Raises:
        ValueError: They do not.
    """
    if isolated and is_public:
        raise ValueError("ssh_peer must be left out with isolated, got both; log in through Session Manager")
    sizes = plan_subnets(vpc_cidr)
    check_addresses(
        f"the private subnet of {vpc_cidr}",
        usable_addresses(sizes.private_prefix),
        workers=most_workers,
        has_master=not is_public,
        isolated=isolated,
    )
    if is_public:
        check_public_master(master)


def check_network(network: ClusterNetwork, *, master: InstanceTypeFacts, most_workers: int, isolated: bool) -> None:
    """
    Check that the nodes fit into a network, as far as the user's subnets say their addresses.

    Args:
        network: The network.
        master: The master's instance type.
        most_workers: Most workers that may be scaled to.
        isolated: Whether interface endpoints live in the workers' subnet.

    Raises:
        ValueError: A subnet cannot hold the nodes.
    """
    if network.has_public_master:
        check_public_master(master)
    cidr = _read_cidr(network.worker_subnet)
    if cidr is not None:
        check_addresses(
            f"worker_subnet {cidr}",
            usable_addresses(ipaddress.IPv4Network(cidr, strict=False).prefixlen),
            workers=most_workers,
            has_master=network.master_subnet.subnet_id == network.worker_subnet.subnet_id,
            isolated=isolated,
        )


def check_public_master(master: InstanceTypeFacts) -> None:
    """
    Check that the master may live in a public subnet.

    Raises:
        ValueError: Its type has several network cards, and EC2 gives no public address to several interfaces.
    """
    if needs_private_subnet(master):
        raise ValueError(
            f"master_instance_type must have one network card in a public subnet, got {master.name} with "
            f"{master.network_cards}; leave ssh_peer out and log in through Session Manager, "
            "or pass a private master_subnet"
        )


def _read_cidr(subnet: ec2.ISubnet) -> str | None:
    try:
        cidr = subnet.ipv4_cidr_block
    except RuntimeError:
        # An imported subnet whose user did not say its addresses.
        return None
    return None if Token.is_unresolved(cidr) or is_stand_in(cidr) else cidr
