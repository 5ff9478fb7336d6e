"""Fields of a pod as its kubelet writes and reads them."""

from collections.abc import Mapping
from typing import Any

_PLAIN = ("metadata.name", "metadata.namespace", "metadata.uid")


def describe_container(document: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of the container of a pod in a state."""
    container, is_running = document["spec"]["containers"][0], "running" in state
    return {
        "name": container["name"],
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "image": container["image"],
        "imageID": f"lab://{container['image']}",
        "containerID": f"lab://{document['metadata']['uid']}",
        "state": dict(state),
    }


def evaluate(variable: Mapping[str, Any], metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return the value of a variable; of the downward API, a field of the pod."""
    if "value" in variable:
        return str(variable["value"])
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    if path in _PLAIN:
        return str(metadata[path.removeprefix("metadata.")])
    if path.startswith("spec."):
        return str(spec[path.removeprefix("spec.")])
    kind, _, key = path.removeprefix("metadata.").partition("['")
    return str(metadata.get(kind, {}).get(key.removesuffix("']"), ""))


def describe_event(document: Mapping[str, Any], reason: str, message: str, now: str) -> dict[str, Any]:
    """Return the event of a pod that its kubelet records at a time."""
    metadata = document["metadata"]
    names = {name: metadata[name] for name in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
        "involvedObject": {"kind": "Pod", **names},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "kubelet", "host": document["spec"]["nodeName"]},
    }


def is_daemon(document: Mapping[str, Any]) -> bool:
    """Return whether a pod is one of a DaemonSet."""
    return any(owner["kind"] == "DaemonSet" for owner in document["metadata"].get("ownerReferences", ()))
