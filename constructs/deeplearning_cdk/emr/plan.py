"""Plan of an EMR cluster: values that follow from other values, checked before any construct is created."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from aws_cdk import Duration, Size

from deeplearning_cdk.catalog.instance_catalog import (
    InstanceTypeFacts,
    NodeInstanceType,
    describe_instance_type,
    require_nvidia,
    without_efa,
)
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.environment_choice import choose_environment
from deeplearning_cdk.nodes.image_choice import check_volume
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import Rule, check_meaning
from deeplearning_cdk.props.rules import between, lasting, matching, sized
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.cluster_storage import check_vpc_of_file_system
from deeplearning_cdk.storage.lustre import add_lustre_client
from deeplearning_cdk.storage.values import Storage

DEFAULT_INSTANCE_TYPE = "g5.12xlarge"
DEFAULT_RELEASE = "emr-7.14.0"
LOGIN_USER = "hadoop"
"""User of bootstrap actions and steps."""

RELEASES = tuple(f"emr-7.{minor}.0" for minor in range(1, 15))
"""
Releases on Amazon Linux 2023 with a Python for the agent, as of November 2026.

7.0.0 has Python 3.9 alone, 7.1.0 and later have 3.11 beside it (EMR release guide, "Application versions in Amazon EMR
7.x releases").
"""
EMR_IMAGE = "emr"
_BASE_IMAGE = "base-oss-nvidia-driver-gpu-amazon-linux-2023"
"""Deep Learning AMI from which an image of the user's is made."""
_EMR_INTERPRETER = "/usr/bin/python3.11"
"""Newest Python of EMR's own image; its python3 is 3.9 (see `RELEASES`)."""
_DRIVER_PACKAGES = ("nvidia-release", "kernel-devel-{kernel}", "kernel-modules-extra-{kernel}", "nvidia-open")
"""
Driver from Amazon Linux's own repository, which `nvidia-release` adds; the module is built for the running kernel.

Source: aws/amazon-ecs-ami#531 and scripts/enable-ecs-agent-gpu-support-al2023.sh there. EMR installs a driver on GPU
types by itself (EMR management guide, "Supported instance types"); these are for a release that does not.
"""
_LEAST_GIBIBYTES, _MOST_GIBIBYTES = 15, 100
"""EMR management guide, "Customizing the Amazon EBS root device volume"."""
_BROKEN_APPLICATIONS = ("hue", "zeppelin")

OneInstanceType = Annotated[
    NodeInstanceType,
    "pass one type: the members are in uniform instance groups, because ranks on the mixed types of an instance "
    "fleet would wait for the slowest",
]
"""Instance type of every member."""

MemberCount = Annotated[int, between(2, 1000, "count the primary too; for one node, take TrainingCluster")]
"""Number of members, the primary included."""

Release = Annotated[
    str,
    matching(
        r"emr-7\.[0-9]+\.[0-9]+", "be emr-7.x.y", f"earlier ones have another Amazon Linux; write {DEFAULT_RELEASE}"
    ),
    Rule(
        must=f"be one of {', '.join(RELEASES)}",
        remedy=f"write {DEFAULT_RELEASE}, or take a newer deeplearning-cdk",
        is_kept=lambda release: release in RELEASES,
    ),
]
"""Release of EMR."""

EmrImage = Annotated[
    str,
    matching(
        rf"{EMR_IMAGE}|ami-[0-9a-f]{{8}}([0-9a-f]{{9}})?",
        "be emr or the id of an AMI made from a Deep Learning AMI",
        "write emr, or ami- and 8 or 17 hex digits; docs/guides/emr.md has the commands that make such an AMI",
        takes_tokens=True,
    ),
]
"""Machine image of every member."""

Application = Annotated[
    str, matching(r"[A-Za-z][A-Za-z0-9-]{0,63}", "be the name of an application of EMR", "write e.g. Hadoop")
]
"""Application that EMR installs."""

RootVolume = Annotated[
    Size | int,
    sized(_LEAST_GIBIBYTES, _MOST_GIBIBYTES, "EMR takes no other; pass e.g. Size.gibibytes(100), and put data on /efs"),
]
"""Size of every root volume; a number is GiB."""

Restart = Annotated[
    str,
    matching(r"[A-Za-z0-9._-]{0,64}", "be letters, digits, dots, hyphens and underscores", "write e.g. 2"),
]
"""Text whose change replaces the cluster."""

IdleTime = Annotated[Duration, lasting("60 seconds", "7 days", "write e.g. Duration.hours(1)")]
"""Idle time of EMR's auto-termination policy (EMR API reference, AutoTerminationPolicy)."""

_WITHOUT_MEANING: Mapping[str, Mapping[str, str]] = {
    "network": {
        "master_subnet": "all members are in network.worker_subnet",
        "isolated": "EMR installs packages from its own buckets, so members need a route to the Internet",
        "efa": "EMR attaches no EFA, and NCCL uses TCP",
    },
    "software": {
        "image": "pass image to EmrTraining: emr or an AMI id",
        "image_release": "a release of EMR keeps its image, and so does an AMI id",
    },
}
"""Fields of values that EMR gives no meaning, each with the remedy."""


@dataclass(frozen=True)
class EmrPlan:
    """Plan of the members of an EMR cluster."""

    facts: InstanceTypeFacts
    members: int
    image: NodeImage
    """Software of the members; its AMI is used only if `has_custom_image`."""
    has_custom_image: bool
    root_gibibytes: Size | int
    environment: JobEnvironment | None
    """Environment of jobs; None for the image's own software."""


def plan_members(
    *,
    instance_type: NodeInstanceType,
    members: int,
    image: str,
    applications: Sequence[str],
    root_volume: Size | int | None,
    network: Network,
    software: Software,
    storage: Storage,
) -> EmrPlan:
    """
    Derive types, image and environment from the user's values.

    Raises:
        ValueError: Two values contradict each other, or one has no meaning on EMR; the message names the prop, the rule
            and a way out.
    """
    check_meaning("EMR", "network", network, _WITHOUT_MEANING["network"])
    check_meaning("EMR", "software", software, _WITHOUT_MEANING["software"])
    check_vpc_of_file_system(network, storage)
    _check_applications(applications, image)
    _check_root(root_volume, image)
    facts = without_efa(describe_instance_type("instance_type", instance_type))
    _check_type(facts)
    node_image = _describe_image(image, facts)
    return EmrPlan(
        facts=facts,
        members=members,
        image=add_lustre_client(node_image) if storage.lustre else node_image,
        has_custom_image=image != EMR_IMAGE,
        root_gibibytes=_MOST_GIBIBYTES if root_volume is None else root_volume,
        environment=choose_environment(
            software.environment,
            software.environment_cache,
            (facts,),
            node_image.parameter,
            node_image.interpreter,
            isolated=False,
        ),
    )


def _check_applications(applications: Sequence[str], image: str) -> None:
    broken = [name for name in applications if name.lower() in _BROKEN_APPLICATIONS]
    if image != EMR_IMAGE and broken:
        raise ValueError(
            f"applications must be without Hue and Zeppelin on an image of your own, got {broken[0]}; they fail to "
            "start on one made from a Deep Learning AMI, so leave them out or take image emr"
        )


def _check_root(root_volume: Size | int | None, image: str) -> None:
    """Check that a root volume holds an AMI that was made from the Deep Learning AMI."""
    if image != EMR_IMAGE:
        base = NodeImage.deep_learning_amazon_linux(_BASE_IMAGE)
        check_volume("root_volume", root_volume, base, InstanceTypeFacts(name=DEFAULT_INSTANCE_TYPE), has_build=False)


def _check_type(facts: InstanceTypeFacts) -> None:
    if facts.driver_branch is not None or facts.successor:
        raise ValueError(
            "instance_type must have GPUs that the open NVIDIA driver of the image supports, got "
            f"{facts.name}; take {facts.successor or DEFAULT_INSTANCE_TYPE}, or train on it with TrainingCluster"
        )
    require_nvidia("EMR", facts, f"take {DEFAULT_INSTANCE_TYPE}, or train on it with TrainingCluster")


def _describe_image(image: str, facts: InstanceTypeFacts) -> NodeImage:
    base = NodeImage.deep_learning_amazon_linux(_BASE_IMAGE, architecture=facts.architecture)
    if image != EMR_IMAGE:
        return NodeImage.from_ami_id(image, login_user=LOGIN_USER, like=base)
    packages = {**base.packages, "nvidia-smi": _DRIVER_PACKAGES}
    return replace(base, login_user=LOGIN_USER, interpreter=_EMR_INTERPRETER, packages=packages)
