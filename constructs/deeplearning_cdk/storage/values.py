"""Prop `storage` of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import RemovalPolicy
from aws_cdk import aws_efs as efs

from deeplearning_cdk.props.check import check_fields, names_checked
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre import Lustre, LustreFileSystem
from deeplearning_cdk.storage.mount_point import MountPoint
from deeplearning_cdk.storage.shared_file_system import (
    FileSystemId,
    FileSystemThroughput,
    NewRemovalPolicy,
    SharedFileSystem,
)


@names_checked
@dataclass(frozen=True, kw_only=True)
class Storage:
    """
    The file systems of a cluster, and the data on them.

    Attributes:
        file_system: Shared file system: that of another cluster in the same VPC and zone, where jobs with the same name
            are one job; an `efs.IFileSystem` with a mount target in the zone; or the id of one, for which a mount
            target is created. Default: a new file system.
        mount_point: Mount point of the shared file system, the value of `EFS_MOUNT`. Default: /efs.
        throughput: Throughput of a new file system: `elastic`, `bursting`, or a provisioned size per second. Default:
            elastic.
        backup: Back up a new file system and the cluster's state every day. Default: both are backed up.
        removal_policy: Removal policy of a new file system. Default: it is retained, unless its creation fails.
        lustre: FSx for Lustre file system that all nodes mount beside the shared one: `Lustre` for a new one, or a
            `LustreFileSystem` that several clusters share. Default: none.
        data: Data in S3 that appears in /opt/deeplearning/data on every node. Default: none.
    """

    file_system: SharedFileSystem | efs.IFileSystem | FileSystemId | None = None
    mount_point: MountPoint = "/efs"
    throughput: FileSystemThroughput | None = None
    backup: bool = True
    removal_policy: NewRemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
    lustre: Lustre | LustreFileSystem | None = None
    data: Sequence[DataSource] = ()

    def __post_init__(self) -> None:
        check_fields(self, "storage.")
        if self.file_system is not None and self.throughput is not None:
            raise ValueError(
                "storage.throughput must be left out with storage.file_system, got both; the file system has its own"
            )
        if self.lustre is not None:
            points = sorted((f"{self.mount_point}/", f"{self.lustre.mount_point}/"))
            if points[1].startswith(points[0]):
                raise ValueError(
                    "storage.mount_point must not overlap with that of storage.lustre, got "
                    f"{self.mount_point} and {self.lustre.mount_point}; give one of them another mount_point"
                )
        self._check_data()

    def _check_data(self) -> None:
        names = [source.name for source in self.data]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"storage.data must have unique names, got {twice[0]!r} twice; rename one")
        for source in self.data:
            if source.target == "lustre" and self.lustre is None:
                raise ValueError(
                    f"storage.lustre must be given for data {source.name} with the target lustre, got none; "
                    "pass Lustre(), or take another target"
                )

    @property
    def has_own_file_system(self) -> bool:
        """True if the cluster creates its shared file system."""
        return self.file_system is None

    @property
    def outlives_stack(self) -> bool:
        """True if a resource with the cluster's key may outlive the stack: a file system, Lustre or a vault."""
        return self.file_system is None or self.lustre is not None or self.backup
