"""Clusters and nodes as EKS describes them to the lab, and the lab's control planes as EKS sees them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdk_rehearsal.machine import Machine


@dataclass(frozen=True)
class AccessPolicy:
    """
    A policy of an access entry.

    Attributes:
        name: Its name, such as `AmazonEKSEditPolicy`.
        namespaces: Where it holds; none for the whole cluster.
    """

    name: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterUser:
    """
    Sender of a token.

    Attributes:
        name: User name in Kubernetes.
        groups: Groups of its access entry.
        principal: ARN of the role or user that has the access entry, by which `RunningCluster.grant` names it.
        policies: Policies of its access entry.
    """

    name: str
    groups: tuple[str, ...]
    principal: str
    policies: tuple[AccessPolicy, ...]


@dataclass(frozen=True)
class ClusterOrder:
    """
    A control plane to start.

    Attributes:
        name: Name of the cluster.
        version: Version of Kubernetes, such as `1.35`.
        review: Returns the sender of a bearer token; None where the answer is 401.
    """

    name: str
    version: str
    review: Callable[[str], ClusterUser | None] = field(repr=False)


@dataclass(frozen=True)
class Taint:
    """A taint of a node, with an effect of Kubernetes such as `NoSchedule`."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True)
class ClusterNode:
    """
    An instance of a node group that joins the cluster.

    Attributes:
        machine: The instance. Its user data is that of its operating system, which nothing boots here.
        name: Name of the node, the private DNS name of the instance.
        group: Name of the node group.
        ami_type: EKS's name of its image.
        labels: Labels of the node.
        taints: Taints of the node.
        gpu_count: GPUs that the driver of the image shows.
        efa_count: EFA interfaces.
        capacity: Name -> amount of what the instance has, such as `memory`.
        allocatable: Name -> amount of that which pods may have.
        find_fault: Returns why the node is not ready, in the kubelet's words; empty where it is.
    """

    machine: Machine
    name: str
    group: str
    ami_type: str
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    gpu_count: int
    efa_count: int
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    find_fault: Callable[[], str] = field(repr=False)


class RunningCluster(Protocol):
    """A control plane that was started; its methods are called from several threads."""

    @property
    def endpoint(self) -> str:
        """URL of the API server."""

    @property
    def authority(self) -> str:
        """Its certificate authority, PEM in base64."""

    def add_node(self, node: ClusterNode) -> None:
        """Take a node into the cluster."""

    def remove_node(self, instance_id: str) -> None:
        """Take it that the instance of a node is gone; an unknown one is not an error."""

    def drain_node(self, instance_id: str, seconds: float) -> bool:
        """
        Cordon the node of an instance and evict its pods, but for those of DaemonSets.

        Args:
            instance_id: The instance.
            seconds: How long to wait for the pods to end.

        Returns:
            True when no pod is left.
        """

    def change_node(self, node: ClusterNode) -> None:
        """Take the labels and taints of a node that has joined."""

    def grant(self, principal: str, policy: str, namespaces: Sequence[str]) -> None:
        """
        Give the role or user with this ARN a policy, in namespaces or, without any, in the whole cluster.

        Nothing takes it back: one whose entry is gone sends tokens in vain.
        """

    def stop(self) -> None:
        """End the control plane."""


class ClusterHost(Protocol):
    """Runs control planes."""

    def start(self, order: ClusterOrder) -> RunningCluster:
        """Start a control plane; returns when it answers."""
