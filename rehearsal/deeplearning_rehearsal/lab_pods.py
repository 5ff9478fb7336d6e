"""Pods of jobs in the lab, on the images of the stack."""

import ipaddress
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.eks.host import ClusterNode
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.kubernetes.pods import ClaimVolume, ImageError, PodOrder, RunningPod, VolumeError
from cdk_rehearsal.lab import Container, ContainerOrder, Lab, Mount, StandIn
from cdk_rehearsal.lab.credentials_service import CredentialsService
from cdk_rehearsal.lab.images.container_image import ContainerImage
from cdk_rehearsal.lab.lab import ENDPOINT
from cdk_rehearsal.lab.network import POD_IDENTITY_ADDRESS
from deeplearning_contract.jobs.kubernetes_cluster import DRIVER, GPU

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
        image = self._pull(order.image, order.node)
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

    def require_pull(self, image: str, node: str) -> None:
        """Raise ImageError unless the node's role may pull an image; whether the registry has it is not asked."""
        instance = self.nodes[node].machine.instance_id
        if self.aws.find_pull_denial(self.cluster_name, instance, image):
            raise ImageError(explain_failed_pull(image, is_denied=True))

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

    def _pull(self, image: str, node: str) -> ContainerImage:
        """Return an image that a node pulls; a registry refuses first, whether it has the image or not."""
        self.require_pull(image, node)
        asset = self._stack.find_image(image, self.aws.place)
        if asset is None:
            raise ImageError(explain_failed_pull(image, is_denied=False))
        return self._built[asset.name]

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


def explain_failed_pull(image: str, *, is_denied: bool) -> str:
    """
    Return why an image was not pulled, in the words of containerd: its registry refuses, or does not have it.

    aws/eks-charts#1044 and aws-samples/bedrock-access-gateway#114 for a refusal, aws/amazon-vpc-cni-k8s#3526 for an
    absent image.
    """
    failed = f'failed to pull and unpack image "{image}": failed to resolve reference "{image}"'
    if not is_denied:
        return f"rpc error: code = NotFound desc = {failed}: {image}: not found"
    registry, _, path = image.partition("/")
    repository, _, tag = path.partition("@" if "@" in path else ":")
    manifest = f"https://{registry}/v2/{repository}/manifests/{tag or 'latest'}"
    return (
        f"rpc error: code = Unknown desc = {failed}: unexpected status from HEAD request to {manifest}: 403 Forbidden"
    )
