"""Turns the user's props into one checked plan, before anything is made or written."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.cluster_props import (
    WorkerCapacity,
    check_capacity,
    check_mount_point,
    check_setup_timeout,
    read_ssh_peer,
)
from deeplearning_cdk.instance_catalog import InstanceTypeFacts, NodeInstanceType, describe_instance_type
from deeplearning_cdk.node_image import NodeImage, choose_image
from deeplearning_cdk.node_interfaces import needs_private_subnet
from deeplearning_cdk.subnet_sizes import usable_addresses

DEFAULT_INSTANCE_TYPE = "p3dn.24xlarge"
DEFAULT_SETUP_MINUTES = 55


@dataclass(frozen=True)
class ClusterPlan:
    """
    What was chosen for the nodes.

    Attributes:
        workers: The workers' instance type.
        master: The master's instance type.
        image: What all nodes start from.
        capacity: How many workers.
        mount_point: Where nodes mount the shared file system.
        setup_timeout: Time that the stack waits.
        setup_seconds: Time of it that the nodes may use.
        ssh_peer: Who may open SSH to the master.
        key_name: EC2 key pair of the login user.
    """

    workers: InstanceTypeFacts
    master: InstanceTypeFacts
    image: NodeImage
    capacity: WorkerCapacity
    mount_point: str
    setup_timeout: Duration
    setup_seconds: int
    ssh_peer: ec2.IPeer | None
    key_name: str | None

    @property
    def takes_placement_group(self) -> bool:
        """Whether nodes can and should be near each other: accelerated types that a cluster group takes."""
        kinds = (self.workers, self.master)
        return all(kind.is_clusterable and not kind.is_burstable and kind.accelerator is not None for kind in kinds)


def plan_cluster(
    *,
    instance_types: tuple[NodeInstanceType | None, NodeInstanceType | None],
    capacity: tuple[int | None, int | None, int | None],
    image: NodeImage | None,
    mount_point: str,
    setup_timeout: Duration | None,
    ssh_peer: str | ec2.IPeer | None,
    key_pair: str | ec2.IKeyPair | None,
) -> ClusterPlan:
    """
    Plan the nodes.

    Args:
        instance_types: The workers' and the master's. Default: p3dn.24xlarge, and the workers' one.
        capacity: The workers' minimum, desired and maximum, each None for its default.
        image: Default: what drives the accelerated one of the two types.
        mount_point: Where nodes mount the shared file system.
        setup_timeout: Time that the stack waits. Default: 55 minutes.
        ssh_peer: Who may open SSH to the master. Default: nobody.
        key_pair: EC2 key pair of the login user. Default: none.

    Raises:
        ValueError: A choice cannot work.
    """
    workers = describe_instance_type("worker_instance_type", instance_types[0] or DEFAULT_INSTANCE_TYPE)
    master = describe_instance_type("master_instance_type", instance_types[1] or workers)
    timeout = setup_timeout or Duration.minutes(DEFAULT_SETUP_MINUTES)
    return ClusterPlan(
        workers=workers,
        master=master,
        image=_check_image(workers, master, image or _choose(workers, master)),
        capacity=check_capacity(*capacity),
        mount_point=check_mount_point(mount_point),
        setup_timeout=timeout,
        setup_seconds=check_setup_timeout(timeout),
        ssh_peer=read_ssh_peer(ssh_peer),
        key_name=key_pair if key_pair is None or isinstance(key_pair, str) else key_pair.key_pair_name,
    )


def _choose(workers: InstanceTypeFacts, master: InstanceTypeFacts) -> NodeImage:
    """Choose by the type that asks for more: one that no ready image drives, then an accelerated one."""
    named = (("worker_instance_type", workers), ("master_instance_type", master))
    prop, facts = max(named, key=lambda pair: (pair[1].driver_branch is not None, pair[1].accelerator is not None))
    return choose_image(prop, facts)


def _check_image(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage) -> NodeImage:
    if workers.architecture != master.architecture:
        raise ValueError(
            "master_instance_type must have the architecture of worker_instance_type, got "
            f"{master.name} ({master.architecture}) with {workers.name} ({workers.architecture}); "
            "take two types of one architecture, since all nodes start from one image"
        )
    if image.architecture != workers.architecture:
        raise ValueError(
            f"image must have the architecture of the instance types, got {image.architecture} with "
            f"{workers.name} ({workers.architecture}); pass architecture={workers.architecture!r} to the image"
        )
    return image


def check_public_master(plan: ClusterPlan) -> None:
    """
    Check that the master may live in a public subnet.

    Raises:
        ValueError: Its type has several network cards.
    """
    if needs_private_subnet(plan.master):
        raise ValueError(
            f"master_instance_type must have one network card in a public subnet, got {plan.master.name} with "
            f"{plan.master.network_cards}; leave ssh_peer out and log in through Session Manager, "
            "or pass a private master_subnet"
        )


def check_addresses(plan: ClusterPlan, cidr: str, *, holds_master: bool, others: int) -> None:
    """
    Check that the workers' subnet has an address for every node; EFA-only interfaces take none.

    Args:
        plan: The plan.
        cidr: The subnet's addresses.
        holds_master: Whether the master lives there too.
        others: Addresses that the mount target and endpoints take.

    Raises:
        ValueError: It has not.
    """
    free = usable_addresses(cidr) - others - holds_master
    if plan.capacity.maximum > free:
        raise ValueError(
            f"worker_max_capacity must not exceed the {free} addresses that {cidr} has for workers, "
            f"got {plan.capacity.maximum}; lower it, or take a larger worker_subnet or vpc_cidr"
        )
