"""The kubelets of a rehearsal's nodes: they renew leases, run pods and say how these end."""

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.kubernetes.api_client import MERGE, NOT_FOUND, STRATEGIC, ApiClient, ApiError, locate
from cdk_rehearsal.kubernetes.container_logs import ContainerLog, LogServer
from cdk_rehearsal.kubernetes.node_status import KubernetesNode, describe_node, tell_time
from cdk_rehearsal.kubernetes.pod_fields import describe_container, describe_event, evaluate, is_daemon
from cdk_rehearsal.kubernetes.pods import ClaimVolume, ImageError, PodHost, PodOrder, RunningPod, VolumeError

LEASES = "kube-node-lease"
_RENEW_SECONDS, _POLL_SECONDS, _RETRY_SECONDS = 10.0, 0.4, 5.0
_LEASE_SECONDS = 40
_MOST_MESSAGE = 4096
_PULL_FAILED, _BACK_OFF = "ErrImagePull", "ImagePullBackOff"
_NO_COMMAND = "the rehearsal starts the command that a container names, and knows no entry point of an image"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass
class _Pod:
    """A pod on a node."""

    document: dict[str, Any]
    log: ContainerLog
    running: RunningPod | None = None
    is_stopping: bool = False
    reason: str = ""
    eviction: str = ""
    is_disrupted: bool = False
    pull_error: str = ""
    is_reported: bool = False  # As running, though nothing of it runs: one of a DaemonSet.
    status: int | None = None
    tried: float = 0.0


class Kubelets:
    """
    Kubelets of all nodes of a control plane, each in a thread.

    Args:
        api: Client with the rights of nodes.
        host: Runs the pods.
        logs: Server of their logs.
        report: Told the name of a node or pod and what happens to it.
    """

    def __init__(self, api: ApiClient, host: PodHost, logs: LogServer, report: Callable[[str, str], None]) -> None:
        self._api, self._host, self._logs, self._report = api, host, logs, report
        self._nodes: dict[str, KubernetesNode] = {}
        self._pods: dict[str, _Pod] = {}
        self._lost: set[str] = set()
        self._ready: set[str] = set()
        self._threads: dict[str, threading.Thread] = {}
        self._closing = threading.Event()
        self._said: set[str] = set()
        self._short: dict[str, str] = {}

    def join(self, node: KubernetesNode) -> None:
        """Add a node."""
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": labels},
            "spec": {"taints": [dict(taint) for taint in node.taints]},
            "status": self._describe_node(node),
        }
        self._api.call("POST", locate("nodes"), document)
        self._nodes[node.name] = node
        thread = threading.Thread(target=self._run, args=[node], name=f"kubelet {node.name}", daemon=True)
        self._threads[node.name] = thread
        self._lost.discard(node.name)
        thread.start()

    def lose(self, name: str) -> None:
        """Let a node go without a word: its pods end, and nobody says so."""
        if name in self._lost:
            return
        self._lost.add(name)
        self._report(name, "node has stopped responding")
        self._threads[name].join()  # What it began to write, it has written.
        for pod in list(self._pods.values()):
            if pod.document["spec"]["nodeName"] == name and pod.running is not None:
                self._host.remove(pod.running)
                pod.running = None
                pod.log.close()

    def kill(self, pod: str, reason: str) -> None:
        """End the container of a pod as the kernel does, which the kubelet tells with this reason."""
        for each in self._pods.values():
            if each.document["metadata"]["name"] == pod and each.running is not None:
                each.reason = reason
                each.running.kill()

    def evict(self, pod: str, message: str) -> None:
        """
        End a pod that exceeds a limit of its own, with the kubelet's message: no disruption, so it counts as a failure.

        Source: Kubernetes, pkg/kubelet/eviction/eviction_manager.go, localStorageEviction.
        """
        self._evict(pod, message, is_disrupted=False)

    def press(self, node: str, resource: str) -> None:
        """
        Let a node be short of `memory` or `ephemeral-storage`: it takes no pods, and evicts those that run.

        Source: Kubernetes documentation, "Node-pressure Eviction".
        """
        self._short[node] = resource
        self._write_node(self._nodes[node])
        message = f"The node was low on resource: {resource}. "
        for pod in list(self._pods.values()):
            if pod.document["spec"]["nodeName"] == node and pod.running is not None:
                self._evict(pod.document["metadata"]["name"], message, is_disrupted=True)

    def relieve(self, node: str) -> None:
        """Let a node have enough of everything again."""
        self._short.pop(node, None)
        self._write_node(self._nodes[node])

    def _evict(self, name: str, message: str, *, is_disrupted: bool) -> None:
        for each in self._pods.values():
            if each.document["metadata"]["name"] == name and each.running is not None:
                each.eviction, each.is_disrupted = message, is_disrupted
                each.running.kill()

    def find(self, pod: str) -> RunningPod:
        """Return a pod that runs, by its name; RehearsalError when there is none."""
        found = [each.running for each in self._pods.values() if each.document["metadata"]["name"] == pod]
        running = next((each for each in found if each is not None), None)
        if running is None:
            raise RehearsalError(f"pod {pod} must be running, it is not")
        return running

    def close(self) -> None:
        """End the kubelets and all pods."""
        self._closing.set()
        for thread in self._threads.values():
            thread.join()
        for pod in self._pods.values():
            if pod.running is not None:
                self._host.remove(pod.running)

    def _run(self, node: KubernetesNode) -> None:
        try:
            self._watch(node)
        except Exception as error:  # noqa: BLE001 - it ends as a kubelet that crashes, and the report has to say why
            self._report(node.name, f"kubelet has died: {error!r}")

    def _watch(self, node: KubernetesNode) -> None:
        renewed = 0.0
        while not self._closing.is_set() and node.name not in self._lost:
            try:
                if time.monotonic() - renewed > _RENEW_SECONDS or node.name not in self._ready:
                    renewed = time.monotonic()
                    self._renew(node.name)
                    self._write_node(node)
                for pod in self._api.list("pods", fieldSelector=f"spec.nodeName={node.name}"):
                    self._tend(pod)
            except RehearsalError as error:
                if str(error) not in self._said and not self._closing.is_set():
                    self._said.add(str(error))
                    self._report(node.name, f"kubelet: {error}")
            self._closing.wait(_POLL_SECONDS)

    def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": tell_time("%fZ")}
        lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        lease |= {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
        try:
            self._api.call("PATCH", locate("leases", LEASES, name), lease, MERGE)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            self._api.call("POST", locate("leases", LEASES), lease)

    def _write_node(self, node: KubernetesNode) -> None:
        status = self._describe_node(node)
        self._api.call("PATCH", locate("nodes", name=node.name, part="status"), {"status": status}, MERGE)

    def _describe_node(self, node: KubernetesNode) -> dict[str, Any]:
        fault = node.find_fault()
        if not fault and node.name not in self._ready:
            self._ready.add(node.name)
            self._report(node.name, "node is Ready")
        images, short = self._list_plugins(node.name), self._short.get(node.name, "")
        return describe_node(node, images, fault=fault, short=short, port=self._logs.port)

    def _list_plugins(self, node: str) -> list[str]:
        """Return the images of the pods of DaemonSets that a node has."""
        return [
            container["image"]
            for pod in self._pods.values()
            if pod.document["spec"]["nodeName"] == node and pod.is_reported
            for container in pod.document["spec"]["containers"]
        ]

    def _tend(self, document: dict[str, Any]) -> None:
        uid, is_deleted = document["metadata"]["uid"], "deletionTimestamp" in document["metadata"]
        pod = self._pods.get(uid)
        if pod is not None and pod.running is not None and pod.status is None:
            if (status := pod.running.wait(0)) is not None:
                self._finish(pod, status)
            elif is_deleted and not pod.is_stopping:
                pod.is_stopping = True
                grace = float(document["spec"].get("terminationGracePeriodSeconds", 30))
                threading.Thread(target=pod.running.stop, args=[grace], daemon=True).start()
        elif is_deleted:
            with _unless_gone():
                self._api.call("DELETE", _locate(document), {"gracePeriodSeconds": 0})
            if is_daemon(document) and self._pods.pop(uid, None) is not None:
                self._write_node(self._nodes[document["spec"]["nodeName"]])
        elif document["status"].get("phase", "Pending") == "Pending":
            self._start(document)

    def _take_daemon(self, pod: _Pod) -> None:
        """Report a pod of a DaemonSet as running, and what its device plugin finds; nothing of it runs here."""
        node = self._nodes[pod.document["spec"]["nodeName"]]
        for container in pod.document["spec"]["containers"]:
            self._host.require_pull(container["image"], node.name)
        pod.is_reported = True
        self._write_running(pod.document, node.address)
        self._write_node(node)

    def _start(self, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        pod = self._pods.setdefault(metadata["uid"], _Pod(document, self._logs.open(document)))
        if time.monotonic() - pod.tried < _RETRY_SECONDS and pod.tried:
            if pod.pull_error:
                self._back_off(pod)
            return
        pod.tried, pod.document = time.monotonic(), document
        if not is_daemon(document) and not all(
            container.get("command") for container in document["spec"]["containers"]
        ):
            self._note(document, "Failed", f"Error: {_NO_COMMAND}")
            self._write_waiting(document, "CreateContainerError", _NO_COMMAND)
            return
        try:
            if is_daemon(document):
                self._take_daemon(pod)
                return
            pod.running = self._host.start(self._describe(document), pod.log.take)
        except VolumeError as error:
            self._note(document, "FailedMount", str(error))
            self._write_waiting(document, "ContainerCreating")
            return
        except ImageError as error:
            image = document["spec"]["containers"][0]["image"]
            self._note(document, "Failed", f'Failed to pull image "{image}": {error}')
            self._note(document, "Failed", f"Error: {_PULL_FAILED}")
            self._write_waiting(document, _PULL_FAILED, str(error))
            pod.pull_error = str(error)
            return
        self._report(metadata["name"], f"runs on {document['spec']['nodeName']}")
        self._write_running(document, pod.running.address)

    def _write_running(self, document: dict[str, Any], address: str) -> None:
        began = tell_time()
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": began} for kind in _CONDITIONS]
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": began,
            "conditions": conditions,
            "containerStatuses": [describe_container(document, {"running": {"startedAt": began}})],
        }
        self._write(document, status)

    def _back_off(self, pod: _Pod) -> None:
        """Tell once that the kubelet waits before it pulls an image again, in the words of kubelets since 1.32."""
        image = pod.document["spec"]["containers"][0]["image"]
        self._note(pod.document, "Failed", f"Error: {_BACK_OFF}")
        message = f'Back-off pulling image "{image}": {_PULL_FAILED}: {pod.pull_error}'
        self._write_waiting(pod.document, _BACK_OFF, message)
        pod.pull_error = ""

    def _write_waiting(self, document: dict[str, Any], reason: str, message: str = "") -> None:
        waiting = {"reason": reason, **({"message": message} if message else {})}
        self._write(document, {"containerStatuses": [describe_container(document, {"waiting": waiting})]})

    def _finish(self, pod: _Pod, status: int) -> None:
        assert pod.running is not None
        pod.status = status
        document, container = pod.document, pod.document["spec"]["containers"][0]
        path = pod.running.root / str(container.get("terminationMessagePath", "")).lstrip("/")
        message = path.read_text(errors="replace")[:_MOST_MESSAGE] if path.is_file() else ""
        reason = pod.reason or ("Error" if status else "Completed")
        ended = {"exitCode": status, "finishedAt": tell_time(), "reason": reason, "message": message}
        self._host.remove(pod.running)
        pod.running = None
        pod.log.close()
        told = f": {pod.eviction or pod.reason}" if pod.eviction or pod.reason else ""
        self._report(document["metadata"]["name"], f"has ended with status {status}{told}")
        conditions = [
            {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": tell_time()}
            for kind in ("Ready", "ContainersReady")
        ]
        if pod.is_disrupted:
            disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
            conditions.append({**disruption, "message": pod.eviction, "lastTransitionTime": tell_time()})
        if pod.eviction:
            self._note(document, "Evicted", pod.eviction)
        self._write(
            document,
            {
                "phase": "Failed" if status or pod.eviction else "Succeeded",
                **({"reason": "Evicted", "message": pod.eviction} if pod.eviction else {}),
                "conditions": conditions,
                "containerStatuses": [describe_container(document, {"terminated": ended})],
            },
        )

    def _describe(self, document: dict[str, Any]) -> PodOrder:
        metadata, spec = document["metadata"], document["spec"]
        container = spec["containers"][0]
        files: dict[str, bytes] = {}
        if path := container.get("terminationMessagePath"):
            files[path] = b""
        volumes = []
        for mount in container.get("volumeMounts", ()):
            volume = next(each for each in spec["volumes"] if each["name"] == mount["name"])
            if "persistentVolumeClaim" in volume:
                volumes.append(self._find_volume(metadata["namespace"], volume, mount["mountPath"]))
            elif "configMap" in volume:
                files |= self._read_configuration(
                    metadata["namespace"], volume["configMap"]["name"], mount["mountPath"]
                )
        return PodOrder(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            hostname=spec.get("hostname") or metadata["name"],
            node=spec["nodeName"],
            service_account=spec.get("serviceAccountName", "default"),
            image=container["image"],
            command=[*container["command"], *container.get("args", ())],
            environment={each["name"]: evaluate(each, metadata, spec) for each in container.get("env", ())},
            files=files,
            volumes=volumes,
            limits=container.get("resources", {}).get("limits", {}),
        )

    def _find_volume(self, namespace: str, volume: Mapping[str, Any], path: str) -> ClaimVolume:
        name = volume["persistentVolumeClaim"]["claimName"]
        claim = self._api.find("persistentvolumeclaims", namespace, name)
        if claim is None or claim.get("status", {}).get("phase") != "Bound":
            raise VolumeError(f'persistentvolumeclaim "{name}" not found or not bound')
        found = self._api.find("persistentvolumes", "", claim["spec"]["volumeName"])
        if found is None:
            raise VolumeError(f'persistentvolume "{claim["spec"]["volumeName"]}" not found')
        csi = found["spec"]["csi"]
        return ClaimVolume(found["metadata"]["name"], path, csi["driver"], csi["volumeHandle"])

    def _read_configuration(self, namespace: str, name: str, path: str) -> dict[str, bytes]:
        found = self._api.find("configmaps", namespace, name)
        if found is None:
            raise VolumeError(f'MountVolume.SetUp failed for volume "{name}" : configmap "{name}" not found')
        files = {f"{path}/{key}": text.encode() for key, text in found.get("data", {}).items()}
        return files | {f"{path}/{key}": base64.b64decode(text) for key, text in found.get("binaryData", {}).items()}

    def _write(self, document: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        with _unless_gone():
            self._api.call("PATCH", f"{_locate(document)}/status", {"status": status}, STRATEGIC)

    def _note(self, document: Mapping[str, Any], reason: str, message: str) -> None:
        event = describe_event(document, reason, message, tell_time())
        self._api.call("POST", locate("events", document["metadata"]["namespace"]), event)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Take it that an object is gone."""
    try:
        yield
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise


def _locate(document: Mapping[str, Any]) -> str:
    return locate("pods", document["metadata"]["namespace"], document["metadata"]["name"])
