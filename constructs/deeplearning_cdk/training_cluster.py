"""The cluster: one master and its workers, formed and checked before the stack is complete."""

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.capacity.purchase import ChosenPurchase
from deeplearning_cdk.cluster_assembly import ClusterAssembly
from deeplearning_cdk.cluster_plan import plan_cluster
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
    WorkerCount,
)
from deeplearning_cdk.images.choice import ChosenImage
from deeplearning_cdk.network.cluster_network import DEFAULT_VPC_CIDR, Place
from deeplearning_cdk.network.subnet_sizes import VpcCidr
from deeplearning_cdk.nodes.instance_catalog import NodeInstanceType
from deeplearning_cdk.nodes.user_scripts import Script, SetupScripts
from deeplearning_cdk.operations.spending import Spending
from deeplearning_cdk.software.environment_cache import ChosenCache
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre_file_system import LustreFileSystem
from deeplearning_cdk.storage.mount_point import MountPoint
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem


class TrainingCluster(ClusterAssembly):
    """
    A master and workers that find each other, share a file system, and train over SSH.

    The stack is complete when every counted node has reported; otherwise it fails with the reason.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        worker_instance_type: Type of the workers. Default: p3dn.24xlarge.
        master_instance_type: Type of the master; one without accelerators beside workers with some leads and runs no
            ranks. Default: the workers' type.
        worker_min_capacity: Fewest workers with which the cluster may form. Default: 1, or 0 without workers.
        worker_desired_capacity: Workers to launch. Default: 3, or the nearest that minimum and maximum allow.
        worker_max_capacity: Most workers that may be scaled to later. Default: the desired capacity.
        worker_purchase: How the workers are paid for: on demand, as spot instances, or in a reservation or
            Capacity Block of the zone `availability_zone`. Default: on demand.
        master_purchase: How the master is paid for; the stack completes only while it can launch. Default: on demand,
            whatever the workers' is.
        image: What all nodes start from. Default: what drives the instance type: the PyTorch Deep Learning AMI on
            Ubuntu, stock Ubuntu with the proprietary driver for P3, stock Ubuntu for CPU types.
        volume_size: Size of each node's root volume. Default: 150 GiB.
        ssh_peer: Network, prefix list or peer that may open SSH to the master, which a new VPC then has in its
            public subnet. Default: nobody; log in through Session Manager.
        key_pair: EC2 key pair of the login user. Default: none.
        mount_point: Where nodes mount the shared file system, the value of `EFS_MOUNT`. Default: /efs.
        setup_script: Path of a script that runs as root on every node before it joins, `ec2.UserData` for Linux in
            its place, or `SetupScripts` with one for each role. Default: none.
        run_script: Path of a script, or `ec2.UserData`, that runs as the login user on the master once the cluster
            has formed; from there `deeplearning exec` runs a command on every node. Default: none.
        setup_timeout: Time that the stack waits for the cluster. Default: 55 minutes.
        vpc: The user's VPC. Default: a new one.
        vpc_cidr: Addresses of a new VPC, /16 to /26. Default: 10.0.0.0/16.
        availability_zone: Zone of all nodes; needed with a subnet that does not name its own. Default: the region's
            first, or that of the user's subnet.
        worker_subnet: Subnet of the workers in the user's VPC. Default: the zone's first private one.
        master_subnet: Subnet of the master in the user's VPC. Default: the workers' one, or with `ssh_peer` the
            zone's first public one where the VPC has one.
        isolated: Nodes have no route to the Internet, and the endpoints that they need are made. Default: they go
            through a new VPC's NAT gateway, or as the user's VPC lets them.
        efa: Nodes of accelerated types with EFA use it, and install AWS's software for it where the image has none;
            without, NCCL speaks TCP. Default: they do.
        file_system: That of another cluster in its VPC and zone, where jobs of one name are one job, or an EFS file
            system with a mount target in the zone. Default: its own.
        file_system_id: An existing file system. Default: a new one.
        file_system_throughput: Of a new file system: `elastic`, `bursting`, or a size for each second, which is
            provisioned. Default: elastic.
        mount_target_security_group: Group of the mount target that the existing file system already has in the
            zone. Default: a mount target is made.
        removal_policy: What becomes of a new file system with the stack. Default: kept, unless its creation fails.
        lustre: FSx for Lustre that all nodes mount beside the file system. Default: none.
        data: What is brought from S3 to /opt/deeplearning/data on every node. Default: nothing.
        environment: The software that jobs run in, built once a cluster. Default: Horovod, and PyTorch where the image
            has no framework; nothing for AWS's own accelerators.
        environment_cache: `EnvironmentCache`, or a bucket, which keeps finished environments for other clusters.
            Default: they stay on the shared file system.
        image_release: Another text than before takes the image's current release; until then it stays that of the
            creation. Default: 1.
        encryption_key: Encrypts everything that can be. Default: a key of the cluster's own.
        file_system_backup: A new file system is backed up every day. Default: it is.
        alarm_topic: Where alarms go. Default: a topic of the cluster's own.
        spending: When the cluster stops by itself, and its budget. Default: it never stops, and a warning says so.
        master_role: Role of the master, to which its rights are attached. Default: a new one.
        worker_role: Role of the workers, made in the app, to which their rights are attached. Default: a new one.
        security_groups: Further groups of every node, such as one that a database admits. Default: none.

    Attributes:
        cluster_name: The cluster's name, the value of the tag `deeplearning:cluster`.
        encryption: The key of the cluster.
        network: Where the nodes live.
        file_system: What all nodes mount.
        coordination: State item, queues, topic and the stack's wait.
        adjuster: The capacity adjuster.
        node_log: What the nodes log.
        monitoring: Dashboard and alarms.

    Raises:
        ValueError: A choice cannot work; the message names the prop, the rule and a way out.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        worker_instance_type: NodeInstanceType | None = None,
        master_instance_type: NodeInstanceType | None = None,
        worker_min_capacity: WorkerCount | None = None,
        worker_desired_capacity: WorkerCount | None = None,
        worker_max_capacity: WorkerCount | None = None,
        worker_purchase: ChosenPurchase | None = None,
        master_purchase: ChosenPurchase | None = None,
        image: ChosenImage | None = None,
        volume_size: VolumeSize | None = None,
        ssh_peer: SshPeer | None = None,
        key_pair: KeyPair | None = None,
        mount_point: MountPoint = "/efs",
        setup_script: SetupScripts | Script | None = None,
        run_script: Script | None = None,
        setup_timeout: SetupTimeout | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_cidr: VpcCidr | None = None,
        availability_zone: AvailabilityZone | None = None,
        worker_subnet: ec2.ISubnet | None = None,
        master_subnet: ec2.ISubnet | None = None,
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
        image_release: ImageRelease = "1",
        encryption_key: EncryptionKey | None = None,
        file_system_backup: bool = True,
        alarm_topic: AlarmTopic | None = None,
        spending: Spending | None = None,
        master_role: iam.IRole | None = None,
        worker_role: iam.IRole | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
    ) -> None:
        # Before the plan, which is made for a new VPC or for the user's.
        place = Place(vpc, vpc_cidr, availability_zone, worker_subnet, master_subnet)
        plan = plan_cluster(
            worker_instance_type=worker_instance_type,
            master_instance_type=master_instance_type,
            worker_min_capacity=worker_min_capacity,
            worker_desired_capacity=worker_desired_capacity,
            worker_max_capacity=worker_max_capacity,
            worker_purchase=worker_purchase,
            master_purchase=master_purchase,
            availability_zone=place.zone,
            image=image,
            ssh_peer=ssh_peer,
            key_pair=key_pair,
            mount_point=mount_point,
            setup_script=setup_script,
            run_script=run_script,
            setup_timeout=setup_timeout,
            vpc_cidr=None if vpc else vpc_cidr or DEFAULT_VPC_CIDR,
            isolated=isolated,
            efa=efa,
            file_system=file_system,
            file_system_id=file_system_id,
            file_system_throughput=file_system_throughput,
            mount_target_security_group=mount_target_security_group,
            removal_policy=removal_policy,
            lustre=lustre,
            data=data,
            environment=environment,
            environment_cache=environment_cache,
            volume_size=volume_size,
            image_release=image_release,
            encryption_key=encryption_key,
            file_system_backup=file_system_backup,
            alarm_topic=alarm_topic,
            spending=spending,
            master_role=master_role,
            worker_role=worker_role,
            security_groups=security_groups,
        )
        super().__init__(scope, construct_id, plan, place, isolated=isolated)
