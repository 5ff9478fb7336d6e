"""Pods of jobs in the lab, on the images of the stack, and the control plane that starts them."""

import base64
import ipaddress
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.eks.host import ClusterNode, ClusterOrder, ClusterUser
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.kubernetes.api_client import ApiClient, ApiError, locate
from cdk_rehearsal.kubernetes.container_logs import LogServer
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from cdk_rehearsal.kubernetes.kubelet import Kubelets, KubernetesNode
from cdk_rehearsal.kubernetes.pods import ClaimVolume, ImageError, PodOrder, RunningPod, VolumeError
from cdk_rehearsal.kubernetes.users import User
from cdk_rehearsal.lab import Container, ContainerOrder, Lab, Mount, StandIn
from cdk_rehearsal.lab.credentials_service import CredentialsService
from cdk_rehearsal.lab.images.container_image import ContainerImage
from cdk_rehearsal.lab.lab import ENDPOINT
from cdk_rehearsal.lab.network import POD_IDENTITY_ADDRESS
from deeplearning_contract.jobs.kubernetes_cluster import DRIVER, EFA, GPU

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws

EKS_STAND_INS = (
    StandIn(
        "EKS",
        "Amazon EKS",
        "its API, the review of tokens and the credentials of pods; nodes are instances that boot no operating system, "
        "pods of DaemonSets and Deployments do not run, and networks between pods are not limited",
    ),
    StandIn(
        "kubelet",
        "the kubelet, the container runtime and the EFS driver",
        "pods of one container in namespaces of this machine; mounts a claim where the node reaches and may mount its "
        "file system; the GPUs of a node are those that its image says",
    ),
)
_PREFIX = 16
"""Length of the prefix of the lab's subnets; the router answers for what is outside."""
_CREDENTIALS_PATH = "/v1/credentials"
_TOKEN_FILE = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount/eks-pod-identity-token"  # noqa: S105 - a path
_POLICIES = {"AmazonEKSClusterAdminPolicy": "cluster-admin", "AmazonEKSEditPolicy": "edit"}
"""Policy of EKS -> the cluster role with its rights."""
_EFA_PLUGIN = "aws-efa-k8s-device-plugin"
_POLL_SECONDS = 0.3
_FIRST_POD = 100
"""Number of the first pod's address in the part of a subnet that its node is in."""


class LabPods:
    """
    The lab as the host of pods.

    Args:
        lab: The lab.
        stack: The stack of the jobs.
        images: Those of `prepare_images`.

    Attributes:
        images: The images that pods had.
        nodes: Name -> node, of those that have joined.
        cluster_name: Name of the cluster; empty until it is there.
        aws: The embedded AWS, in which the stack is deployed.
    """

    def __init__(
        self,
        lab: Lab,
        stack: AssemblyStack,
        images: Mapping[str, ContainerImage],
    ) -> None:
        self._lab, self._stack, self._built = lab, stack, images
        self._identity = CredentialsService(POD_IDENTITY_ADDRESS)
        self._count = 0
        self._lock = threading.Lock()
        self._running: dict[str, Container] = {}
        self.images: list[ContainerImage] = []
        self.nodes: dict[str, ClusterNode] = {}
        self.cluster_name = ""
        self.aws: EmbeddedAws

    def admit(self, node: ClusterNode) -> None:
        """Take a node, at whose address the logs of its pods are."""
        self.nodes[node.name] = node
        self._lab.answer_at(node.machine.address)

    def start(self, order: PodOrder, on_line: Callable[[str], None]) -> Container:
        """Start a pod."""
        asset = self._stack.find_image(order.image, self.aws.place)
        if asset is None:
            # Words of containerd for an image that its registry lacks (aws/amazon-vpc-cni-k8s#3526).
            raise ImageError(
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{order.image}": failed to resolve '
                f'reference "{order.image}": {order.image}: not found'
            )
        image = self._built[asset.name]
        if image not in self.images:
            self.images.append(image)
        environment = {"AWS_ENDPOINT_URL": ENDPOINT, **image.environment, **order.environment}
        files = dict(order.files)
        if int(order.limits.get(GPU, 0)):
            environment["NVIDIA_VISIBLE_DEVICES"] = "all"  # NVIDIA's device plugin names those of the container.
        node = self.nodes[order.node]
        found = self.aws.find_pod_credentials(
            self.cluster_name, order.namespace, order.service_account, node.machine.instance_id
        )
        if found is not None:
            token = self._identity.add_for_token(
                _CREDENTIALS_PATH, found.access_key_id, found.secret_access_key, found.session_token
            )
            files[_TOKEN_FILE] = token.encode()
            environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = _TOKEN_FILE
            # EKS adds the region where a pod has none (aws/amazon-eks-pod-identity-webhook, pull requests 38 and 41).
            environment = dict.fromkeys(("AWS_REGION", "AWS_DEFAULT_REGION"), self.aws.place.region) | environment
            environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = f"http://{POD_IDENTITY_ADDRESS}{_CREDENTIALS_PATH}"
        address = self._choose_address(node)
        container = self._lab.start_container(
            ContainerOrder(
                container_id=order.name,
                hostname=order.hostname,
                address=address,
                prefix_length=_PREFIX,
                layers=image.layers,
                command=order.command,
                environment=environment,
                hosts={order.hostname: address},
                files=files,
                mounts=[self._mount(volume, order, node) for volume in order.volumes],
            ),
            on_line,
        )
        self._running[order.name] = container
        return container

    def remove(self, pod: RunningPod) -> None:
        """End a pod and forget it."""
        assert isinstance(pod, Container)
        self._running.pop(pod.container_id, None)
        self._lab.remove_container(pod.container_id)

    def list_names(self) -> list[str]:
        """Return the names of the pods that run."""
        return sorted(self._running)

    def await_end(self, moment: float) -> list[str]:
        """Wait until no pod runs, or until a moment; return the names of those that run."""
        while (left := self.list_names()) and time.monotonic() < moment:
            time.sleep(_POLL_SECONDS)
        return left

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "CompletedProcess[str]":
        """Run a program in a pod, with the options of `Node.run`; RehearsalError when it has ended."""
        if (container := self._running.get(instance_id)) is None:
            raise RehearsalError(f"pod {instance_id} must be running, it has ended")
        return container.run(argv, **options)

    def _choose_address(self, node: ClusterNode) -> str:
        with self._lock:
            self._count += 1
            network = ipaddress.IPv4Interface(f"{node.machine.address}/24").network
            return str(network[_FIRST_POD + self._count])

    def _mount(self, volume: ClaimVolume, order: PodOrder, node: ClusterNode) -> Mount:
        """Mount a volume as the EFS driver does; the words of a failure are those of the kubelet's event."""
        if volume.driver != DRIVER:
            raise VolumeError(f"the rehearsal has volumes of the driver {DRIVER} alone, got {volume.driver}")
        file_system, _, point = volume.handle.partition("::")
        machine = node.machine
        place = self.cluster_name, machine.instance_id, (file_system, point)
        step, why = self.aws.find_mount_obstacle(*place)
        if step == "SetUp" and not why.startswith("rpc error"):
            target = f"/var/lib/kubelet/pods/{order.uid}/volumes/kubernetes.io~csi/{volume.name}/mount"
            why = (
                f'rpc error: code = Internal desc = Could not mount "{file_system}:/" at "{target}": mount failed: '
                f"exit status 32 Mounting command: mount Mounting arguments: -t efs -o accesspoint={point},iam,tls "
                f"{file_system}:/ {target} Output: {why}"
            )
        if step:
            raise VolumeError(f'MountVolume.{step} failed for volume "{volume.name}" : {why}')
        self._lab.file_system_roots(machine)  # Makes the root of the access point, as EFS does.
        folder = machine.access_points[point].path
        is_read_only = not self.aws.may_write_volume(*place)
        return Mount(file_system_id=file_system, folder=folder, target=volume.path, is_read_only=is_read_only)


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
                resources={GPU: node.gpu_count},
                plugged={_EFA_PLUGIN: {EFA: node.efa_count}},
                find_fault=node.find_fault,
            )
        )

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
