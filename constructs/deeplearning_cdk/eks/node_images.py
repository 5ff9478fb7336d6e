"""Images that EKS makes for nodes: the types that each runs, its name, its disks, and its user data."""

from collections.abc import Mapping
from typing import Literal

from aws_cdk import Fn

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts

NodeImageKind = Literal["bottlerocket", "amazon-linux"]
"""Operating system of the nodes, in the image that EKS makes for it."""

_BOTH = {
    *("g4dn", "g5", "g5g", "g6", "g6e", "g6f", "g7e", "gr6", "gr6f"),
    *("p3", "p3dn", "p4d", "p4de", "p5", "p5e", "p5en", "p6-b200", "p6-b300"),
}
FAMILIES: Mapping[NodeImageKind, frozenset[str]] = {
    "bottlerocket": frozenset(_BOTH),
    "amazon-linux": frozenset({*_BOTH, "g7", "p6e-gb200", "p6e-gb300"}),
}
"""
Families with NVIDIA GPUs that each image runs, as of November 2026.

EKS user guide, "Use EKS-optimized accelerated AMIs for GPU instances". A g7 needs driver 595: Amazon Linux has it since
release v20260917 (awslabs/amazon-eks-ami#2768), Bottlerocket does not (bottlerocket-os/bottlerocket#4889, open).
"""
_NODE_CONFIG = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0

--//--
"""
"""
User data of Amazon Linux 2023, to which EKS adds its own.

EKS user guide, "Customize managed nodes with launch templates"; awslabs/amazon-eks-ami, API reference of nodeadm.
"""
_SETTINGS = """[settings.bootstrap-commands.local-disks]
commands = [
  ["apiclient", "ephemeral-storage", "init"],
  ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]
]
mode = "always"
essential = true
"""
"""
User data of Bottlerocket, to which EKS adds its own; the mode is always, because a bind mount ends with a reboot.

Bottlerocket documentation, "Bootstrap Commands"; bottlerocket-os/bottlerocket-core-kit#15 and #133; aws/karpenter-
provider-aws, `instanceStorePolicy: RAID0`, which writes the same.
"""


def check_family(node_image: NodeImageKind, facts: InstanceTypeFacts, default: str) -> None:
    """
    Check that the image runs a type's GPUs; a type without GPUs runs with each.

    Args:
        node_image: The image.
        facts: The type.
        default: Type to propose where no image runs this one.

    Raises:
        ValueError: It does not.
    """
    if facts.accelerator is None or facts.family in FAMILIES[node_image]:
        return
    if other := next((image for image, families in FAMILIES.items() if facts.family in families), None):
        raise ValueError(
            f"node_image must run the GPUs of {facts.name}, got {node_image}; pass {other}, or take {default}"
        )
    raise ValueError(
        f"instance_type must have GPUs that EKS's images support, got {facts.name}; take {facts.successor or default}, "
        "or train on it with TrainingCluster"
    )


def name_ami_type(node_image: NodeImageKind, facts: InstanceTypeFacts) -> str:
    """Return EKS's name of the image of a type's nodes (EKS API reference, Nodegroup)."""
    architecture = {"x86_64": "x86_64", "arm64": "ARM_64"}[facts.architecture]
    if node_image == "bottlerocket":
        return f"BOTTLEROCKET_{architecture}" + ("_NVIDIA" if facts.accelerator else "")
    return f"AL2023_{architecture}_" + ("NVIDIA" if facts.accelerator else "STANDARD")


def make_user_data(node_image: NodeImageKind, facts: InstanceTypeFacts) -> str | None:
    """
    Return user data in base64 that joins a type's own NVMe disks to one for images and for files of pods.

    Both images use a single disk as it is. None for a type without such disks, so that EKS's user data is the only one.
    """
    if not facts.has_local_disk:
        return None
    return Fn.base64(_SETTINGS if node_image == "bottlerocket" else _NODE_CONFIG)
