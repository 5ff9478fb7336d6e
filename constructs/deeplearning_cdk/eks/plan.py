"""Plan of a cluster on EKS: values that follow from other values, checked before any construct is created."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from aws_cdk import Size

from deeplearning_cdk.capacity.purchase import Purchase, check_purchase
from deeplearning_cdk.catalog.instance_catalog import (
    InstanceTypeFacts,
    NodeInstanceType,
    describe_instance_type,
    has_efa,
    require_nvidia,
    without_efa,
)
from deeplearning_cdk.eks.node_images import NodeImageKind, check_family
from deeplearning_cdk.network.addresses import is_everyone, is_ipv4_network, is_public_network
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.nodes.training_image import choose_built_environment
from deeplearning_cdk.nodes.values import Software
from deeplearning_cdk.props.check import Rule, check_meaning, show_value
from deeplearning_cdk.props.rules import between, count_gibibytes, matching, sized
from deeplearning_cdk.software.job_environment import CONTAINER_IMAGE, JobEnvironment
from deeplearning_cdk.storage.cluster_storage import check_vpc_of_file_system
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.storage.values import Storage

DEFAULT_INSTANCE_TYPE = "p3dn.24xlarge"
DEFAULT_SYSTEM_TYPE = "m7i.large"
DEFAULT_VERSION = "1.35"
DEFAULT_NAMESPACE = "kubeflow-dist-train"
DEFAULT_CAPACITY = "85Gi"
VERSIONS = ("1.33", "1.34", "1.35", "1.36")
"""
Versions of EKS with what a job needs, as of November 2026.

`successPolicy` and `backoffLimitPerIndex` are stable from 1.33 on (Kubernetes, feature gates JobSuccessPolicy and
JobBackoffLimitPerIndex).
"""
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_UNITS = ("Ki", "Mi", "Gi", "Ti", "Pi")
_QUANTITY = re.compile(rf"([1-9][0-9]{{0,9}})({'|'.join(_UNITS)})")

NodeCount = Annotated[int, between(1, 450, "a managed node group has no more; take fewer, with more GPUs each")]
"""Nodes of the members' group (EKS user guide, "service quotas": nodes per managed node group)."""
InitialCount = Annotated[int, between(0, 450, "a managed node group has no more; 0 starts none")]
"""Nodes of the members' group at its creation."""

KubernetesVersion = Annotated[
    str,
    Rule(
        must=f"be one of {', '.join(VERSIONS)}",
        remedy=f"write {DEFAULT_VERSION}, or take a newer deeplearning-cdk",
        is_kept=lambda version: version in VERSIONS,
    ),
]
"""Version of Kubernetes."""

ImageDisk = Annotated[Size | int, sized(50, 16_384, "it holds the images of pods; pass e.g. Size.gibibytes(200)")]
"""Size of the disk for images of each member; a number is GiB."""

PrincipalArn = Annotated[
    str,
    # EKS user guide, "Create access entries": neither a service-linked role nor a session nor the root user.
    matching(
        r"arn:[a-z-]+:iam::[0-9]{12}:(user|role)/(?!aws-service-role/)[A-Za-z0-9/_+=,.@-]{1,512}",
        "be the ARN of an IAM role or user",
        "write e.g. arn:aws:iam::111122223333:role/Admin, not that of a session or of a service-linked role",
        takes_tokens=True,
    ),
]
"""Principal to which EKS gives access."""

_OWN_ADDRESS = "write the address that https://checkip.amazonaws.com shows you, with /32"
ApiPeer = Annotated[
    str,
    Rule(must="be an IPv4 network", remedy=_OWN_ADDRESS, is_kept=is_ipv4_network),
    Rule(must="not be everyone", remedy=_OWN_ADDRESS, is_kept=lambda network: not is_everyone(network)),
    # EKS user guide, "Configure network access to cluster API server endpoint": no reserved addresses.
    Rule(
        must="be of public addresses",
        remedy=f"EKS takes no private and no reserved ones: {_OWN_ADDRESS}; the VPC reaches the API server without it",
        is_kept=is_public_network,
    ),
]
"""Network from which the API server is reached over the Internet."""

Namespace = Annotated[
    str,
    matching(_DNS_LABEL, "be a DNS label of lower-case letters, digits and hyphens", f"write e.g. {DEFAULT_NAMESPACE}"),
    Rule(
        must="not be one of Kubernetes itself",
        remedy=f"write e.g. {DEFAULT_NAMESPACE}",
        is_kept=lambda name: not name.startswith("kube-"),
    ),
]
"""Namespace of jobs."""

QueueName = Annotated[
    str, matching(_DNS_LABEL, "be a DNS label of lower-case letters, digits and hyphens", "write e.g. training")
]
"""LocalQueue of Kueue."""

Capacity = Annotated[
    str, matching(_QUANTITY.pattern, f"be a whole number with one of {', '.join(_UNITS)}", "write e.g. 85Gi")
]
"""Capacity of a volume, which EFS does not enforce."""

PodImage = Annotated[
    str,
    matching(
        CONTAINER_IMAGE,
        "be the URI of a container image",
        "write account.dkr.ecr.region.amazonaws.com/repository:tag",
        takes_tokens=True,
    ),
]
"""Image of the pods."""

_WITHOUT_MEANING: Mapping[str, Mapping[str, str]] = {
    "network": {
        "master_subnet": "all members are in network.worker_subnet",
        "isolated": "nodes need endpoints of ECR, EKS and STS that no cluster of ours makes, so they need a route to "
        "the Internet",
    },
    "software": {
        "image": "pass node_image, and image for the pods",
        "image_release": "a node group keeps the image with which it was made",
        "environment_cache": "the environment is part of the image of the pods",
    },
    "storage": {"lustre": "pods mount the shared file system alone, so read data from storage.data"},
}
"""Fields of values that EKS gives no meaning, each with the remedy."""


@dataclass(frozen=True)
class EksPlan:
    """Plan of the nodes of a cluster on EKS."""

    facts: InstanceTypeFacts
    members: int
    initial_members: int
    system: InstanceTypeFacts
    node_image: NodeImageKind
    image_disk: Size | int
    purchase: Purchase
    environment: JobEnvironment | None
    """Environment that is built into an image; None for an image of the user's."""

    @property
    def is_spot(self) -> bool:
        """True if the members are spot instances."""
        return self.purchase.kind == "spot"

    @property
    def is_placed(self) -> bool:
        """True if the members are close together, in a placement group of the cluster's, however many they are."""
        return (
            self.facts.is_clusterable
            and not self.facts.is_burstable
            and self.facts.accelerator is not None
            and self.purchase.is_placeable
        )

    @property
    def efa_count(self) -> int:
        """EFA interfaces that a pod asks for: none where the stack builds its image, which has no software for EFA."""
        return len(self.facts.efa_cards) if has_efa(self.facts) and self.environment is None else 0

    @property
    def memory_mib(self) -> int:
        """Memory of a pod in MiB, which fits a node beside the kubelet and the system's pods; 0 if not known."""
        memory = self.facts.memory_mib or 0
        # The system hides up to 7.5 % (Karpenter, VM_MEMORY_OVERHEAD_PERCENT); the kubelet reserves by the number of
        # pods: much of a small node, and 8 GiB of a large one.
        return max(memory * 4 // 5 - 1280, memory * 92 // 100 - 9216, memory // 4)

    @property
    def disk_gibibytes(self) -> int:
        """Disk of a pod in GiB, which leaves room for images before the kubelet evicts; 0 if not known."""
        if self.facts.has_local_disk:
            size = (self.facts.local_gigabytes or 0) * 10**9 >> 30
        else:
            size = int(count_gibibytes(self.image_disk))
        return max(size * 4 // 5 - 20, size // 4)

    @property
    def has_nvidia_plugin(self) -> bool:
        """True if the members' image contains the NVIDIA device plugin (EKS user guide, "ml-eks-optimized-ami")."""
        return self.facts.accelerator is not None and self.node_image == "bottlerocket"


def plan_nodes(
    *,
    instance_type: NodeInstanceType,
    members: int,
    initial_members: int | None,
    system_instance_type: NodeInstanceType,
    node_image: NodeImageKind,
    image_disk: Size | int,
    purchase: Purchase | None,
    image: str | None,
    network: Network,
    software: Software,
    storage: Storage,
) -> EksPlan:
    """
    Derive types, images and environment from the user's values.

    Raises:
        ValueError: Two values contradict each other, or one has no meaning on EKS; the message names the prop, the rule
            and a way out.
    """
    for name, value in (("network", network), ("software", software), ("storage", storage)):
        check_meaning("EKS", name, value, _WITHOUT_MEANING[name])
    check_vpc_of_file_system(network, storage)
    _check_file_system(storage)
    facts = describe_instance_type("instance_type", instance_type)
    require_nvidia("EKS", facts, f"take {DEFAULT_INSTANCE_TYPE}, or train on it with TrainingCluster")
    check_family(node_image, facts, DEFAULT_INSTANCE_TYPE)
    system = describe_instance_type("system_instance_type", system_instance_type)
    _check_system(system)
    if initial_members is not None and initial_members > members:
        raise ValueError(
            f"initial_members must not exceed members, got {initial_members} > {members}; lower it or raise members"
        )
    return EksPlan(
        facts=facts if network.efa else without_efa(facts),
        members=members,
        initial_members=members if initial_members is None else initial_members,
        system=without_efa(system),
        node_image=node_image,
        image_disk=image_disk,
        purchase=_choose_purchase(purchase, network.availability_zone),
        environment=choose_built_environment(image, software.environment, facts),
    )


def choose_capacities(shared: str, claim: str | None) -> tuple[str, str]:
    """
    Return the capacities of a volume and of its claim, which is that of the volume unless the user says another.

    Raises:
        ValueError: The claim is larger; Kubernetes would never bind it.
    """
    if claim is None:
        return shared, shared
    if _count_bytes(claim) > _count_bytes(shared):
        raise ValueError(
            f"claim_capacity must not exceed shared_capacity {shared}, got {claim}; such a claim stays Pending, so "
            "lower it, leave it out, or raise shared_capacity"
        )
    return shared, claim


def check_administrators(administrators: Sequence[str]) -> None:
    """
    Check that each administrator is named once.

    Raises:
        ValueError: One is named twice; EKS takes one access entry of a principal.
    """
    if twice := [arn for index, arn in enumerate(administrators) if arn in administrators[:index]]:
        raise ValueError(
            f"administrators must name each principal once, got {twice[0]} twice; leave the second one out"
        )


def _count_bytes(quantity: str) -> int:
    number, unit = quantity[:-2], quantity[-2:]
    return int(number) << (10 * (1 + _UNITS.index(unit)))


def _check_file_system(storage: Storage) -> None:
    shared = storage.file_system
    if isinstance(shared, SharedFileSystem) and shared.mode != "efs":
        raise ValueError(
            "storage.file_system must be of mode efs, because the driver of EKS mounts it by an access point with TLS "
            "and IAM, got mode nfs4; take that of a cluster on Amazon Linux, or a new one"
        )


def _check_system(facts: InstanceTypeFacts) -> None:
    if facts.accelerator is not None:
        raise ValueError(
            f"system_instance_type must be without accelerators, got {facts.name}; it runs DNS and drivers alone, so "
            f"take {DEFAULT_SYSTEM_TYPE}"
        )
    size = facts.name.partition(".")[2]
    is_one_core = size == "medium" and facts.architecture == "arm64" and not facts.is_burstable
    # 4 pods, and 8 on a core of Graviton (awslabs/amazon-eks-ami, eni-max-pods.txt).
    if size in {"nano", "micro"} or is_one_core:
        raise ValueError(
            f"system_instance_type must have addresses for the nine pods of the add-ons, got {facts.name}; take "
            f"{DEFAULT_SYSTEM_TYPE}"
        )


def _choose_purchase(value: Purchase | None, zone: str | None) -> Purchase:
    purchase = check_purchase("purchase", value, zone)
    if purchase.max_price is not None:
        raise ValueError(
            f"purchase must be without max_price on EKS, got {purchase.max_price:g}; a managed node group pays up to "
            "the on-demand price, so leave it out"
        )
    if purchase.resource_group_arn:
        # EC2 user guide, "Launch instances into an existing Capacity Reservation".
        raise ValueError(
            f"purchase must name one reservation on EKS, got {show_value(purchase.resource_group_arn)}; a launch "
            "template lets nodes launch on demand beyond those of a group, so pass Purchase.reservation(…)"
        )
    return purchase
