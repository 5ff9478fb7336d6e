"""Takes an EFS file system of the user's app, with its mount targets, as what the nodes share."""

from aws_cdk import Annotations, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from constructs import Construct

from deeplearning_cdk.images.node_image import FileSystemMode
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem

ANONYMOUS_ACCESS = "deeplearning_cdk:anonymousAccessDenied"


def adopt_file_system(
    scope: Construct,
    construct_id: str,
    file_system: efs.IFileSystem,
    *,
    vpc: ec2.IVpc,
    subnet: ec2.ISubnet,
    mount_point: str,
    mode: FileSystemMode,
) -> SharedFileSystem:
    """
    Return a file system of the user's as one that nodes mount; its mount target must stand in the nodes' zone.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        file_system: The user's.
        vpc: The VPC of the nodes.
        subnet: The subnet of the workers.
        mount_point: Where nodes mount it.
        mode: How nodes mount it.

    Raises:
        ValueError: It has no security group to which nodes could be admitted, or one in another VPC.
    """
    groups = file_system.connections.security_groups
    if not groups:
        raise ValueError(
            f"file_system must have a security group, got {file_system.node.path} without; import it with the "
            "security_group of its mount targets"
        )
    _check_vpc(groups[0], vpc)
    shared = SharedFileSystem(
        scope,
        construct_id,
        vpc=vpc,
        subnet=subnet,
        mount_point=mount_point,
        mode=mode,
        file_system_id=file_system.file_system_id,
        mount_target_security_group=groups[0],
    )
    shared.await_mount_targets(file_system.mount_targets_available)
    made = file_system.node.default_child
    if mode == "nfs4" and isinstance(made, efs.CfnFileSystem) and Stack.of(made).resolve(made.file_system_policy):
        Annotations.of(scope).add_warning_v2(
            ANONYMOUS_ACCESS,
            f"{file_system.node.path} has a policy, and nodes with plain NFS reach it without a name, which the CDK's "
            "own policy denies: make it with allow_anonymous_access=True, or take an image with efs-utils such as "
            "NodeImage.deep_learning_amazon_linux()",
        )
    return shared


def _check_vpc(group: ec2.ISecurityGroup, vpc: ec2.IVpc) -> None:
    """Refuse a file system whose mount targets, as far as the app shows by their group, are in another VPC."""
    made = group.node.default_child
    if not isinstance(made, ec2.CfnSecurityGroup):
        return
    theirs, ours = (Stack.of(vpc).resolve(vpc_id) for vpc_id in (made.vpc_id, vpc.vpc_id))
    # One VPC may be known by its resource here and by its id there: only resources can be compared.
    if _is_resource(theirs) and _is_resource(ours) and theirs != ours:
        raise ValueError(
            f"vpc must be that of file_system, got {vpc.node.path}; pass the VPC in which its mount targets are"
        )


def _is_resource(vpc_id: object) -> bool:
    return isinstance(vpc_id, dict) and set(vpc_id) == {"Ref"}
