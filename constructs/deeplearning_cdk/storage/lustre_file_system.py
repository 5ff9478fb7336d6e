"""FSx for Lustre beside the shared file system: a new one, linked to a bucket, or one of the user's."""

from collections.abc import Sequence

from aws_cdk import CfnResource, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.cluster_props import EncryptionKey, NewRemovalPolicy
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.security_rules import admit
from deeplearning_cdk.props.check import checked
from deeplearning_cdk.props.rules import count_gibibytes
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre_client import MOUNT_OPTIONS, PORTS, VERSION
from deeplearning_cdk.storage.lustre_props import (
    DEFAULT_GIBIBYTES,
    LustreDeployment,
    LustreDnsName,
    LustreMountName,
    LustreStorage,
    LustreThroughput,
    RequiredNetwork,
    check_links,
    check_removal,
    check_throughput,
    choose_subnet,
)
from deeplearning_cdk.storage.mount_point import MountPoint
from deeplearning_contract.setting_parts import FileSystemSettings

DEFAULT_MOUNT_POINT = "/fsx"
_EVENTS = ["NEW", "CHANGED", "DELETED"]
_Link = fsx.CfnDataRepositoryAssociation


class LustreFileSystem(Construct):
    """
    FSx for Lustre that the nodes of a cluster mount: SSD storage, encrypted, in the nodes' zone.

    Data with the target `lustre` is linked: the folder of its name shows the objects as files, each read from S3 when
    it is first opened, and follows what changes in the bucket. The image must have a Lustre client; nodes on Amazon
    Linux 2023 install it.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        storage: Its size: 1200 GiB, 2400 GiB or a multiple of that. Default: 1200 GiB.
        deployment: `persistent` (PERSISTENT_2: replicated) or `scratch` (SCRATCH_2: cheaper, lost with a server).
            Default: persistent.
        throughput: MB/s for each TiB of persistent storage: 125, 250, 500 or 1000. Default: 125.
        export: What jobs write below the folder of data is written to its bucket, and deleted there when they delete
            it. Default: the bucket is only read.
        mount_point: Where nodes mount it. Default: /fsx.
        vpc: The VPC of the nodes. Default: that of the first cluster that mounts it.
        subnet: Its subnet in that VPC. Default: that of the first cluster's workers.
        encryption_key: Key of a persistent file system; FSx encrypts scratch ones with its own. Default: that of the
            first cluster in its stack.
        removal_policy: What becomes of it with the stack. Default: with `vpc` it is kept unless the creation fails;
            without, it goes, because it would hold the cluster's subnet.

    Attributes:
        security_group: Its security group.
        readiness: What must exist before a node can mount it.

    Raises:
        ValueError: A value cannot work; the message names the prop, the rule and a way out.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        storage: LustreStorage | None = None,
        deployment: LustreDeployment = "persistent",
        throughput: LustreThroughput | None = None,
        export: bool = False,
        mount_point: MountPoint = DEFAULT_MOUNT_POINT,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        encryption_key: EncryptionKey | None = None,
        removal_policy: NewRemovalPolicy | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._storage = count_gibibytes(DEFAULT_GIBIBYTES if storage is None else storage)
        self._deployment = deployment
        self._throughput = check_throughput(deployment, throughput, has_key=encryption_key is not None)
        self._is_exporting = export
        self._key_id = encryption_key.key_id if encryption_key else None
        self._removal_policy = check_removal(removal_policy, has_vpc=vpc is not None)
        self.mount_point = mount_point
        self._source = self._file_system_id = ""
        self._begin()
        self.node.add_validation(RequiredNetwork(self.node.path, lambda: bool(self._source)))
        if (place := choose_subnet(vpc, subnet)) is not None:
            self._make(*place)

    @classmethod
    @checked
    def from_attributes(
        cls,
        scope: Construct,
        construct_id: str,
        *,
        dns_name: LustreDnsName,
        mount_name: LustreMountName,
        security_group: ec2.ISecurityGroup,
        mount_point: MountPoint = DEFAULT_MOUNT_POINT,
    ) -> "LustreFileSystem":
        """
        Take an existing file system; nothing but rules of its security group is made or changed.

        Data with the target `lustre` must already be in the folder of its name, at the root of the file system.

        Args:
            scope: The parent.
            construct_id: The id in the parent.
            dns_name: Its DNS name, which the nodes' VPC resolves.
            mount_name: Its mount name, as `aws fsx describe-file-systems` shows it.
            security_group: Its security group, to which the nodes are admitted.
            mount_point: Where nodes mount it. Default: /fsx.

        Raises:
            ValueError: A name is not one.
        """
        source = f"{dns_name}@tcp:/{mount_name}"
        return _ExistingLustre(
            scope, construct_id, source=source, security_group=security_group, mount_point=mount_point
        )

    def _begin(self) -> None:
        self._shown: list[DataSource] = []
        self._readiness = DependencyGroup()
        self.readiness: IDependable = self._readiness
        self.security_group: ec2.ISecurityGroup | None = None

    @property
    def mount_settings(self) -> FileSystemSettings:
        """What nodes are told, once it has a network."""
        return FileSystemSettings("lustre", self._source, MOUNT_OPTIONS, self.mount_point)

    def attach(
        self, scope: Construct, network: ClusterNetwork, data: Sequence[DataSource] = (), key: kms.IKey | None = None
    ) -> IDependable:
        """
        Let the nodes of a cluster mount it, and make it in their subnet if it has no network yet.

        Args:
            scope: The cluster, where the rules of its nodes stand.
            network: Where its nodes live.
            data: Data of the cluster that it shows. Default: none.
            key: The cluster's key. Default: the account's own key for FSx.

        Returns:
            What must exist before one of these nodes can mount it.

        Raises:
            ValueError: It cannot show all of that.
        """
        if not self._source:
            self._make(network.vpc, network.worker_subnet)
        assert self.security_group is not None
        self._take_key(scope, key)
        rules = DependencyGroup(self.readiness)
        own, nodes = self.security_group, network.security_group
        for name, port in PORTS.items():
            # Its servers open connections to their clients too.
            for direction, group, members in (("FromNodes", own, nodes), ("ToNodes", nodes, own)):
                identity = f"{name}{direction}"
                rules.add(admit(scope, identity, group=group, members=members, port=port, description=identity))
        rules.add(*self._show(data))
        return rules

    def _take_key(self, scope: Construct, key: kms.IKey | None) -> None:
        made = self.node.try_find_child("FileSystem")
        if key is None or not isinstance(made, fsx.CfnFileSystem) or self._deployment == "scratch":
            return
        # A key of another stack would tie the two stacks together; that of the first cluster stays.
        if made.kms_key_id is None and Stack.of(made) is Stack.of(scope):
            made.kms_key_id = key.key_arn

    def _show(self, data: Sequence[DataSource]) -> list[IDependable]:
        self._shown = check_links([*self._shown, *data])
        # Nodes look for the folders of an existing one when they start.
        return [self._link(source) for source in data] if self._file_system_id else []

    def _link(self, source: DataSource) -> IDependable:
        if known := self.node.try_find_child(f"Data{source.name}"):
            return known
        association = _Link(
            self,
            f"Data{source.name}",
            file_system_id=self._file_system_id,
            file_system_path=f"/{source.name}",
            data_repository_path=f"s3://{source.bucket_name}/{source.key}",
            batch_import_meta_data_on_create=True,
            s3=_Link.S3Property(
                auto_import_policy=_Link.AutoImportPolicyProperty(events=_EVENTS),
                auto_export_policy=_Link.AutoExportPolicyProperty(events=_EVENTS) if self._is_exporting else None,
            ),
        )
        association.apply_removal_policy(self._removal_policy)
        return association

    def _make(self, vpc: ec2.IVpc, subnet: ec2.ISubnet) -> None:
        group = ec2.SecurityGroup(self, "SecurityGroup", vpc=vpc, description="FSx for Lustre")
        self.security_group = group
        file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=VERSION,
            storage_capacity=self._storage,
            storage_type="SSD",
            subnet_ids=[subnet.subnet_id],
            security_group_ids=[group.security_group_id],
            kms_key_id=self._key_id,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2" if self._deployment == "persistent" else "SCRATCH_2",
                per_unit_storage_throughput=self._throughput,
            ),
        )
        self._file_system_id = file_system.ref
        self._source = f"{file_system.attr_dns_name}@tcp:/{file_system.attr_lustre_mount_name}"
        rules = [
            admit(self, f"{name}FromItself", group=group, members=group, port=port, description="Its servers")
            for name, port in PORTS.items()
        ]
        # What stays keeps its interface, and the interface its group.
        kept: list[CfnResource | ec2.SecurityGroup] = [file_system, group, *rules]
        for resource in kept:
            resource.apply_removal_policy(self._removal_policy)
        self._readiness.add(file_system, *rules)


class _ExistingLustre(LustreFileSystem):
    """One that is not made here."""

    def __init__(
        self, scope: Construct, construct_id: str, *, source: str, security_group: ec2.ISecurityGroup, mount_point: str
    ) -> None:
        Construct.__init__(self, scope, construct_id)
        self._source, self._file_system_id = source, ""
        self.mount_point = mount_point
        self._begin()
        self.security_group = security_group
