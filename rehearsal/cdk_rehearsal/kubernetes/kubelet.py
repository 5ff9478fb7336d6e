"""The kubelets of a rehearsal's nodes: they renew leases, run pods and say how these end."""

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.kubernetes.api_client import MERGE, NOT_FOUND, STRATEGIC, ApiClient, ApiError, locate
from cdk_rehearsal.kubernetes.container_logs import ContainerLog, LogServer
from cdk_rehearsal.kubernetes.pod_fields import describe_container, evaluate
from cdk_rehearsal.kubernetes.pods import ClaimVolume, ImageError, PodHost, PodOrder, RunningPod, VolumeError

LEASES = "kube-node-lease"
_RENEW_SECONDS, _POLL_SECONDS, _RETRY_SECONDS = 10.0, 0.4, 5.0
_LEASE_SECONDS = 40
_RESERVED = {"cpu": "8", "memory": "16Gi", "pods": "29", "ephemeral-storage": "100Gi"}
_MOST_MESSAGE = 4096
_READY = {"reason": "KubeletReady", "message": "kubelet is posting ready status"}
_PULL_FAILED, _BACK_OFF = "ErrImagePull", "ImagePullBackOff"
_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, kw_only=True)
class KubernetesNode:
    """
    A node that joins.

    Attributes:
        name: Its name.
        address: Its address.
        labels: Its labels beside those that every node has.
        taints: Its taints.
        resources: Name -> count of what device plugins of its image find.
        plugged: Image of a DaemonSet -> resources that its pods find.
        find_fault: Returns why the node is not ready; empty where it is.
    """

    name: str
    address: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()
    resources: Mapping[str, int] = field(default_factory=dict)
    plugged: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    find_fault: Callable[[], str] = field(repr=False)


@dataclass
class _Pod:
    """A pod on a node."""

    document: dict[str, Any]
    log: ContainerLog
    running: RunningPod | None = None
    is_stopping: bool = False
    reason: str = ""
    pull_error: str = ""
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

    def join(self, node: KubernetesNode) -> None:
        """Add a node."""
        labels = {"kubernetes.io/hostname": node.name, "kubernetes.io/os": "linux", **node.labels}
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": labels},
            "spec": {"taints": [dict(taint) for taint in node.taints]},
        }
        self._api.call("POST", locate("nodes"), document)
        self._nodes[node.name] = node
        self._write_node(node)
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
        spec = {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": _now("%fZ")}
        lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
        lease |= {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
        try:
            self._api.call("PATCH", locate("leases", LEASES, name), lease, MERGE)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            self._api.call("POST", locate("leases", LEASES), lease)

    def _write_node(self, node: KubernetesNode) -> None:
        """Report the node's state, with what the device plugins on it find."""
        resources = dict(node.resources)
        for image, found in node.plugged.items():
            daemons = self._api.list("daemonsets", "kube-system")
            templates = [each["spec"]["template"]["spec"] for each in daemons]
            if any(
                image in container["image"] and _selects(spec.get("nodeSelector", {}), node.labels)
                for spec in templates
                for container in spec["containers"]
            ):
                resources |= found
        capacity = {**_RESERVED, **{name: str(count) for name, count in resources.items() if count}}
        fault = node.find_fault()
        if not fault and node.name not in self._ready:
            self._ready.add(node.name)
            self._report(node.name, "node is Ready")
        said = {"reason": "KubeletNotReady", "message": fault} if fault else _READY
        ready = {"type": "Ready", "status": str(not fault), **said, "lastHeartbeatTime": _now()}
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": node.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
            "conditions": [{**ready, "lastTransitionTime": _now()}],
        }
        self._api.call("PATCH", locate("nodes", name=node.name, part="status"), {"status": status}, MERGE)

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
        elif document["status"].get("phase", "Pending") == "Pending":
            self._start(document)

    def _start(self, document: dict[str, Any]) -> None:
        metadata = document["metadata"]
        pod = self._pods.setdefault(metadata["uid"], _Pod(document, self._logs.open(document)))
        if time.monotonic() - pod.tried < _RETRY_SECONDS and pod.tried:
            if pod.pull_error:
                self._back_off(pod)
            return
        pod.tried, pod.document = time.monotonic(), document
        try:
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
        began = _now()
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": began} for kind in _CONDITIONS]
        status = {
            "phase": "Running",
            "podIP": pod.running.address,
            "podIPs": [{"ip": pod.running.address}],
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
        ended = {"exitCode": status, "finishedAt": _now(), "reason": reason, "message": message}
        self._host.remove(pod.running)
        pod.running = None
        pod.log.close()
        told = f": {pod.reason}" if pod.reason else ""
        self._report(document["metadata"]["name"], f"has ended with status {status}{told}")
        conditions = [
            {"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": _now()}
            for kind in ("Ready", "ContainersReady")
        ]
        self._write(
            document,
            {
                "phase": "Failed" if status else "Succeeded",
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
            environment={each["name"]: evaluate(each, metadata) for each in container.get("env", ())},
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
        metadata = document["metadata"]
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message,
            "type": "Warning",
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
            "source": {"component": "kubelet", "host": document["spec"]["nodeName"]},
        }
        self._api.call("POST", locate("events", metadata["namespace"]), event)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    """Take it that an object is gone."""
    try:
        yield
    except ApiError as error:
        if error.code != NOT_FOUND:
            raise


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == text for name, text in selector.items())


def _locate(document: Mapping[str, Any]) -> str:
    return locate("pods", document["metadata"]["namespace"], document["metadata"]["name"])


def _now(ending: str = "Z") -> str:
    moment = datetime.now(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{moment:%f}Z" if ending == "%fZ" else ending)
