"""The client of FSx for Lustre on the images of nodes, and how it mounts."""

from dataclasses import replace

from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.images.node_image import NodeImage

MOUNT_COMMAND = "mount.lustre"
# FSx for Lustre user guide: mounting from an EC2 instance; file system access control with a VPC.
MOUNT_OPTIONS = "relatime,flock"
PORTS = {"Lustre": ec2.Port.tcp(988), "LustreServers": ec2.Port.tcp_range(1018, 1023)}
VERSION = "2.15"
"""Current clients of Ubuntu and Amazon Linux 2023 are 2.15; older servers do not take them all."""
# FSx for Lustre user guide, installing the client: Amazon Linux 2023 has it in its own repository.
_AMAZON_LINUX_CLIENT = ("lustre-client",)
_AMAZON_LINUX_MARK = ("amazon-efs-utils",)
"""A package that only Amazon Linux has."""


def add_lustre_client(image: NodeImage) -> NodeImage:
    """Let nodes install the client where the image lacks it, as far as its own package repositories have it."""
    if MOUNT_COMMAND in image.packages or image.packages.get("mount.efs") != _AMAZON_LINUX_MARK:
        return image
    return replace(image, packages={**image.packages, MOUNT_COMMAND: _AMAZON_LINUX_CLIENT})


def brings_lustre_client(image: NodeImage) -> bool:
    """Tell whether nodes install the client by themselves."""
    return MOUNT_COMMAND in image.packages
