"""Turns the user's props into one checked plan, before anything is made or written."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration, RemovalPolicy, Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.cluster_network import DEFAULT_VPC_CIDR, ClusterNetwork
from deeplearning_cdk.cluster_props import (
    FileSystemThroughput,
    WorkerCapacity,
    check_capacity,
    check_file_system_id,
    check_mount_point,
    check_script,
    check_setup_timeout,
    check_throughput,
    read_ssh_peer,
)
from deeplearning_cdk.cluster_storage import StorageProps
from deeplearning_cdk.data_source import DataSource, check_data
from deeplearning_cdk.instance_catalog import InstanceTypeFacts, NodeInstanceType, describe_instance_type
from deeplearning_cdk.job_environment import JobEnvironment
from deeplearning_cdk.lustre_client import add_lustre_client
from deeplearning_cdk.lustre_file_system import LustreFileSystem
from deeplearning_cdk.node_image import NodeImage, choose_image
from deeplearning_cdk.node_interfaces import describe_hardware, needs_private_subnet
from deeplearning_cdk.purchase import Purchase, read_purchase
from deeplearning_cdk.shared_file_system import SharedFileSystem
from deeplearning_cdk.subnet_sizes import check_addresses, plan_subnets, usable_addresses
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import HardwareSettings

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
        purchase: How the workers are paid for.
        setup_timeout: Time that the stack waits.
        setup_seconds: Time of it that the nodes may use.
        ssh_peer: Who may open SSH to the master.
        key_name: EC2 key pair of the login user.
        storage: What the nodes mount, and the data that is brought there.
        environment: The software that jobs run in; None for the image's own.
    """

    workers: InstanceTypeFacts
    master: InstanceTypeFacts
    image: NodeImage
    capacity: WorkerCapacity
    purchase: Purchase
    setup_timeout: Duration
    setup_seconds: int
    ssh_peer: ec2.IPeer | None
    key_name: str | None
    storage: StorageProps
    environment: JobEnvironment | None = None

    @property
    def is_placed(self) -> bool:
        """Whether nodes can and should be near each other: accelerated types that a cluster group takes."""
        kinds = (self.workers, self.master)
        return self.purchase.is_placeable and all(
            kind.is_clusterable and not kind.is_burstable and kind.accelerator is not None for kind in kinds
        )

    @property
    def hardware(self) -> Mapping[str, HardwareSettings]:
        """Role -> what its nodes have."""
        return {
            role.value: describe_hardware(facts)
            for role, facts in ((NodeRole.MASTER, self.master), (NodeRole.WORKER, self.workers))
        }


def plan_cluster(
    *,
    worker_instance_type: NodeInstanceType | None = None,
    master_instance_type: NodeInstanceType | None = None,
    worker_min_capacity: int | None = None,
    worker_desired_capacity: int | None = None,
    worker_max_capacity: int | None = None,
    worker_purchase: str | None = None,
    image: NodeImage | None = None,
    ssh_peer: str | ec2.IPeer | None = None,
    key_pair: str | ec2.IKeyPair | None = None,
    mount_point: str = "/efs",
    setup_script: str | None = None,
    run_script: str | None = None,
    setup_timeout: Duration | None = None,
    vpc_cidr: str | None = DEFAULT_VPC_CIDR,
    isolated: bool = False,
    file_system: SharedFileSystem | None = None,
    file_system_id: str | None = None,
    file_system_throughput: FileSystemThroughput | None = None,
    mount_target_security_group: ec2.ISecurityGroup | None = None,
    removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    lustre: LustreFileSystem | None = None,
    data: Sequence[DataSource] = (),
    environment: JobEnvironment | None = None,
) -> ClusterPlan:
    """
    Check the props of `TrainingCluster` that need no construct, and fill in what was left out.

    The props are those of `TrainingCluster`; `vpc_cidr` is None with a VPC of the user's.

    Raises:
        ValueError: A choice cannot work.
    """
    check_mount_point(mount_point)
    check_file_system_id(file_system_id)
    check_throughput(file_system_throughput, file_system_id)
    check_script("setup_script", setup_script)
    check_script("run_script", run_script)
    workers = describe_instance_type("worker_instance_type", worker_instance_type or DEFAULT_INSTANCE_TYPE)
    master = describe_instance_type("master_instance_type", master_instance_type or workers)
    chosen = _check_image(workers, master, image or _choose_image(workers, master))
    timeout = setup_timeout or Duration.minutes(DEFAULT_SETUP_MINUTES)
    plan = ClusterPlan(
        workers=workers,
        master=master,
        image=add_lustre_client(chosen) if lustre else chosen,
        capacity=check_capacity(worker_min_capacity, worker_desired_capacity, worker_max_capacity),
        purchase=read_purchase(worker_purchase),
        setup_timeout=timeout,
        setup_seconds=check_setup_timeout(timeout),
        ssh_peer=read_ssh_peer(ssh_peer),
        key_name=key_pair if key_pair is None or isinstance(key_pair, str) else key_pair.key_pair_name,
        storage=StorageProps(
            mount_point=mount_point,
            file_system=file_system,
            file_system_id=file_system_id,
            throughput=file_system_throughput,
            mount_target_security_group=mount_target_security_group,
            removal_policy=removal_policy,
            lustre=lustre,
            mode=chosen.file_system_mode,
            data=check_data(data, has_lustre=lustre is not None),
        ),
        environment=environment,
    )
    if vpc_cidr is not None:
        _check_new_vpc(plan, vpc_cidr, isolated=isolated)
    return plan


def _choose_image(workers: InstanceTypeFacts, master: InstanceTypeFacts) -> NodeImage:
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


def _check_new_vpc(plan: ClusterPlan, vpc_cidr: str, *, isolated: bool) -> None:
    is_public = plan.ssh_peer is not None
    if isolated and is_public:
        raise ValueError("ssh_peer must be left out with isolated, got both; log in through Session Manager")
    sizes = plan_subnets(vpc_cidr)
    check_addresses(
        f"the private subnet of {vpc_cidr}",
        usable_addresses(sizes.private_prefix),
        workers=plan.capacity.maximum,
        has_master=not is_public,
        isolated=isolated,
    )
    if is_public:
        check_public_master(plan)


def check_network(plan: ClusterPlan, network: ClusterNetwork, *, isolated: bool) -> None:
    """
    Check a network against the plan, as far as the user's subnets say their addresses.

    Args:
        plan: The plan.
        network: The network.
        isolated: Whether interface endpoints live in the workers' subnet.

    Raises:
        ValueError: A subnet cannot hold the nodes.
    """
    if network.has_public_master:
        check_public_master(plan)
    cidr = _read_cidr(network.worker_subnet)
    if cidr is not None:
        check_addresses(
            f"worker_subnet {cidr}",
            usable_addresses(ipaddress.IPv4Network(cidr).prefixlen),
            workers=plan.capacity.maximum,
            has_master=network.master_subnet.subnet_id == network.worker_subnet.subnet_id,
            isolated=isolated,
        )


def _read_cidr(subnet: ec2.ISubnet) -> str | None:
    try:
        cidr = subnet.ipv4_cidr_block
    except RuntimeError:
        # An imported subnet whose user did not say its addresses.
        return None
    return None if Token.is_unresolved(cidr) else cidr


def check_public_master(plan: ClusterPlan) -> None:
    """
    Check that the master may live in a public subnet.

    Raises:
        ValueError: Its type has several network cards, and EC2 gives no public address to several interfaces.
    """
    if needs_private_subnet(plan.master):
        raise ValueError(
            f"master_instance_type must have one network card in a public subnet, got {plan.master.name} with "
            f"{plan.master.network_cards}; leave ssh_peer out and log in through Session Manager, "
            "or pass a private master_subnet"
        )
