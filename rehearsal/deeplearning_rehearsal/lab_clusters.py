"""Control planes of the lab as EKS sees them: nodes join, are drained and go, and access entries give rights."""

import base64
import contextlib
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.eks.host import ClusterNode, ClusterOrder, ClusterUser
from cdk_rehearsal.kubernetes.api_client import MERGE, STRATEGIC, ApiClient, ApiError, locate
from cdk_rehearsal.kubernetes.container_logs import LogServer
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from cdk_rehearsal.kubernetes.kubelet import Kubelets
from cdk_rehearsal.kubernetes.node_status import KubernetesNode
from cdk_rehearsal.kubernetes.users import User
from cdk_rehearsal.lab import StandIn
from deeplearning_contract.jobs.kubernetes_cluster import EFA, GPU
from deeplearning_rehearsal.lab_pods import LabPods

_POLICIES = {"AmazonEKSClusterAdminPolicy": "cluster-admin", "AmazonEKSEditPolicy": "edit"}
"""Policy of EKS -> the cluster role with its rights."""
_EFA_PLUGIN = "aws-efa-k8s-device-plugin"
_POLL_SECONDS = 0.3


def is_drained(pod: Mapping[str, Any]) -> bool:
    """Return whether a node that is drained waits for a pod: it has not ended, and no DaemonSet makes it."""
    owners = [each["kind"] for each in pod["metadata"].get("ownerReferences", [])]
    return "DaemonSet" not in owners and pod["status"].get("phase") not in ("Succeeded", "Failed")


class KubernetesCluster:
    """
    A control plane with its nodes, as EKS sees it.

    Attributes:
        plane: The control plane.
        api: Client with every right.
        kubelets: The kubelets of its nodes.
    """

    def __init__(self, plane: ControlPlane, pods: LabPods, report: Callable[[str, str], None]) -> None:
        self.plane, self._pods, self._report = plane, pods, report
        self.api = ApiClient(plane.endpoint, plane.authority, plane.token)
        folder = plane.authority.parent
        self._logs = LogServer(folder / "server.crt", folder / "server.key")
        self.kubelets = Kubelets(self.api, pods, self._logs, report)
        self._names: dict[str, str] = {}
        self._unbound: list[tuple[str, str, Mapping[str, Any]]] = []
        self._binding = threading.Lock()

    @property
    def endpoint(self) -> str:
        """URL of the API server."""
        return self.plane.endpoint

    @property
    def authority(self) -> str:
        """Its certificate authority, PEM in base64."""
        return base64.b64encode(self.plane.authority.read_bytes()).decode()

    def add_node(self, node: ClusterNode) -> None:
        """Take a node into the cluster."""
        self._pods.admit(node)
        self._names[node.machine.instance_id] = node.name
        self.kubelets.join(
            KubernetesNode(
                name=node.name,
                address=node.machine.address,
                labels=node.labels,
                taints=[{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints],
                capacity=node.capacity,
                allocatable=node.allocatable,
                resources={GPU: node.gpu_count},
                plugged={_EFA_PLUGIN: {EFA: node.efa_count}},
                find_fault=node.find_fault,
            )
        )

    def drain_node(self, instance_id: str, seconds: float) -> bool:
        """Cordon a node and evict its pods, as EKS does; return whether they have ended in time."""
        name, deadline = self._names[instance_id], time.monotonic() + seconds
        self.api.call("PATCH", locate("nodes", name=name), {"spec": {"unschedulable": True}}, MERGE)
        while pods := [
            each for each in self.api.list("pods", fieldSelector=f"spec.nodeName={name}") if is_drained(each)
        ]:
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    self._evict(pod)
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _evict(self, pod: Mapping[str, Any]) -> None:
        """Evict a pod as the API of evictions does (Kubernetes, pkg/registry/core/pod/storage/eviction.go)."""
        place = locate("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        with contextlib.suppress(ApiError):  # It has ended meanwhile.
            self.api.call("PATCH", f"{place}/status", {"status": {"conditions": [condition]}}, STRATEGIC)
            self.api.call("DELETE", place)

    def change_node(self, node: ClusterNode) -> None:
        """Take the labels and taints of a node."""
        taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints]
        body = {"metadata": {"labels": dict(node.labels)}, "spec": {"taints": taints}}
        self.api.call("PATCH", locate("nodes", name=node.name), body, MERGE)

    def remove_node(self, instance_id: str) -> None:
        """Take it that the instance of a node is gone."""
        if (name := self._names.pop(instance_id, None)) is not None:
            self.kubelets.lose(name)
            self.api.call("DELETE", locate("nodes", name=name))

    def grant(self, principal: str, policy: str, namespaces: Sequence[str]) -> None:
        """
        Give the role or user with this ARN a policy, in namespaces or, without any, in the whole cluster.

        EKS does not ask whether the namespaces exist (EKS user guide, "Associate access policies with access entries").
        """
        name = f"{policy}-{zlib.crc32(principal.encode()):x}"
        group = "rbac.authorization.k8s.io"
        role = {"apiGroup": group, "kind": "ClusterRole", "name": _POLICIES[policy]}
        subject = {"kind": "Group", "apiGroup": group, "name": principal}
        body = {"metadata": {"name": name.lower()}, "roleRef": role, "subjects": [subject]}
        with self._binding:
            for namespace in namespaces or ("",):
                self._unbound.append(("rolebindings" if namespace else "clusterrolebindings", namespace, body))
        self.bind()

    def bind(self) -> None:
        """Bind the policies whose namespaces are there by now."""
        with self._binding:
            self._unbound = [each for each in self._unbound if not self._is_bound(*each)]

    def _is_bound(self, resource: str, namespace: str, body: Mapping[str, Any]) -> bool:
        try:
            self.api.call("POST", locate(resource, namespace), body)
        except ApiError as error:
            if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise
            return error.code == HTTPStatus.CONFLICT  # Given before.
        return True

    def stop(self) -> None:
        """End the control plane."""
        self.kubelets.close()
        self._logs.close()
        self.plane.stop()


class KubernetesHost:
    """
    Starts the control plane of a rehearsal.

    Attributes:
        cluster: The control plane that was started.
    """

    def __init__(
        self, folder: Path, pods: LabPods, report: Callable[[str, str], None], make_plane: Callable[..., ControlPlane]
    ) -> None:
        self._folder, self._pods, self._report, self._make_plane = folder, pods, report, make_plane
        self.cluster: KubernetesCluster | None = None

    @property
    def stand_in(self) -> StandIn | None:
        """Part of the control plane that is not the real thing; None for servers of Kubernetes, or before it starts."""
        if self.cluster is None or not self.cluster.plane.is_stand_in:
            return None
        behaviour = "objects, Jobs, scheduler, volumes and access by role, as the suite of statements has them"
        return StandIn(self.cluster.plane.description, "the servers of Kubernetes", behaviour)

    def start(self, order: ClusterOrder) -> KubernetesCluster:
        """Start a control plane; returns when it answers."""

        def review(token: str) -> User | None:
            found: ClusterUser | None = order.review(token)
            if found is None:
                self._report("EKS", "a token is not accepted")
            if self.cluster is not None:
                self.cluster.bind()
            return None if found is None else User(found.name, (*found.groups, found.principal))

        self._pods.cluster_name = order.name
        plane = self._make_plane(self._folder, version=order.version, review=review)
        self._report("EKS", plane.description)
        self.cluster = KubernetesCluster(plane, self._pods, self._report)
        return self.cluster
