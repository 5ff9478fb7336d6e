"""Choice of the machine image: the user's, checked against the instance types, or one that supports them."""

import re
from typing import Annotated

from aws_cdk import Size

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, has_efa, list_families
from deeplearning_cdk.images.node_image import BASE_UBUNTU_ARM64, NodeImage
from deeplearning_cdk.props.check import is_token
from deeplearning_cdk.props.rules import count_gibibytes

ChosenImage = Annotated[
    NodeImage,
    "take a class method of NodeImage; an image of the CDK has neither a login user nor a Python path: "
    "NodeImage.from_machine_image(image, like=NodeImage.ubuntu())",
]

# Families that the release notes of the x86 images with the open NVIDIA driver list (July 2026).
DEEP_LEARNING_FAMILIES = frozenset(
    "g4dn g5 g6 gr6 g6e g7 g7e p4d p4de p5 p5e p5en p6-b200 p6-b300".split()  # noqa: SIM905
)

_EFS_UTILS = ("amazon-efs-utils",)
"""Package that Amazon Linux has in its own repositories, which nodes reach through the endpoint of S3."""

_STOCK_UBUNTU = "/aws/service/canonical/"
"""Images below this path have no EFA software; AWS's deep-learning images do (DLAMI developer guide, "EFA")."""

_DEEP_LEARNING = "/aws/service/deeplearning/ami/"
_SNAPSHOTS = (
    (re.compile(r"/aws/service/deeplearning/ami/x86_64/base-oss-[^/]*amazon-linux-2023/.*"), 75),
    (re.compile(r"/aws/service/deeplearning/ami/.*"), 18),
    (re.compile(r"/aws/service/canonical/ubuntu/.*"), 8),
)
"""
Smallest root volume in GiB of an image, the size of its snapshot, by its parameter.

75 GiB is the snapshot of Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20260927, and 8 GiB that of
Canonical's stock images. For other Deep Learning AMIs it is a lower bound: such a system, and one CUDA toolkit of about
10 GB (guardian/amigo#1828).
"""
_BUILD_GIBIBYTES, _CUDA_GIBIBYTES = 3, 9
"""Free space of a build of Horovod, and more for PyTorch with CUDA from PyPI, which the master checks before it."""
_MAKERS = ("NVIDIA", "AWS", "AMD", "Habana")
_OPEN_DRIVER, _NEURON = "oss-nvidia-driver", "neuron"
"""Parts of the names of Deep Learning AMIs (DLAMI release notes, "Query AMI-ID with SSMCLI")."""


def choose_image(
    image: NodeImage | None, workers: InstanceTypeFacts, master: InstanceTypeFacts, *, isolated: bool
) -> NodeImage:
    """
    Check the user's image against the instance types, or choose one for them.

    Raises:
        ValueError: The image does not fit the types, or isolated nodes would have to install packages or the EFA
            software.
    """
    chosen = image or _find_default(workers, master)
    _check_architecture(workers, master, chosen)
    _check_accelerators(workers, master, chosen)
    if isolated:
        _check_packages(chosen)
        _check_efa_software(workers, master, chosen)
    return chosen


def find_image(prop: str, facts: InstanceTypeFacts) -> NodeImage:
    """
    Return the default image for an instance type; `prop` names the type in errors.

    Raises:
        ValueError: No known image supports the type's accelerators.
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
        f"software.image must be given for {prop} {facts.name}, got none; the library knows no image for it: "
        "pass NodeImage.from_ssm_parameter or NodeImage.from_ami_id"
    )


def check_volume(
    prop: str, size: Size | int | None, image: NodeImage, facts: InstanceTypeFacts, *, has_build: bool
) -> None:
    """
    Check that a root volume holds the image, and on a node with a build of Horovod also that build.

    EC2 refuses a volume below the image's snapshot (EC2 API reference, EbsBlockDevice: "the volume size must be equal
    to or larger than the snapshot size").

    Raises:
        ValueError: It is too small.
    """
    if size is None or is_token(size):
        return
    least = find_least_volume(image.parameter)
    if has_build:
        has_framework = "pytorch" in image.parameter or not facts.compute_capability
        least = max(least, _BUILD_GIBIBYTES + (0 if has_framework else _CUDA_GIBIBYTES))
    if count_gibibytes(size) < least:
        raise ValueError(
            f"{prop} must be at least {least} GiB for {image.parameter or 'a build of Horovod'}, got "
            f"{count_gibibytes(size):g} GiB; raise it, or leave it out for 150 GiB"
        )


def find_least_volume(parameter: str) -> int:
    """Return the size in GiB of the snapshot of a public parameter's image, or a lower bound; 0 if it is unknown."""
    return next((size for pattern, size in _SNAPSHOTS if pattern.fullmatch(parameter)), 0)


def find_unsupported(
    image: NodeImage, workers: InstanceTypeFacts, master: InstanceTypeFacts
) -> InstanceTypeFacts | None:
    """
    Return the type whose GPUs an image of AWS or Canonical does not support; None for types and images not known.

    The rule of `find_image` decides: a type for which it takes stock Ubuntu with a driver has no image of AWS. Stock
    Ubuntu has no driver of its own.
    """
    for facts in (workers, master):
        if facts.accelerator != "NVIDIA":
            continue
        if image.parameter.startswith(_STOCK_UBUNTU) and "nvidia-smi" not in image.packages:
            return facts
        if image.parameter.startswith(_DEEP_LEARNING) and _OPEN_DRIVER in image.parameter and not _has_open(facts):
            return facts
    return None


def _has_open(facts: InstanceTypeFacts) -> bool:
    """Return whether a Deep Learning AMI with the open driver supports a type, as far as the catalogue knows it."""
    if facts.family not in list_families():
        return True
    return facts.driver_branch is None and facts.family in {*DEEP_LEARNING_FAMILIES, "g5g"}


def _find_default(workers: InstanceTypeFacts, master: InstanceTypeFacts) -> NodeImage:
    """Choose for the more demanding type: one without a ready image first, then an accelerated one."""
    named = (("workers.instance_type", workers), ("master.instance_type", master))
    prop, facts = max(named, key=lambda pair: (pair[1].driver_branch is not None, pair[1].accelerator is not None))
    return find_image(prop, facts)


def _check_architecture(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage) -> None:
    if workers.architecture != master.architecture:
        raise ValueError(
            "master.instance_type must have the architecture of workers.instance_type, got "
            f"{master.name} ({master.architecture}) with {workers.name} ({workers.architecture}); "
            "take two types of one architecture, since all nodes start from one image"
        )
    if image.architecture != workers.architecture:
        raise ValueError(
            f"software.image must have the architecture of the instance types, got {image.architecture} with "
            f"{workers.name} ({workers.architecture}); pass architecture={workers.architecture!r} to the image"
        )


def _check_accelerators(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage) -> None:
    """Refuse a Deep Learning AMI that is for accelerators of another maker; the default would refuse the type too."""
    if not image.parameter.startswith(_DEEP_LEARNING):
        return
    maker = "AWS" if _NEURON in image.parameter else "NVIDIA" if "nvidia" in image.parameter else None
    for prop, facts in (("workers.instance_type", workers), ("master.instance_type", master)):
        if maker is not None and facts.accelerator in _MAKERS and facts.accelerator != maker:
            raise ValueError(
                f"software.image must support the accelerators of {prop} {facts.name} ({facts.accelerator}), got "
                f"{image.parameter} for those of {maker}; pass an image for {facts.accelerator}, or take another type"
            )


def _check_packages(image: NodeImage) -> None:
    if not image.has_packages and image.packages and image.packages.get("mount.efs") != _EFS_UTILS:
        raise ValueError(
            f"software.image must already have {', '.join(sorted(image.packages))} with network.isolated, got one that "
            "installs what is missing at boot; pass has_packages=True to the image if it has, or take "
            "NodeImage.deep_learning_amazon_linux(), whose packages come through the endpoint of S3"
        )


def _check_efa_software(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage) -> None:
    """
    Refuse isolated nodes that would have to download the EFA software.

    For other images than stock Ubuntu and AWS's, the software is not known at synth: nodes check it and report it as
    part of their health.
    """
    if not image.parameter.startswith(_STOCK_UBUNTU):
        return
    for facts in (workers, master):
        if has_efa(facts):
            raise ValueError(
                f"network.efa must be False with network.isolated and stock Ubuntu, got {facts.name}, whose nodes "
                "would download the EFA software; pass efa=False to train over TCP, or an image of your own that has "
                "it: NodeImage.from_ami_id with has_packages=True"
            )
