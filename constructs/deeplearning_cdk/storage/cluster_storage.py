"""What the nodes of a cluster mount: the shared file system, its own or another cluster's, and FSx for Lustre."""

from dataclasses import dataclass, replace

from aws_cdk import Annotations, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IDependable

from deeplearning_cdk.cluster_props import FileSystemThroughput, check_throughput
from deeplearning_cdk.coordination import name_cluster
from deeplearning_cdk.images.node_image import FileSystemMode
from deeplearning_cdk.network.cluster_network import ClusterNetwork, find_zone
from deeplearning_cdk.operations.cost_tags import tag_costs
from deeplearning_cdk.props.looked_up import is_stand_in
from deeplearning_cdk.storage.backup import ClusterBackup
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.imported_efs import adopt_file_system
from deeplearning_cdk.storage.lustre_file_system import LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem

NO_BACKUP = "deeplearning_cdk:withoutBackup"


@dataclass(frozen=True, kw_only=True)
class StorageProps:
    """The props of `TrainingCluster` about what nodes mount, and the mode and the data that go with them."""

    mount_point: str = "/efs"
    file_system: SharedFileSystem | efs.IFileSystem | None = None
    file_system_id: str | None = None
    throughput: FileSystemThroughput | None = None
    mount_target_security_group: ec2.ISecurityGroup | None = None
    removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    lustre: LustreFileSystem | None = None
    mode: FileSystemMode = "nfs4"
    data: tuple[DataSource, ...] = ()
    has_backup: bool = True

    @property
    def has_own_file_system(self) -> bool:
        """Whether a file system is made for the cluster."""
        return self.file_system is None and self.file_system_id is None

    @property
    def outlives_stack(self) -> bool:
        """Whether something may outlive the stack that the cluster's key encrypts: a file system, Lustre, a vault."""
        return self.has_own_file_system or self.lustre is not None or self.has_backup

    def __post_init__(self) -> None:
        """Refuse what cannot be, what contradicts a shared file system, and what mounts one thing over the other."""
        check_throughput(self.throughput, self.file_system_id)
        own = {
            "file_system_id": self.file_system_id,
            "file_system_throughput": self.throughput,
            "mount_target_security_group": self.mount_target_security_group,
        }
        if self.file_system is not None and (given := [prop for prop, value in own.items() if value is not None]):
            raise ValueError(
                f"{given[0]} must be left out with file_system, which has its own, got both; leave one of them out"
            )
        if self.lustre is not None:
            points = sorted((f"{self.mount_point}/", f"{self.lustre.mount_point}/"))
            if points[1].startswith(points[0]):
                raise ValueError(
                    "mount_point must lie beside that of lustre, got "
                    f"{self.mount_point} and {self.lustre.mount_point}; give one of them another mount_point"
                )

    def check_new_vpc(self) -> None:
        """
        Refuse, beside a new VPC, a file system of the user's app, whose mount targets are in a VPC that exists.

        Raises:
            ValueError: There is one.
        """
        if self.file_system is not None and not isinstance(self.file_system, SharedFileSystem):
            raise ValueError(
                "vpc must be given with file_system, got none; pass the VPC in which its mount targets are"
            )


class ClusterStorage:
    """
    Makes or takes what nodes mount, and lets them in.

    Args:
        scope: The cluster.
        props: What the user chose.
        network: Where the nodes live.
        encryption_key: Encrypts a new file system and its backups.

    Attributes:
        file_system: The shared file system.
        settings: How nodes mount it.
        lustre: How nodes mount FSx for Lustre; None without.
        readiness: What must exist before a node can mount either.

    Raises:
        ValueError: The shared file system cannot be mounted from there, or does not show the data.
    """

    def __init__(
        self, scope: Construct, props: StorageProps, network: ClusterNetwork, encryption_key: kms.IKey
    ) -> None:
        self._scope, self._props, self._encryption_key = scope, props, encryption_key
        if not isinstance(props.file_system, SharedFileSystem):
            self.file_system = _make_file_system(scope, props, network, encryption_key)
            self.readiness: list[IDependable] = [self.file_system.admit(network.security_group)]
        else:
            self.file_system = props.file_system
            _check_shared(self.file_system, network, props.mode)
            self.readiness = [self.file_system.admit(network.security_group, scope)]
        self.settings = replace(self.file_system.mount_settings, mount_point=props.mount_point)
        for source in props.data:
            if source.target == "efs":
                self.file_system.stage(source.name, scope.node.path)
        if props.lustre is not None:
            shown = [source for source in props.data if source.target == "lustre"]
            self.readiness.append(props.lustre.attach(scope, network, shown, encryption_key))
            # It may stand beside the cluster; one that several clusters share counts for the last of them.
            tag_costs(props.lustre, name_cluster(scope))
        # It has its name once it has a network.
        self.lustre = props.lustre.mount_settings if props.lustre else None

    def mount_statements(self) -> list[iam.PolicyStatement]:
        """Return what a node's role needs to mount them; Lustre asks only the security groups."""
        return self.file_system.mount_statements()

    def back_up(self, state_table: dynamodb.ITable) -> list[IDependable]:
        """
        Back up the state, and a file system that was made for the cluster; a user's own is the user's to back up.

        Args:
            state_table: Holds the state item.

        Returns:
            What must exist before the first node, so that a backup that is refused costs nothing; nothing without one.
        """
        if not self._props.has_backup:
            Annotations.of(self._scope).add_warning_v2(
                NO_BACKUP,
                "nothing of this cluster is backed up: what a job deletes by mistake is gone, and gates that ask for "
                "backups find it; leave file_system_backup out, or name the file system in a plan of your own",
            )
            return []
        nightly = ClusterBackup(
            self._scope,
            "Backup",
            key=self._encryption_key,
            state_table=state_table,
            file_system_arn=self.file_system.arn if self._props.has_own_file_system else None,
        )
        return [nightly.selection]


def _make_file_system(
    scope: Construct, props: StorageProps, network: ClusterNetwork, encryption_key: kms.IKey
) -> SharedFileSystem:
    own = props.file_system
    if own is not None:
        assert not isinstance(own, SharedFileSystem)
        return adopt_file_system(
            scope,
            "FileSystem",
            own,
            vpc=network.vpc,
            subnet=network.worker_subnet,
            mount_point=props.mount_point,
            mode=props.mode,
        )
    return SharedFileSystem(
        scope,
        "FileSystem",
        vpc=network.vpc,
        subnet=network.worker_subnet,
        mount_point=props.mount_point,
        mode=props.mode,
        file_system_id=props.file_system_id,
        mount_target_security_group=props.mount_target_security_group,
        throughput=props.throughput,
        removal_policy=props.removal_policy,
        encryption_key=encryption_key,
    )


def _check_shared(file_system: SharedFileSystem, network: ClusterNetwork, mode: FileSystemMode) -> None:
    """Check that nodes can mount another cluster's file system: by name it is found in its own zone alone."""
    resolve = Stack.of(network).resolve
    if resolve(file_system.vpc.vpc_id) != resolve(network.vpc.vpc_id):
        raise ValueError(
            "vpc must be that of file_system, got another or none; pass vpc=<the other cluster>.network.vpc"
        )
    theirs, ours = resolve(find_zone("subnet of file_system", file_system.subnet)), resolve(network.zone)
    if theirs != ours and not is_stand_in(theirs) and not is_stand_in(ours):
        raise ValueError(
            f"worker_subnet must lie in the zone of file_system, got {ours} and {theirs}; pass a subnet of that zone"
        )
    if file_system.mode != mode:
        raise ValueError(
            f"image must mount file_system as the cluster does that has made it, {file_system.mode}, got {mode}; "
            "take images of one file_system_mode"
        )
