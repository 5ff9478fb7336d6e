"""Nodes as their kubelets describe them: what they have, and whether they lack something."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

_READY = ("KubeletReady", "kubelet is posting ready status")
_PRESSURES = {
    "memory": ("MemoryPressure", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    "ephemeral-storage": ("DiskPressure", "KubeletHasDiskPressure", "kubelet has disk pressure"),
}
_AT_EASE = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}
"""Conditions of a node that lacks nothing: type -> reason and message (kubelet, pkg/kubelet/nodestatus/setters.go)."""


@dataclass(frozen=True, kw_only=True)
class KubernetesNode:
    """
    A node that joins.

    Attributes:
        name: Its name.
        address: Its address.
        labels: Its labels beside those that every node has.
        taints: Its taints.
        capacity: Name -> amount of what its instance has, such as `memory`.
        allocatable: Name -> amount of that which pods may have.
        resources: Name -> count of what device plugins of its image find.
        plugged: Image of a DaemonSet -> resources that its pod on the node finds.
        find_fault: Returns why the node is not ready; empty where it is.
    """

    name: str
    address: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]] = ()
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    resources: Mapping[str, int] = field(default_factory=dict)
    plugged: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    find_fault: Callable[[], str] = field(repr=False)


def describe_node(node: KubernetesNode, images: Sequence[str], *, fault: str, short: str, port: int) -> dict[str, Any]:
    """
    Return the status of a node.

    Args:
        node: The node.
        images: Images of the pods of DaemonSets on it, whose device plugins find resources.
        fault: Why it is not ready; empty where it is.
        short: Resource that it lacks, `memory` or `ephemeral-storage`; empty for none.
        port: Port of its kubelet.
    """
    resources = {name: str(count) for name, count in node.resources.items() if count}
    for image, found in node.plugged.items():
        if any(image in each for each in images):
            resources |= {name: str(count) for name, count in found.items() if count}
    conditions = {kind: ("False", *words) for kind, words in _AT_EASE.items()}
    if short:
        kind, reason, message = _PRESSURES[short]
        conditions[kind] = ("True", reason, message)
    conditions["Ready"] = ("False", "KubeletNotReady", fault) if fault else ("True", *_READY)
    times = {"lastHeartbeatTime": tell_time(), "lastTransitionTime": tell_time()}
    return {
        "capacity": {**node.capacity, **resources},
        "allocatable": {**node.allocatable, **resources},
        "addresses": [{"type": "InternalIP", "address": node.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [
            {"type": kind, "status": value, "reason": reason, "message": message, **times}
            for kind, (value, reason, message) in conditions.items()
        ],
    }


def tell_time(ending: str = "Z") -> str:
    """Return the time as objects have it; with `%fZ`, with its microseconds."""
    moment = datetime.now(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{moment:%f}Z" if ending == "%fZ" else ending)
