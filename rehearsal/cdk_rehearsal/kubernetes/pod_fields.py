"""Fields of a pod as its kubelet writes and reads them."""

from collections.abc import Mapping
from typing import Any


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


def evaluate(variable: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the value of a variable; of the downward API, the name of the pod, its labels and annotations."""
    if "value" in variable:
        return str(variable["value"])
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    if path == "metadata.name":
        return str(metadata["name"])
    kind, _, key = path.removeprefix("metadata.").partition("['")
    return str(metadata.get(kind, {}).get(key.removesuffix("']"), ""))
