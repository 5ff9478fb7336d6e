"""FSx for Lustre file systems beside the shared file system: of one cluster, or shared by several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from aws_cdk import CfnResource, Fn, RemovalPolicy, Size, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.security_rules import allow_ingress
from deeplearning_cdk.network.subnets import check_vpc
from deeplearning_cdk.props.check import Rule, check_fields, checked, names_checked
from deeplearning_cdk.props.rules import count_gibibytes, matching, sized
from deeplearning_cdk.security.encryption import EncryptionKey
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.mount_point import MountPoint
from deeplearning_cdk.storage.shared_file_system import NewRemovalPolicy
from deeplearning_contract.setting_parts import FileSystemSettings

MOUNT_COMMAND = "mount.lustre"
# FSx for Lustre user guide: mounting from an EC2 instance; file system access control with a VPC.
_MOUNT_OPTIONS = "relatime,flock"
_PORTS = {"Lustre": ec2.Port.tcp(988), "LustreServers": ec2.Port.tcp_range(1018, 1023)}
_VERSION = "2.15"
"""Current clients of Ubuntu and Amazon Linux 2023 are 2.15; older servers do not support all of them."""
# FSx for Lustre user guide, installing the client: Amazon Linux 2023 has it in its own repository.
_AMAZON_LINUX_CLIENT = ("lustre-client",)
_AMAZON_LINUX_MARK = ("amazon-efs-utils",)
"""Package that only Amazon Linux has."""

# FSx for Lustre user guide: SSD storage of PERSISTENT_2 and SCRATCH_2, throughput of PERSISTENT_2.
_LEAST_GIBIBYTES, _STEP_GIBIBYTES = 1200, 2400
# Far above every quota of an account.
_MOST_GIBIBYTES = 2400 * 1000
_THROUGHPUTS = (125, 250, 500, 1000)
_MOST_LINKS = 8
"""FSx for Lustre quotas: data repository associations of a file system."""
_COPY = "copy it from there"
_EVENTS = ["NEW", "CHANGED", "DELETED"]
_Link = fsx.CfnDataRepositoryAssociation


def _is_storage(size: Size | int) -> bool:
    gibibytes = count_gibibytes(size)
    return gibibytes == _LEAST_GIBIBYTES or gibibytes % _STEP_GIBIBYTES == 0


LustreStorage = Annotated[
    Size | int,
    sized(_LEAST_GIBIBYTES, _MOST_GIBIBYTES, f"pass e.g. Size.gibibytes({_LEAST_GIBIBYTES})"),
    Rule(
        must=f"be {_LEAST_GIBIBYTES} GiB or a multiple of {_STEP_GIBIBYTES} GiB",
        remedy=f"pass e.g. Size.gibibytes({_STEP_GIBIBYTES})",
        is_kept=_is_storage,
        can_carry=lambda _: True,
    ),
]
"""Size of a file system; a number is GiB."""

LustreThroughput = Annotated[
    int,
    Rule(
        must=f"be {', '.join(map(str, _THROUGHPUTS))} MB/s for each TiB",
        remedy="take one of them",
        is_kept=lambda throughput: throughput in _THROUGHPUTS,
        can_carry=lambda _: True,
    ),
]
"""Throughput of each TiB of persistent storage, in MB/s."""

LustreDnsName = Annotated[
    str, matching(r"[A-Za-z0-9.-]{1,253}", "be as `aws fsx describe-file-systems` shows it", _COPY, takes_tokens=True)
]
LustreMountName = Annotated[
    str, matching(r"[A-Za-z0-9_-]{1,32}", "be as `aws fsx describe-file-systems` shows it", _COPY, takes_tokens=True)
]


@names_checked
@dataclass(frozen=True, kw_only=True)
class Lustre:
    """
    An FSx for Lustre file system: SSD storage, encrypted, in the nodes' zone.

    Data with the target `lustre` is linked: the folder with its name shows the objects as files. A file is read from S3
    when it is first opened, and changes in the bucket appear in the folder. The image must have a Lustre client; nodes
    on Amazon Linux 2023 install it. In a new VPC the file system is deleted with the stack, because it would block the
    deletion of the subnet; in an existing VPC `storage.removal_policy` applies.

    Attributes:
        storage: Size: 1200 GiB, 2400 GiB or a multiple of that; a number is GiB. Default: 1200 GiB.
        deployment: `persistent` (PERSISTENT_2: replicated) or `scratch` (SCRATCH_2: cheaper, lost with a server).
            Default: persistent.
        throughput: MB/s for each TiB of persistent storage: 125, 250, 500 or 1000. Default: 125.
        export: Export changes that jobs make in a data folder to its bucket, deletions included. Default: the bucket is
            only read.
        mount_point: Mount point on the nodes. Default: /fsx."""

    storage: LustreStorage = _LEAST_GIBIBYTES
    deployment: Literal["persistent", "scratch"] = "persistent"
    throughput: LustreThroughput | None = None
    export: bool = False
    mount_point: MountPoint = "/fsx"

    def __post_init__(self) -> None:
        check_fields(self, "lustre.")
        if self.deployment == "scratch" and self.throughput is not None:
            raise ValueError(
                "lustre.throughput must be left out with deployment scratch, which has its own, got one; "
                "leave it out, or take a persistent one"
            )


class LustreFileSystem(Construct):
    """
    FSx for Lustre file system for several clusters, in an existing VPC. For a single cluster, pass `Lustre`.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        vpc: The VPC of the nodes.
        subnet: Its subnet. Default: the VPC's first private one.
        configuration: Size, deployment, throughput, export and mount point. Default: those of `Lustre()`.
        encryption_key: KMS key of a persistent file system; FSx encrypts scratch ones with its own key. Default: the
            key of the first cluster in the same stack.
        removal_policy: Removal policy. Default: the file system is retained, unless its creation fails.

    Attributes:
        file_system_id: Its id.
        mount_name: Its mount name, the first folder of paths on it.
        security_group: Its security group.
        readiness: Dependencies of a node that mounts it.

    Raises:
        ValueError: A value cannot work; the message names the prop, the rule and a way out.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet | None = None,
        configuration: Lustre = Lustre(),
        encryption_key: EncryptionKey | None = None,
        removal_policy: NewRemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    ) -> None:
        super().__init__(scope, construct_id)
        is_persistent = configuration.deployment == "persistent"
        if encryption_key is not None and not is_persistent:
            raise ValueError(
                "encryption_key must be left out with deployment scratch, which has its own, got one; "
                "leave it out, or take a persistent one"
            )
        if subnet is not None:
            check_vpc("subnet", subnet, "vpc", vpc)
        if not (subnets := [subnet] if subnet else [*vpc.private_subnets, *vpc.isolated_subnets]):
            raise ValueError(
                "subnet must be given when the vpc has no private subnet, got none; pass one of its subnets"
            )
        self._is_exporting, self._removal_policy = configuration.export, removal_policy
        group = ec2.SecurityGroup(self, "SecurityGroup", vpc=vpc, description="FSx for Lustre")
        self._file_system = fsx.CfnFileSystem(
            self,
            "FileSystem",
            file_system_type="LUSTRE",
            file_system_type_version=_VERSION,
            storage_capacity=count_gibibytes(configuration.storage),
            storage_type="SSD",
            subnet_ids=[subnets[0].subnet_id],
            security_group_ids=[group.security_group_id],
            kms_key_id=encryption_key.key_id if encryption_key else None,
            lustre_configuration=fsx.CfnFileSystem.LustreConfigurationProperty(
                deployment_type="PERSISTENT_2" if is_persistent else "SCRATCH_2",
                per_unit_storage_throughput=(configuration.throughput or _THROUGHPUTS[0]) if is_persistent else None,
            ),
        )
        rules = [
            allow_ingress(self, f"{name}FromItself", group=group, members=group, port=port, description="Its servers")
            for name, port in _PORTS.items()
        ]
        # A retained file system keeps its interface, which keeps its security group.
        kept: list[CfnResource | ec2.SecurityGroup] = [self._file_system, group, *rules]
        for resource in kept:
            resource.apply_removal_policy(removal_policy)
        self.file_system_id, self.mount_name = self._file_system.ref, self._file_system.attr_lustre_mount_name
        source = f"{self._file_system.attr_dns_name}@tcp:/{self.mount_name}"
        self._describe(source, configuration.mount_point, group, DependencyGroup(self._file_system, *rules))

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
        mount_point: MountPoint = "/fsx",
    ) -> "LustreFileSystem":
        """
        Import an existing file system; only rules of its security group are created.

        Data with the target `lustre` must already be in the folder of its name, at the root of the file system.

        Args:
            scope: The parent.
            construct_id: The id in the parent.
            dns_name: Its DNS name, which the nodes' VPC resolves.
            mount_name: Its mount name, as `aws fsx describe-file-systems` shows it.
            security_group: Its security group, to which rules for the nodes are added.
            mount_point: Mount point on the nodes. Default: /fsx.

        Raises:
            ValueError: A name is malformed.
        """
        source = f"{dns_name}@tcp:/{mount_name}"
        imported = _ExistingLustre(scope, construct_id, source, security_group, mount_point)
        # FSx for Lustre user guide, "Mounting from an Amazon EC2 instance": `<id>.fsx.<region>.amazonaws.com`.
        imported.file_system_id, imported.mount_name = Fn.select(0, Fn.split(".", dns_name)), mount_name
        return imported

    def _describe(self, source: str, mount_point: str, group: ec2.ISecurityGroup, readiness: IDependable) -> None:
        self.mount_point, self.security_group, self.readiness = mount_point, group, readiness
        self.mount_settings = FileSystemSettings("lustre", source, _MOUNT_OPTIONS, mount_point)
        self._shown: list[DataSource] = []

    def attach(
        self, scope: Construct, nodes: ec2.ISecurityGroup, data: Sequence[DataSource] = (), key: kms.IKey | None = None
    ) -> IDependable:
        """
        Allow the nodes of a cluster to mount it.

        Args:
            scope: The cluster, in which the rules for its nodes are created.
            nodes: The security group of its nodes.
            data: Data of the cluster that is linked. Default: none.
            key: The cluster's key. Default: the account's own key for FSx.

        Returns:
            Dependencies of a node that mounts it.

        Raises:
            ValueError: The data cannot be linked.
        """
        self._take_key(scope, key)
        rules = DependencyGroup(self.readiness)
        for name, port in _PORTS.items():
            # Its servers open connections to their clients too.
            for direction, group, members in (
                ("FromNodes", self.security_group, nodes),
                ("ToNodes", nodes, self.security_group),
            ):
                identity = f"{name}{direction}"
                rules.add(allow_ingress(scope, identity, group=group, members=members, port=port, description=identity))
        self._shown = check_links([*self._shown, *data])
        rules.add(*(self._link(source) for source in data))
        return rules

    def _take_key(self, scope: Construct, key: kms.IKey | None) -> None:
        made = self._file_system
        is_scratch = made.lustre_configuration.deployment_type == "SCRATCH_2"  # type: ignore[union-attr]
        # A key of another stack would tie the two stacks together; that of the first cluster stays.
        if key and not is_scratch and made.kms_key_id is None and Stack.of(made) is Stack.of(scope):
            made.kms_key_id = key.key_arn

    def _link(self, source: DataSource) -> IDependable:
        if known := self.node.try_find_child(f"Data{source.name}"):
            return known
        association = _Link(
            self,
            f"Data{source.name}",
            file_system_id=self._file_system.ref,
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


class _ExistingLustre(LustreFileSystem):
    """Imported file system; nodes check for its data folders at boot."""

    def __init__(
        self, scope: Construct, construct_id: str, source: str, group: ec2.ISecurityGroup, mount_point: str
    ) -> None:
        Construct.__init__(self, scope, construct_id)
        self._describe(source, mount_point, group, DependencyGroup())

    def _take_key(self, scope: Construct, key: kms.IKey | None) -> None:
        pass

    def _link(self, source: DataSource) -> IDependable:  # noqa: ARG002 - nothing is linked
        return self.readiness


def check_links(data: Sequence[DataSource]) -> list[DataSource]:
    """
    Check the data that one file system links, and return it without duplicates.

    Raises:
        ValueError: Two share a folder or overlap in S3, or there are more than FSx can link.
    """
    links = {(source.name, source.bucket_name, source.key): source for source in data}
    ordered = [links[key] for key in sorted(links)]
    for index, source in enumerate(ordered):
        for other in ordered[index + 1 :]:
            is_nested = source.key.startswith(other.key) or other.key.startswith(source.key)
            if source.name == other.name or (source.bucket_name == other.bucket_name and is_nested):
                raise ValueError(
                    f"storage.data must not overlap on lustre, got {source.name} and {other.name} with {source.key!r} "
                    f"and {other.key!r}; declare the larger one alone, or give them different names and prefixes"
                )
    if len(ordered) > _MOST_LINKS:
        raise ValueError(
            f"storage.data must be {_MOST_LINKS} links at most on lustre, got {len(ordered)}; "
            "declare a prefix that holds several of them"
        )
    return ordered


def add_lustre_client(image: NodeImage) -> NodeImage:
    """Add the Lustre client to the packages of an image whose own package repositories have it."""
    if MOUNT_COMMAND in image.packages or image.packages.get("mount.efs") != _AMAZON_LINUX_MARK:
        return image
    return replace(image, packages={**image.packages, MOUNT_COMMAND: _AMAZON_LINUX_CLIENT})
