"""Shared file system of all nodes: a new EFS file system, or an existing one."""

from typing import Annotated, Any, Literal

import jsii
from aws_cdk import Aws, Fn, RemovalPolicy, Size, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.images.node_image import FileSystemMode
from deeplearning_cdk.network.security_rules import allow_ingress
from deeplearning_cdk.network.subnets import check_vpc
from deeplearning_cdk.props.check import Rule, checked
from deeplearning_cdk.props.rules import count_mebibytes, matching
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.encryption import EncryptionKey
from deeplearning_contract.setting_parts import FileSystemSettings

_NFS_PORT = 2049
# AWS's recommended options for NFS clients of EFS (EFS user guide, mounting considerations).
_NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
_LOGIN_USER_ID = "1000"
_MOUNT_POINT = "/efs"
"""Mount point, unless `storage.mount_point` differs."""
# EFS quotas: provisioned throughput.
_LEAST_MEBIBYTES, _MOST_MEBIBYTES = 1, 3414

FileSystemId = Annotated[
    str,
    matching(
        r"fs-[0-9a-f]{8}([0-9a-f]{9})?",
        "be fs- and 8 or 17 hex digits",
        "list yours with `aws efs describe-file-systems`",
        takes_tokens=True,
    ),
]
"""Id of an existing file system."""

AccessPointId = Annotated[
    str,
    matching(
        r"fsap-[0-9a-f]{8,40}",
        "be fsap- and hex digits",
        "list yours with `aws efs describe-access-points`",
        takes_tokens=True,
    ),
]
"""Id of an existing access point."""

FileSystemThroughput = (
    Literal["elastic", "bursting"]
    | Annotated[
        Size,
        Rule(
            must=f"be from {_LEAST_MEBIBYTES} to {_MOST_MEBIBYTES} MiB each second",
            remedy="write e.g. Size.mebibytes(128), or elastic for more",
            is_kept=lambda size: _LEAST_MEBIBYTES <= count_mebibytes(size) <= _MOST_MEBIBYTES,
        ),
    ]
)
"""Throughput of a new file system; a size is provisioned throughput per second."""

NewRemovalPolicy = Annotated[
    RemovalPolicy,
    Rule(
        must="not be SNAPSHOT",
        remedy="file systems have none; pass RETAIN_ON_UPDATE_OR_DELETE, RETAIN or DESTROY",
        is_kept=lambda policy: policy is not RemovalPolicy.SNAPSHOT,
    ),
]
"""Removal policy of a new file system."""


@jsii.implements(ec2.IConnectable)
class SharedFileSystem(Construct):
    """
    Shared file system of a cluster, in the nodes' zone, encrypted.

    Mode `nfs4` is plain NFS 4.1, for images without efs-utils: EFS can require neither TLS nor IAM of such clients, so
    traffic within the subnet is not encrypted, and every member of the nodes' security group can read and write
    everything. Only the security groups protect it. Mode `efs` uses an access point with IAM and TLS; a new file system
    then refuses clients without either. An existing one is mounted at its root, in which user 1000 must be able to
    write.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        vpc: The VPC of the nodes.
        subnet: The subnet of the mount target.
        mode: Mount mode. Default: plain NFS 4.1.
        file_system_id: An existing file system. Default: a new one.
        mount_target_security_group: Security group of the existing file system's mount target in the nodes' zone; rules
            for the nodes are added to it. Default: a mount target is created.
        access_point_id: An existing access point of the existing file system. Default: mode `efs` creates one.
        throughput: Throughput of a new file system: `elastic` (scales with use, billed by use), `bursting` (scales with
            the stored size), or a provisioned size per second. Default: elastic.
        removal_policy: Removal policy of a new file system. Default: it is retained, except when the stack's own
            creation fails.
        encryption_key: KMS key of a new file system. Default: the account's key for EFS.

    Attributes:
        file_system_id: Id of the file system.
        vpc: The VPC of its mount target.
        subnet: The subnet of its mount target.
        mode: Mount mode.
        access_point_id: Id of the access point through which nodes mount it; None in mode `nfs4`.
        mount_settings: Mount settings of the nodes.
        readiness: Dependencies of a node that mounts it.

    Raises:
        ValueError: The id is malformed, a security group is given without it, or a throughput with it; the subnet or
            the group is in another VPC.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        mode: FileSystemMode = "nfs4",
        file_system_id: FileSystemId | None = None,
        mount_target_security_group: ec2.ISecurityGroup | None = None,
        access_point_id: AccessPointId | None = None,
        throughput: FileSystemThroughput | None = None,
        removal_policy: NewRemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        encryption_key: EncryptionKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        if mount_target_security_group is not None and file_system_id is None:
            raise ValueError(
                "mount_target_security_group must come with file_system_id, got none; pass the id, or neither"
            )
        if throughput is not None and file_system_id is not None:
            raise ValueError("throughput must be left out with file_system_id, got both; the file system has its own")
        check_vpc("subnet", subnet, "vpc", vpc)
        if mount_target_security_group is not None:
            check_vpc("mount_target_security_group", mount_target_security_group, "vpc", vpc)
        self.vpc, self.subnet, self.mode = vpc, subnet, mode
        self._data_folders: dict[str, str] = {}
        self._readiness = DependencyGroup()
        self.readiness: IDependable = self._readiness
        self.file_system_id = file_system_id or self._make_file_system(
            throughput or "elastic", removal_policy, encryption_key
        )
        self._security_group = mount_target_security_group or self._make_mount_target(vpc, subnet)
        self._connections = ec2.Connections(
            security_groups=[self._security_group], default_port=ec2.Port.tcp(_NFS_PORT)
        )
        self.access_point_id = access_point_id
        self._access_point_arn = (
            f"arn:{PARTITION}:elasticfilesystem:{REGION}:{ACCOUNT_ID}:access-point/{access_point_id}"
        )
        if mode == "efs" and access_point_id is None:
            self.access_point_id = self._make_access_point(is_new=file_system_id is None)
        self.mount_settings = self._describe_mount()

    @classmethod
    @checked
    def from_shared_file_system_attributes(
        cls,
        scope: Construct,
        construct_id: str,
        *,
        file_system_id: FileSystemId,
        vpc: ec2.IVpc,
        subnet: ec2.ISubnet,
        security_group: ec2.ISecurityGroup,
        access_point_id: AccessPointId | None = None,
    ) -> "SharedFileSystem":
        """
        Import the file system of a cluster in another app, with which it shares jobs; only rules are created.

        Args:
            scope: The parent.
            construct_id: The id in the parent.
            file_system_id: Its id, `file_system.file_system_id` of the other cluster.
            vpc: The VPC of its mount target.
            subnet: The subnet of its mount target.
            security_group: Group of its mount target, `file_system.connections.security_groups[0]`.
            access_point_id: Its access point, `file_system.access_point_id`, where the other cluster mounts with IAM
                and TLS. Default: it mounts plain NFS 4.1.

        Raises:
            ValueError: An id is malformed.
        """
        return cls(
            scope,
            construct_id,
            vpc=vpc,
            subnet=subnet,
            mode="nfs4" if access_point_id is None else "efs",
            file_system_id=file_system_id,
            mount_target_security_group=security_group,
            access_point_id=access_point_id,
        )

    def add_mount_target(self, construct_id: str, subnet: ec2.ISubnet) -> None:
        """
        Add a mount target in a further zone, where the DNS name of the file system then resolves to it.

        EFS has at most one mount target in a zone, and its DNS name resolves to that of the client's zone (EFS API
        reference, CreateMountTarget; EFS user guide, "Mounting on Amazon EC2 with a DNS name").
        """
        target = efs.CfnMountTarget(
            self,
            construct_id,
            file_system_id=self.file_system_id,
            subnet_id=subnet.subnet_id,
            security_groups=[self._security_group.security_group_id],
        )
        self._readiness.add(target)

    def await_mount_targets(self, *targets: IDependable) -> None:
        """Add mount targets that are created elsewhere to `readiness`."""
        self._readiness.add(*targets)

    @property
    def connections(self) -> ec2.Connections:
        """The mount target's connections; the default port is NFS."""
        return self._connections

    def allow_mount_from(self, nodes: ec2.ISecurityGroup, scope: Construct | None = None) -> IDependable:
        """
        Allow the members of a security group to mount the file system.

        Args:
            nodes: The security group.
            scope: Scope of the rule: another cluster, whose nodes alone wait for it. Default: the file system.

        Returns:
            Dependencies of a node that mounts it.
        """
        rule = allow_ingress(
            scope or self,
            "FileSystemFromNodes" if scope else "FromNodes",
            group=self._security_group,
            members=nodes,
            port=ec2.Port.tcp(_NFS_PORT),
            description="NFS from the nodes",
        )
        if scope is not None:
            return DependencyGroup(self.readiness, rule)
        self._readiness.add(rule)
        return self.readiness

    def reserve_data_folder(self, name: str, cluster: str) -> None:
        """
        Reserve a data folder for one cluster, so that no other writes to it.

        Args:
            name: The data's name.
            cluster: Path of the cluster.

        Raises:
            ValueError: Another cluster of the file system has data with this name.
        """
        other = self._data_folders.setdefault(name, cluster)
        if other != cluster:
            raise ValueError(
                f"storage.data must be staged by one cluster of a file system, got {name!r} from {cluster} and "
                f"{other}; declare it on one, and let the jobs of both read it in data/{name} of the file system, "
                "or rename one"
            )

    def mount_statements(self) -> list[iam.PolicyStatement]:
        """Return the permissions of a node that mounts it; none in mode `nfs4`."""
        if self.access_point_id is None:
            return []
        return [
            iam.PolicyStatement(
                actions=["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
                resources=[self.arn],
                conditions={"StringEquals": {"elasticfilesystem:AccessPointArn": self._access_point_arn}},
            )
        ]

    @property
    def arn(self) -> str:
        """ARN of the file system."""
        return Fn.sub(
            "arn:${AWS::Partition}:elasticfilesystem:${AWS::Region}:${AWS::AccountId}:file-system/${Id}",
            {"Id": self.file_system_id},
        )

    def _make_file_system(
        self, throughput: FileSystemThroughput, removal_policy: RemovalPolicy, key: kms.IKey | None
    ) -> str:
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            kms_key_id=key.key_arn if key else None,
            throughput_mode="provisioned" if isinstance(throughput, Size) else throughput,
            provisioned_throughput_in_mibps=count_mebibytes(throughput) if isinstance(throughput, Size) else None,
            file_system_policy=_ENCRYPTED_ONLY if self.mode == "efs" else None,
            file_system_tags=[efs.CfnFileSystem.ElasticFileSystemTagProperty(key="Name", value=self.node.path)],
        )
        self.node.default_child = file_system
        file_system.apply_removal_policy(removal_policy)
        return file_system.ref

    def _make_mount_target(self, vpc: ec2.IVpc, subnet: ec2.ISubnet) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            allow_all_outbound=False,
            description="Mount target of the shared file system",
        )
        target = efs.CfnMountTarget(
            self,
            "MountTarget",
            file_system_id=self.file_system_id,
            subnet_id=subnet.subnet_id,
            security_groups=[group.security_group_id],
        )
        self._readiness.add(target)
        return group

    def _make_access_point(self, *, is_new: bool) -> str:
        # EFS makes a missing root directory with this owner; "/" always exists and belongs to root.
        owner = efs.CfnAccessPoint.CreationInfoProperty(
            owner_uid=_LOGIN_USER_ID, owner_gid=_LOGIN_USER_ID, permissions="0755"
        )
        access_point = efs.CfnAccessPoint(
            self,
            "AccessPoint",
            file_system_id=self.file_system_id,
            posix_user=efs.CfnAccessPoint.PosixUserProperty(uid=_LOGIN_USER_ID, gid=_LOGIN_USER_ID),
            root_directory=efs.CfnAccessPoint.RootDirectoryProperty(
                path="/deeplearning" if is_new else "/", creation_info=owner if is_new else None
            ),
        )
        self._readiness.add(access_point)
        self._access_point_arn = access_point.attr_arn
        return access_point.ref

    def _describe_mount(self) -> FileSystemSettings:
        if self.access_point_id is not None:
            options = Fn.join("", ["tls,iam,accesspoint=", self.access_point_id])
            return FileSystemSettings("efs", f"{self.file_system_id}:/", options, _MOUNT_POINT)
        source = f"{self.file_system_id}.efs.{Stack.of(self).region}.{Aws.URL_SUFFIX}:/"
        return FileSystemSettings("nfs4", source, _NFS_OPTIONS, _MOUNT_POINT)


_ENCRYPTED_ONLY: dict[str, Any] = {
    # A policy without an allow leaves access to identity policies alone, so IAM is required too. It names no resource,
    # as in the examples of EFS: it applies to the file system to which it is attached. Its actions are those of clients
    # alone: EFS refuses a policy that it takes for one which prevents later changes of the policy.
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "elasticfilesystem:Client*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    ],
}
