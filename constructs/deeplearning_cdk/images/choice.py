"""The image that nodes start from: the user's if it fits the instance types, or one that drives them."""

from typing import Annotated

from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.images.props import BASE_UBUNTU_ARM64
from deeplearning_cdk.nodes.efa_choice import check_efa
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts

ChosenImage = Annotated[
    NodeImage,
    "take a class method of NodeImage; an image of the CDK says neither who logs in nor which Python it has: "
    "NodeImage.from_machine_image(image, like=NodeImage.ubuntu())",
]
"""The user's image."""

# Families that the release notes of the x86 images with the open NVIDIA driver list (July 2026).
DEEP_LEARNING_FAMILIES = frozenset(
    "g4dn g5 g6 gr6 g6e g7 g7e p4d p4de p5 p5e p5en p6-b200 p6-b300".split()  # noqa: SIM905
)

_EFS_UTILS = ("amazon-efs-utils",)
"""A package that Amazon Linux has in its own repositories, which nodes reach through the endpoint of S3."""


def take_image(
    image: NodeImage | None, workers: InstanceTypeFacts, master: InstanceTypeFacts, *, isolated: bool
) -> NodeImage:
    """
    Check the user's image, or choose one.

    Args:
        image: The user's; None without.
        workers: The workers' instance type.
        master: The master's instance type.
        isolated: Whether nodes have no route to the Internet.

    Raises:
        ValueError: It does not fit the types, or isolated nodes would have to install packages or EFA's software.
    """
    taken = _check_architecture(workers, master, image or _choose(workers, master))
    if isolated and not taken.has_packages and taken.packages and taken.packages.get("mount.efs") != _EFS_UTILS:
        raise ValueError(
            f"image must already have {', '.join(sorted(taken.packages))} with isolated, got one that installs what "
            "is missing at boot; pass has_packages=True to the image if it has, or take "
            "NodeImage.deep_learning_amazon_linux(), whose packages come through the endpoint of S3"
        )
    check_efa(workers, master, taken, isolated=isolated)
    return taken


def _choose(workers: InstanceTypeFacts, master: InstanceTypeFacts) -> NodeImage:
    """Choose by the type that asks for more: one that no ready image drives, then an accelerated one."""
    named = (("worker_instance_type", workers), ("master_instance_type", master))
    prop, facts = max(named, key=lambda pair: (pair[1].driver_branch is not None, pair[1].accelerator is not None))
    return choose_image(prop, facts)


def _check_architecture(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage) -> NodeImage:
    if workers.architecture != master.architecture:
        raise ValueError(
            "master_instance_type must have the architecture of worker_instance_type, got "
            f"{master.name} ({master.architecture}) with {workers.name} ({workers.architecture}); "
            "take two types of one architecture, since all nodes start from one image"
        )
    if image.architecture != workers.architecture:
        raise ValueError(
            f"image must have the architecture of the instance types, got {image.architecture} with "
            f"{workers.name} ({workers.architecture}); pass architecture={workers.architecture!r} to the image"
        )
    return image


def choose_image(prop: str, facts: InstanceTypeFacts) -> NodeImage:
    """
    Choose the image for a type whose user named none.

    Args:
        prop: The user's prop that named the type, for the error.
        facts: The type.

    Raises:
        ValueError: No image is known that drives the type's accelerators.
    """
    if facts.accelerator is None:
        return NodeImage.ubuntu(architecture=facts.architecture)
    if facts.driver_branch is not None:
        return NodeImage.ubuntu(architecture=facts.architecture).with_nvidia_driver(facts.driver_branch)
    if facts.family in DEEP_LEARNING_FAMILIES and facts.architecture == "x86_64":
        return NodeImage.deep_learning_ubuntu()
    if facts.family == "g5g":
        return NodeImage.deep_learning_ubuntu(BASE_UBUNTU_ARM64, architecture="arm64")
    raise ValueError(
        f"image must be given for {prop} {facts.name}, got none; no image is known here that drives it: "
        "pass NodeImage.from_ssm_parameter or NodeImage.from_ami_id"
    )
