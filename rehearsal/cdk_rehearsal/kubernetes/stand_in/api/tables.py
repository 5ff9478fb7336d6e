"""Tables of objects, which `kubectl get` asks for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.clock import format_age, parse_time
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    CLAIMS,
    EVENTS,
    JOBS,
    NODES,
    PODS,
    VOLUMES,
    Manifest,
    Resource,
)

_MODES = {"ReadWriteMany": "RWX", "ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteOncePod": "RWOP"}
_NONE, _UNSET = "<none>", "<unset>"


def make_table(resource: Resource, items: Sequence[Manifest], now: float, version: str) -> Mapping[str, Any]:
    """
    Return the table of objects.

    Args:
        resource: Kind of the objects.
        items: The objects.
        now: The time, in seconds since 1970.
        version: Version of the store.
    """
    names, show = _COLUMNS.get(resource, (("Age",), _show_age))
    columns = ("Name", *names)
    definitions: list[dict[str, Any]] = [
        {"name": name, "type": "string", "format": "name" * (name == "Name")} for name in columns
    ]
    wide = _NAMELESS if resource is EVENTS else _WIDE
    for each in definitions:
        each |= {"description": "", "priority": int(each["name"] in wide)}
    rows = []
    for item in items:
        about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
        rows.append({"cells": [item["metadata"]["name"], *show(item, now)], "object": about})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _show_age(item: Manifest, now: float) -> Sequence[str]:
    return (format_age(item["metadata"]["creationTimestamp"], now),)


def _show_job(job: Manifest, now: float) -> Sequence[str]:
    status, spec = job["status"], job["spec"]
    kinds = {each["type"] for each in status.get("conditions", ()) if each["status"] == "True"}
    order = ("Complete", "Failed", "Suspended", "FailureTarget")
    state = next((kind for kind in order if kind in kinds), "Running")
    state = "Terminating" if "deletionTimestamp" in job["metadata"] else state
    duration = ""
    if "startTime" in status:
        ended = status.get("completionTime")
        seconds = format_age(status["startTime"], now)
        duration = seconds if ended is None else _measure(status["startTime"], ended)
    done = f"{status.get('succeeded', 0)}/{spec['completions']}"
    return state, done, duration, *_show_age(job, now)


def _measure(start: str, end: str) -> str:
    return format_age(start, parse_time(end))


def _show_pod(pod: Manifest, now: float) -> Sequence[str]:
    status = pod["status"]
    containers = status.get("containerStatuses", [])
    state = str(status["phase"])
    for container in containers:
        inner = container.get("state", {})
        state = inner.get("waiting", {}).get("reason") or inner.get("terminated", {}).get("reason") or state
    if "deletionTimestamp" in pod["metadata"]:
        state = "Terminating"
    ready = sum(1 for container in containers if container.get("ready"))
    restarts = sum(container.get("restartCount", 0) for container in containers)
    age = format_age(pod["metadata"]["creationTimestamp"], now)
    where = (status.get("podIP", _NONE), pod["spec"].get("nodeName", _NONE), _NONE, _NONE)
    return f"{ready}/{len(pod['spec']['containers'])}", state, str(restarts), age, *where


def _show_node(node: Manifest, now: float) -> Sequence[str]:
    conditions = node["status"].get("conditions", ())
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "Unknown")
    state = "Ready" if ready == "True" else "NotReady"
    state += ",SchedulingDisabled" if node["spec"].get("unschedulable") else ""
    age = format_age(node["metadata"]["creationTimestamp"], now)
    return state, _NONE, age, node["status"].get("nodeInfo", {}).get("kubeletVersion", "")


def _show_volume(volume: Manifest, now: float) -> Sequence[str]:
    spec, claim = volume["spec"], volume["spec"].get("claimRef")
    return (
        spec["capacity"]["storage"],
        _show_modes(spec),
        spec["persistentVolumeReclaimPolicy"],
        volume["status"]["phase"],
        f"{claim['namespace']}/{claim['name']}" if claim else "",
        spec.get("storageClassName", ""),
        _UNSET,
        "",
        format_age(volume["metadata"]["creationTimestamp"], now),
        spec["volumeMode"],
    )


def _show_claim(claim: Manifest, now: float) -> Sequence[str]:
    spec, status = claim["spec"], claim["status"]
    return (
        status["phase"],
        spec.get("volumeName", ""),
        status.get("capacity", {}).get("storage", ""),
        _show_modes(status),
        spec.get("storageClassName", ""),
        _UNSET,
        format_age(claim["metadata"]["creationTimestamp"], now),
        spec["volumeMode"],
    )


def _show_modes(spec: Mapping[str, Any]) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in spec.get("accessModes", ()))


def _show_event(event: Manifest, now: float) -> Sequence[str]:
    about = event["involvedObject"]
    return (
        format_age(event["lastTimestamp"], now),
        event["type"],
        event["reason"],
        f"{about['kind'].lower()}/{about['name']}",
        event["message"],
    )


_NAMELESS = ("Name",)
_WIDE = ("IP", "Node", "Nominated Node", "Readiness Gates", "VolumeMode")
_COLUMNS: Mapping[Resource, tuple[tuple[str, ...], Callable[[Manifest, float], Sequence[str]]]] = {
    JOBS: (("Status", "Completions", "Duration", "Age"), _show_job),
    PODS: (("Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"), _show_pod),
    NODES: (("Status", "Roles", "Age", "Version"), _show_node),
    VOLUMES: (
        (
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "VolumeMode",
        ),
        _show_volume,
    ),
    CLAIMS: (
        ("Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age", "VolumeMode"),
        _show_claim,
    ),
    EVENTS: (("Last Seen", "Type", "Reason", "Object", "Message"), _show_event),
}
