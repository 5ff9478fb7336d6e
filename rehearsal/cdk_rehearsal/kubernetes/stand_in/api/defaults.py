"""Defaults that the API server writes into objects, and what its admission adds to them."""

import secrets
from collections.abc import Callable
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    ACCOUNTS,
    CLAIMS,
    DAEMONS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    VOLUMES,
    Manifest,
    Resource,
)
from cdk_rehearsal.kubernetes.stand_in.base.store import Store

CONTROLLER_LABEL, JOB_NAME_LABEL = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MOST_FAILURES = 2_147_483_647
_LEAVE_SECONDS = 300
"""Time for which pods stay on a node that does not respond, unless they say otherwise."""
_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


def make_name(prefix: str) -> str:
    """Return a name with the five letters that the API server adds to `generateName`."""
    return prefix + "".join(secrets.choice(_LETTERS) for _ in range(5))


def fill(resource: Resource, manifest: Manifest) -> None:
    """Write the defaults of its kind into an object."""
    if resource in _DEFAULTS:
        _DEFAULTS[resource](manifest)


def admit(store: Store, resource: Resource, manifest: Manifest) -> None:
    """
    Add what a new object gets.

    Raises:
        ApiError: A new pod has no account.
    """
    if resource is PODS:
        _admit_pod(store, manifest)
    elif resource is JOBS:
        _label_job(manifest)
    elif resource is NODES:
        taints = manifest.setdefault("spec", {}).setdefault("taints", [])
        if not any(taint["key"] == NOT_READY for taint in taints):
            taints.append({"key": NOT_READY, "effect": "NoSchedule"})


def fill_pod(spec: dict[str, Any]) -> None:
    """Write the defaults into the specification of a pod."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        _fill_container(container, is_on_host=bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes", ()):
        for kind in ("configMap", "secret"):
            if kind in volume:
                volume[kind].setdefault("defaultMode", 420)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _fill_container(container: dict[str, Any], *, is_on_host: bool) -> None:
    tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "IfNotPresent" if tag not in ("", "latest") else "Always")
    container.setdefault("resources", {})
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if is_on_host:
            port.setdefault("hostPort", port.get("containerPort", 0))
    for variable in container.get("env", ()):
        if reference := variable.get("valueFrom", {}).get("fieldRef"):
            reference.setdefault("apiVersion", "v1")


def _fill_job(job: Manifest) -> None:
    spec = job.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", _MOST_FAILURES if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            pattern.setdefault("status", "True")
    fill_pod(spec.setdefault("template", {}).setdefault("spec", {}))
    job.setdefault("status", {})


def _label_job(job: Manifest) -> None:
    """Give a new job the selector of its pods, which the API server makes of the job's uid."""
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    job["spec"]["selector"] = {"matchLabels": {CONTROLLER_LABEL: uid}}
    labels = job["spec"]["template"].setdefault("metadata", {}).setdefault("labels", {})
    labels |= {CONTROLLER_LABEL: uid, "controller-uid": uid, JOB_NAME_LABEL: name, "job-name": name}


def _fill_pod_object(pod: Manifest) -> None:
    spec = pod.setdefault("spec", {})
    fill_pod(spec)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec.setdefault("enableServiceLinks", True)
    for container in spec.get("containers", ()):
        limits = container["resources"].get("limits", {})
        if limits:
            container["resources"].setdefault("requests", {})
            container["resources"]["requests"] = {**limits, **container["resources"]["requests"]}
    pod.setdefault("status", {}).setdefault("phase", "Pending")


def _admit_pod(store: Store, pod: Manifest) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    namespace, account = metadata["namespace"], spec["serviceAccountName"]
    if store.find(ACCOUNTS, (namespace, account)) is None:
        raise ApiError(
            403,
            "Forbidden",
            f'pods "{metadata["name"]}" is forbidden: error looking up service account {namespace}/{account}: '
            f'serviceaccount "{account}" not found',
            {"name": metadata["name"], "kind": "pods"},
        )
    spec.setdefault("priority", _PRIORITIES.get(spec.get("priorityClassName", ""), 0))
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.setdefault("tolerations", [])
    for key in (NOT_READY, UNREACHABLE):
        tolerated = (each for each in tolerations if each.get("effect", "NoExecute") == "NoExecute")
        if not any(each.get("key", key) == key for each in tolerated):
            default = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _LEAVE_SECONDS}
            tolerations.append({"key": key, **default})
    pod["status"]["qosClass"] = "BestEffort"
    if any(set(each["resources"].get("requests", ())) & {"cpu", "memory"} for each in spec["containers"]):
        pod["status"]["qosClass"] = "Burstable"


def _fill_volume(volume: Manifest) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    volume.setdefault("status", {}).setdefault("phase", "Pending")
    _protect(volume, "kubernetes.io/pv-protection")


def _fill_claim(claim: Manifest) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    claim.setdefault("status", {}).setdefault("phase", "Pending")
    _protect(claim, "kubernetes.io/pvc-protection")


def _protect(manifest: Manifest, finalizer: str) -> None:
    if "deletionTimestamp" not in manifest["metadata"]:
        finalizers = manifest["metadata"].setdefault("finalizers", [])
        if finalizer not in finalizers:
            finalizers.append(finalizer)


def _fill_namespace(namespace: Manifest) -> None:
    metadata = namespace["metadata"]
    metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
    namespace.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    namespace.setdefault("status", {}).setdefault("phase", "Active")


def _fill_node(node: Manifest) -> None:
    node.setdefault("spec", {})
    node.setdefault("status", {})


def _fill_daemons(daemons: Manifest) -> None:
    """Write the defaults, and the counts that each answer has (Kubernetes API reference, DaemonSetStatus)."""
    spec = daemons.setdefault("spec", {})
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy["rollingUpdate"] = {"maxSurge": 0, "maxUnavailable": 1} | strategy.get("rollingUpdate", {})
    fill_pod(spec.setdefault("template", {}).setdefault("spec", {}))
    status = daemons.setdefault("status", {})
    for count in ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"):
        status.setdefault(count, 0)


_DEFAULTS: dict[Resource, Callable[[Manifest], None]] = {
    JOBS: _fill_job,
    PODS: _fill_pod_object,
    VOLUMES: _fill_volume,
    CLAIMS: _fill_claim,
    DAEMONS: _fill_daemons,
    NAMESPACES: _fill_namespace,
    NODES: _fill_node,
}
