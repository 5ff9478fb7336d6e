"""What the nodes of a cluster mount: the shared file system, of the cluster or somebody else's, and FSx for Lustre."""

from dataclasses import replace
from typing import cast

from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from deeplearning_cdk.coordination import name_cluster
from deeplearning_cdk.images.node_image import FileSystemMode
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.zones import find_zone
from deeplearning_cdk.nodes.tags import tag_costs
from deeplearning_cdk.props.check import is_dummy_value
from deeplearning_cdk.storage.backup import ClusterBackup
from deeplearning_cdk.storage.lustre import Lustre, LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.values import Storage

NO_BACKUP = "deeplearning_cdk:withoutBackup"
ANONYMOUS_ACCESS = "deeplearning_cdk:anonymousAccessDenied"


class ClusterStorage:
    """
    The file systems of a cluster, to which its nodes are admitted.

    Args:
        scope: The cluster.
        storage: The user's choice.
        mode: How nodes mount the shared file system.
        network: Where the nodes live.
        state_table: Holds the state item, which is backed up with a file system of the cluster's own.
        encryption_key: Encrypts a new file system and its backups.

    Attributes:
        file_system: The shared file system.
        lustre: FSx for Lustre; None without.
        settings: How nodes mount the shared file system.
        lustre_settings: How nodes mount FSx for Lustre; None without.
        readiness: What must exist before a node can mount them; with backups, also what makes these, so that a backup
            that is refused costs nothing.

    Raises:
        ValueError: The shared file system cannot be mounted from there, or does not show the data.
    """

    def __init__(
        self,
        scope: Construct,
        storage: Storage,
        *,
        mode: FileSystemMode,
        network: ClusterNetwork,
        state_table: dynamodb.ITable,
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
            self.readiness.append(chosen.admit(network.security_group, self._scope))
            return chosen
        own = None if chosen is None or isinstance(chosen, str) else chosen
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
            shared.await_mount_targets(own.mount_targets_available)
            _warn_of_policy(self._scope, own, mode)
        self.readiness.append(shared.admit(network.security_group))
        return shared

    def _choose_lustre(self) -> LustreFileSystem | None:
        chosen, network = self._storage.lustre, self._network
        if chosen is None:
            return None
        if isinstance(chosen, Lustre):
            # In a VPC that goes with the stack, a file system that stays would hold its subnet.
            policy = RemovalPolicy.DESTROY if network.is_new else self._storage.removal_policy
            chosen = LustreFileSystem(
                self._scope,
                "Lustre",
                vpc=network.vpc,
                subnet=network.worker_subnet,
                configuration=chosen,
                removal_policy=policy,
            )
        shown = [source for source in self._storage.data if source.target == "lustre"]
        self.readiness.append(chosen.attach(self._scope, network.security_group, shown, self._key))
        # It may stand beside the cluster; one that several clusters share counts for the last of them.
        tag_costs(chosen, name_cluster(self._scope))
        return chosen

    def _back_up(self, state_table: dynamodb.ITable) -> None:
        """Back up the state, and a file system of the cluster's own; any other is its owner's to back up."""
        if not self._storage.backup:
            Annotations.of(self._scope).add_warning_v2(
                NO_BACKUP,
                "nothing of this cluster is backed up: what a job deletes by mistake is gone, and gates that ask for "
                "backups find it; leave storage.backup out, or name the file system in a plan of your own",
            )
            return
        nightly = ClusterBackup(
            self._scope,
            "Backup",
            key=self._key,
            state_table=state_table,
            file_system_arn=self.file_system.arn if self._storage.has_own_file_system else None,
        )
        self.readiness.append(nightly.selection)


def _check_shared(file_system: SharedFileSystem, network: ClusterNetwork, mode: FileSystemMode) -> None:
    """Check that nodes can mount another cluster's file system: by name it is found in its own zone alone."""
    resolve = Stack.of(network).resolve
    if resolve(file_system.vpc.vpc_id) != resolve(network.vpc.vpc_id):
        raise ValueError(
            "network.vpc must be that of storage.file_system, got another or none; pass "
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
            "software.image must mount storage.file_system as the cluster does that has made it, "
            f"{file_system.mode}, got {mode}; take images of one file_system_mode"
        )


def _find_group(file_system: efs.IFileSystem, vpc: ec2.IVpc) -> ec2.ISecurityGroup:
    """Return the group of a file system's mount targets, which must be in the nodes' VPC as far as the app shows."""
    group = file_system.connections.security_groups[0]
    made = group.node.default_child
    if isinstance(made, ec2.CfnSecurityGroup):
        theirs, ours = (Stack.of(vpc).resolve(vpc_id) for vpc_id in (made.vpc_id, vpc.vpc_id))
        # One VPC may be known by its resource here and by its id there: only resources can be compared.
        if theirs != ours and all(isinstance(vpc_id, dict) and set(vpc_id) == {"Ref"} for vpc_id in (theirs, ours)):
            raise ValueError(
                f"network.vpc must be that of storage.file_system, got {vpc.node.path}; pass the VPC in which its "
                "mount targets are"
            )
    return group


def _warn_of_policy(scope: Construct, file_system: efs.IFileSystem, mode: FileSystemMode) -> None:
    made = file_system.node.default_child
    if mode == "nfs4" and isinstance(made, efs.CfnFileSystem) and Stack.of(made).resolve(made.file_system_policy):
        Annotations.of(scope).add_warning_v2(
            ANONYMOUS_ACCESS,
            f"{file_system.node.path} has a policy, and nodes with plain NFS reach it without a name, which the CDK's "
            "own policy denies: make it with allow_anonymous_access=True, or take an image with efs-utils such as "
            "NodeImage.deep_learning_amazon_linux()",
        )
