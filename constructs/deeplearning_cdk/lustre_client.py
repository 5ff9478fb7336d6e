"""The client of FSx for Lustre on the images of nodes."""

from dataclasses import replace

from deeplearning_cdk.node_image import NodeImage

MOUNT_COMMAND = "mount.lustre"
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
