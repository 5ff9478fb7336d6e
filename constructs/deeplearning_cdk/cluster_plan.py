"""Turns the user's props into one checked plan, before anything is made or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk.capacity.purchase import ChosenPurchase, Purchase, check_purchase
from deeplearning_cdk.cluster_props import (
    AlarmTopic,
    AvailabilityZone,
    EncryptionKey,
    FileSystemId,
    FileSystemThroughput,
    ImageRelease,
    KeyPair,
    NewRemovalPolicy,
    SetupTimeout,
    SshPeer,
    VolumeSize,
    WorkerCapacity,
    WorkerCount,
    check_capacity,
    count_setup_seconds,
    make_peer,
)
from deeplearning_cdk.images.choice import ChosenImage, take_image
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.cluster_network import DEFAULT_VPC_CIDR
from deeplearning_cdk.network.fit import check_new_vpc
from deeplearning_cdk.network.subnet_sizes import VpcCidr
from deeplearning_cdk.nodes.efa_choice import describe_types
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts, NodeInstanceType
from deeplearning_cdk.nodes.interfaces import describe_hardware
from deeplearning_cdk.nodes.user_scripts import Script, SetupScripts, take_setup
from deeplearning_cdk.operations.spending import NO_LIMIT, Spending, check_spending
from deeplearning_cdk.props.check import checked
from deeplearning_cdk.security.node_roles import OwnAccess
from deeplearning_cdk.software.choice import take_environment
from deeplearning_cdk.software.environment_cache import ChosenCache, EnvironmentCache, take_cache
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.cluster_storage import StorageProps
from deeplearning_cdk.storage.data_source import DataSource, check_data
from deeplearning_cdk.storage.lustre_client import add_lustre_client
from deeplearning_cdk.storage.lustre_file_system import LustreFileSystem
from deeplearning_cdk.storage.mount_point import MountPoint
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
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
        master_purchase: How the master is paid for.
        setup_timeout: Time that the stack waits.
        setup_seconds: Time of it that the nodes may use.
        ssh_peer: Who may open SSH to the master.
        key_name: EC2 key pair of the login user.
        storage: What the nodes mount, and the data that is brought there.
        environment: The software that jobs run in; None for the image's own.
        environment_cache: Where it is kept for other clusters; None for nowhere.
        volume_size: Size of each root volume; None for the default.
        setup_scripts: What runs as root on the nodes of each role.
        run_script: What runs on the formed master; None without.
        image_release: Changed to take the image's current release.
        encryption_key: The user's key; None for one of the cluster's own.
        alarm_topic: Where the user's alarms go; None for a topic of the cluster's own.
        spending: When the cluster stops by itself, and the budget that watches it.
        access: The user's roles and security groups of the nodes.
    """

    workers: InstanceTypeFacts
    master: InstanceTypeFacts
    image: NodeImage
    capacity: WorkerCapacity
    purchase: Purchase
    master_purchase: Purchase
    setup_timeout: Duration
    setup_seconds: int
    ssh_peer: ec2.IPeer | None
    key_name: str | None
    storage: StorageProps
    environment: JobEnvironment | None = None
    environment_cache: EnvironmentCache | None = None
    volume_size: Size | int | None = None
    setup_scripts: SetupScripts = field(default_factory=SetupScripts)
    run_script: str | ec2.UserData | None = None
    image_release: str = "1"
    encryption_key: kms.IKey | None = None
    alarm_topic: sns.ITopic | None = None
    spending: Spending = NO_LIMIT
    access: OwnAccess = field(default_factory=OwnAccess)

    @property
    def placed_roles(self) -> tuple[NodeRole, ...]:
        """
        The roles whose nodes can and should be near each other, in a placement group of the cluster's own.

        These are accelerated types that a cluster group takes; a master that does not train need not be near.
        """
        placed = [role for role in NodeRole if _is_placeable(self.facts_of(role), self.purchase_of(role))]
        return tuple(placed) if NodeRole.WORKER in placed else ()

    def facts_of(self, role: NodeRole) -> InstanceTypeFacts:
        """Return the instance type of a role."""
        return self.master if role is NodeRole.MASTER else self.workers

    def purchase_of(self, role: NodeRole) -> Purchase:
        """Return how the nodes of a role are paid for."""
        return self.master_purchase if role is NodeRole.MASTER else self.purchase

    @property
    def block_id(self) -> str:
        """Id of the Capacity Block whose end the nodes are to know; empty without one."""
        return self.purchase.block_id or self.master_purchase.block_id

    @property
    def has_head_node(self) -> bool:
        """Whether the master leads without training: it has no accelerator, and the workers have some."""
        return self.master.accelerator is None and self.workers.accelerator is not None

    @property
    def keeps_data(self) -> bool:
        """Whether the stack may leave something behind that needs the key."""
        return self.storage.outlives_stack

    @property
    def hardware(self) -> Mapping[str, HardwareSettings]:
        """Role -> what its nodes have."""
        return {role.value: describe_hardware(self.facts_of(role)) for role in NodeRole}


@checked
def plan_cluster(
    *,
    worker_instance_type: NodeInstanceType | None = None,
    master_instance_type: NodeInstanceType | None = None,
    worker_min_capacity: WorkerCount | None = None,
    worker_desired_capacity: WorkerCount | None = None,
    worker_max_capacity: WorkerCount | None = None,
    worker_purchase: ChosenPurchase | None = None,
    master_purchase: ChosenPurchase | None = None,
    availability_zone: AvailabilityZone | None = None,
    image: ChosenImage | None = None,
    ssh_peer: SshPeer | None = None,
    key_pair: KeyPair | None = None,
    mount_point: MountPoint = "/efs",
    setup_script: SetupScripts | Script | None = None,
    run_script: Script | None = None,
    setup_timeout: SetupTimeout | None = None,
    vpc_cidr: VpcCidr | None = DEFAULT_VPC_CIDR,
    isolated: bool = False,
    efa: bool = True,
    file_system: SharedFileSystem | efs.IFileSystem | None = None,
    file_system_id: FileSystemId | None = None,
    file_system_throughput: FileSystemThroughput | None = None,
    mount_target_security_group: ec2.ISecurityGroup | None = None,
    removal_policy: NewRemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    lustre: LustreFileSystem | None = None,
    data: Sequence[DataSource] = (),
    environment: JobEnvironment | None = None,
    environment_cache: ChosenCache | None = None,
    volume_size: VolumeSize | None = None,
    image_release: ImageRelease = "1",
    encryption_key: EncryptionKey | None = None,
    file_system_backup: bool = True,
    alarm_topic: AlarmTopic | None = None,
    spending: Spending | None = None,
    master_role: iam.IRole | None = None,
    worker_role: iam.IRole | None = None,
    security_groups: Sequence[ec2.ISecurityGroup] = (),
) -> ClusterPlan:
    """
    Check the props of `TrainingCluster` that need no construct, and fill in what was left out.

    The props are those of `TrainingCluster`; `vpc_cidr` is None with a VPC of the user's, and `availability_zone` is
    that of the user's subnet where there is one.

    Raises:
        ValueError: A choice cannot work.
    """
    workers, master = describe_types(worker_instance_type, master_instance_type, DEFAULT_INSTANCE_TYPE, efa=efa)
    chosen = take_image(image, workers, master, isolated=isolated)
    timeout = setup_timeout or Duration.minutes(DEFAULT_SETUP_MINUTES)
    plan = ClusterPlan(
        workers=workers,
        master=master,
        image=add_lustre_client(chosen) if lustre else chosen,
        capacity=check_capacity(worker_min_capacity, worker_desired_capacity, worker_max_capacity),
        purchase=check_purchase("worker_purchase", worker_purchase, availability_zone),
        master_purchase=check_purchase("master_purchase", master_purchase, availability_zone),
        setup_timeout=timeout,
        setup_seconds=count_setup_seconds(timeout),
        ssh_peer=make_peer(ssh_peer),
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
            has_backup=file_system_backup,
        ),
        environment=take_environment(environment, environment_cache, (workers, master), chosen, isolated=isolated),
        environment_cache=take_cache(environment_cache),
        volume_size=volume_size,
        setup_scripts=take_setup(setup_script),
        run_script=run_script,
        image_release=image_release,
        encryption_key=encryption_key,
        alarm_topic=alarm_topic,
        spending=check_spending(spending or NO_LIMIT, timeout),
        access=OwnAccess(master_role, worker_role, tuple(security_groups)),
    )
    _check_new_vpc(plan, vpc_cidr, isolated=isolated)
    return plan


def _check_new_vpc(plan: ClusterPlan, vpc_cidr: str | None, *, isolated: bool) -> None:
    if vpc_cidr is None:
        return
    plan.storage.check_new_vpc()
    is_public, most_workers = plan.ssh_peer is not None, plan.capacity.maximum
    check_new_vpc(vpc_cidr, master=plan.master, most_workers=most_workers, is_public=is_public, isolated=isolated)


def _is_placeable(facts: InstanceTypeFacts, purchase: Purchase) -> bool:
    return facts.is_clusterable and not facts.is_burstable and facts.accelerator is not None and purchase.is_placeable
