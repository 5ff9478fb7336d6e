"""File systems that the nodes of a cluster mount: the shared one, new or existing, and FSx for Lustre."""

from dataclasses import replace
from typing import cast

from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from deeplearning_cdk.coordination.coordination import name_cluster
from deeplearning_cdk.images.node_image import FileSystemMode
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.subnets import are_different_vpcs, find_other_vpc
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.network.zone_subnets import digest_zone
from deeplearning_cdk.network.zones import find_zone
from deeplearning_cdk.props.check import is_dummy_value, is_token
from deeplearning_cdk.props.regions import check_environment
from deeplearning_cdk.props.tags import tag_costs
from deeplearning_cdk.storage.backup import ClusterBackup
from deeplearning_cdk.storage.lustre import Lustre, LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage

NO_BACKUP = "deeplearning_cdk:withoutBackup"
ANONYMOUS_ACCESS = "deeplearning_cdk:anonymousAccessDenied"


class ClusterStorage:
    """
    File systems of a cluster, which its nodes may mount.

    Args:
        scope: The cluster.
        storage: The user's choice.
        mode: Mount mode of the shared file system.
        network: Network of the nodes.
        state_table: Table of the state item, which is backed up; None on a platform without one.
        encryption_key: KMS key of a new file system and of the backups.

    Attributes:
        file_system: The shared file system.
        lustre: FSx for Lustre; None without.
        settings: Mount settings of the shared file system.
        lustre_settings: Mount settings of FSx for Lustre; None without.
        readiness: Dependencies of the first node. They include the backup, so that a backup that is refused costs
            nothing.

    Raises:
        ValueError: The nodes cannot mount a file system, or it cannot provide the data.
    """

    def __init__(
        self,
        scope: Construct,
        storage: Storage,
        *,
        mode: FileSystemMode,
        network: ClusterNetwork,
        state_table: dynamodb.ITable | None,
        encryption_key: kms.IKey,
    ) -> None:
        self._scope, self._storage, self._network, self._key = scope, storage, network, encryption_key
        self.readiness: list[IDependable] = []
        self.file_system = self._choose_file_system(mode)
        self.settings = replace(self.file_system.mount_settings, mount_point=storage.mount_point)
        for source in storage.data:
            if source.target == "efs":
                self.file_system.reserve_data_folder(source.name, scope.node.path)
        self.lustre = self._choose_lustre()
        self.lustre_settings = self.lustre.mount_settings if self.lustre else None
        self._back_up(state_table)

    def _choose_file_system(self, mode: FileSystemMode) -> SharedFileSystem:
        chosen, network = self._storage.file_system, self._network
        if isinstance(chosen, SharedFileSystem):
            _check_shared(chosen, network, mode)
            self.readiness.append(chosen.allow_mount_from(network.security_group, self._scope))
            return chosen
        own = None if chosen is None or isinstance(chosen, str) else chosen
        if own:
            check_environment("storage.file_system", own, self._scope)
        shared = SharedFileSystem(
            self._scope,
            "FileSystem",
            vpc=network.vpc,
            subnet=network.worker_subnet,
            mode=mode,
            file_system_id=own.file_system_id if own else cast("str | None", chosen),
            mount_target_security_group=_find_group(own, network.vpc) if own else None,
            throughput=self._storage.throughput,
            removal_policy=self._storage.removal_policy,
            encryption_key=self._key,
        )
        if own:
            _check_mount_targets(own, network)
            shared.await_mount_targets(own.mount_targets_available)
            _warn_of_policy(self._scope, own, mode)
        else:
            for zone, subnet in network.further_zones.items():
                shared.add_mount_target(f"MountTarget{digest_zone(zone)}", subnet)
        self.readiness.append(shared.allow_mount_from(network.security_group))
        return shared

    def _choose_lustre(self) -> LustreFileSystem | None:
        chosen, network = self._storage.lustre, self._network
        if chosen is None:
            return None
        if isinstance(chosen, Lustre):
            # A new VPC is deleted with the stack; a retained file system would block the deletion of its subnet.
            policy = RemovalPolicy.DESTROY if network.is_new else self._storage.removal_policy
            chosen = LustreFileSystem(
                self._scope,
                "Lustre",
                vpc=network.vpc,
                subnet=network.worker_subnet,
                configuration=chosen,
                removal_policy=policy,
            )
        elif other := find_other_vpc(chosen.security_group, network.vpc):
            raise ValueError(
                f"network.vpc must be the VPC of storage.lustre, got {network.vpc.node.path} and {other}; pass "
                f"Network(vpc=…) with {other}"
            )
        shown = [source for source in self._storage.data if source.target == "lustre"]
        self.readiness.append(chosen.attach(self._scope, network.security_group, shown, self._key))
        # It may be outside the cluster's scope; one that several clusters share gets the tag of the last of them.
        tag_costs(chosen, name_cluster(self._scope))
        return chosen

    def _back_up(self, state_table: dynamodb.ITable | None) -> None:
        """Back up the state table, if there is one, and the shared file system if the cluster created it."""
        if not self._storage.backup:
            Annotations.of(self._scope).add_warning_v2(
                NO_BACKUP,
                "nothing in this cluster is backed up: data that a job deletes by mistake is lost, and security gates "
                "that require backups report it; leave storage.backup out, or add the file system to a backup plan of "
                "your own",
            )
            return
        if state_table is None and not self._storage.has_own_file_system:
            return
        nightly = ClusterBackup(
            self._scope,
            "Backup",
            key=self._key,
            state_table=state_table,
            file_system_arn=self.file_system.arn if self._storage.has_own_file_system else None,
        )
        self.readiness.append(nightly.selection)


def check_vpc_of_file_system(network: Network, storage: Storage) -> None:
    """
    Check that a file system of the CDK comes with its VPC.

    Raises:
        ValueError: The VPC is missing.
    """
    is_created_or_named = storage.file_system is None or isinstance(storage.file_system, str | SharedFileSystem)
    if network.vpc is None and not is_created_or_named:
        raise ValueError(
            "network.vpc must be given with storage.file_system, got none; pass the VPC in which its mount targets are"
        )


def _check_shared(file_system: SharedFileSystem, network: ClusterNetwork, mode: FileSystemMode) -> None:
    """Check that nodes can mount another cluster's file system, whose DNS name resolves in its own zone only."""
    resolve = Stack.of(network).resolve
    ids = file_system.vpc.vpc_id, network.vpc.vpc_id
    # Resources of two stacks may have the same logical id.
    if resolve(ids[0]) != resolve(ids[1]) or are_different_vpcs(*ids):
        raise ValueError(
            "network.vpc must be the VPC of storage.file_system, got another or none; pass "
            "Network(vpc=<the other cluster>.network.vpc)"
        )
    theirs, ours = resolve(find_zone("subnet of storage.file_system", file_system.subnet)), resolve(network.zone)
    if theirs != ours and not is_dummy_value(theirs) and not is_dummy_value(ours):
        raise ValueError(
            f"network.worker_subnet must lie in the zone of storage.file_system, got {ours} and {theirs}; "
            "pass a subnet of that zone"
        )
    if file_system.mode != mode:
        raise ValueError(
            f"software.image must have the file_system_mode {file_system.mode} of storage.file_system, got {mode}; "
            "use images with the same file_system_mode"
        )


def _find_group(file_system: efs.IFileSystem, vpc: ec2.IVpc) -> ec2.ISecurityGroup:
    """Return the security group of a file system's mount targets, and check its VPC as far as the app shows it."""
    group = file_system.connections.security_groups[0]
    if find_other_vpc(group, vpc):
        raise ValueError(
            f"network.vpc must be the VPC of storage.file_system, got {vpc.node.path}; pass the VPC in which its "
            "mount targets are"
        )
    return group


def _check_mount_targets(file_system: efs.IFileSystem, network: ClusterNetwork) -> None:
    """Check that a file system of the app has a mount target in each further zone; those of others are not known."""
    targets = [each for each in file_system.node.find_all() if isinstance(each, efs.CfnMountTarget)]
    subnets = {target.subnet_id for target in targets}
    known = [*network.vpc.private_subnets, *network.vpc.isolated_subnets, *network.vpc.public_subnets]
    zones = {subnet.availability_zone for subnet in known if subnet.subnet_id in subnets}
    missing = [zone for zone in network.further_zones if zone not in zones]
    if targets and missing and not any(map(is_token, zones)):
        raise ValueError(
            f"storage.file_system must have a mount target in each zone of workers.fallbacks, got none in {missing[0]};"
            " add it, or leave the zone out"
        )


def _warn_of_policy(scope: Construct, file_system: efs.IFileSystem, mode: FileSystemMode) -> None:
    made = file_system.node.default_child
    if mode == "nfs4" and isinstance(made, efs.CfnFileSystem) and Stack.of(made).resolve(made.file_system_policy):
        Annotations.of(scope).add_warning_v2(
            ANONYMOUS_ACCESS,
            f"{file_system.node.path} has a policy, and nodes with plain NFS mount it anonymously, which the CDK's "
            "default policy denies: create it with allow_anonymous_access=True, or use an image with efs-utils such as "
            "NodeImage.deep_learning_amazon_linux()",
        )
