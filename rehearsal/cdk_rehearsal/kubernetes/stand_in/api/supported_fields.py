"""Fields that the stand-in's controllers and kubelets obey; it refuses every other by its name."""

from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import report_unsupported
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    ACCOUNTS,
    BINDINGS,
    CLAIMS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CONFIGURATIONS,
    DAEMONS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    ROLES,
    VOLUMES,
    Manifest,
    Resource,
)

_ANY = None
"""Every value of the field is obeyed."""
_Fields = Mapping[str, Any] | frozenset[Any] | None
"""Fields below a field, or the values that it may have."""


def _only(*values: Any) -> frozenset[Any]:
    return frozenset(values)


_OFF = frozenset({False})
_METADATA = dict.fromkeys(
    (
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
_RESOURCES: _Fields = {"limits": _ANY, "requests": _ANY}
_ENVIRONMENT: _Fields = {
    "name": _ANY,
    "value": _ANY,
    "valueFrom": {"fieldRef": {"apiVersion": _ANY, "fieldPath": _ANY}},
}
_CONTAINER: Mapping[str, _Fields] = {
    "args": _ANY,
    "command": _ANY,
    "env": _ENVIRONMENT,
    "image": _ANY,
    "imagePullPolicy": _only("Always", "IfNotPresent"),
    "name": _ANY,
    "ports": dict.fromkeys(("containerPort", "name", "protocol")),  # which declare, and open nothing
    "resources": _RESOURCES,
    "securityContext": {"privileged": _OFF, "procMount": _only("Default")},
    "stdin": _OFF,
    "terminationMessagePath": _ANY,
    "terminationMessagePolicy": _only("File"),
    "tty": _OFF,
    "volumeMounts": dict.fromkeys(("mountPath", "name", "readOnly")),
}
_AFFINITY: _Fields = {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _ANY},
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": dict.fromkeys(("labelSelector", "namespaces", "topologyKey"))
    },
}
_POD: Mapping[str, _Fields] = {
    "affinity": _AFFINITY,
    "automountServiceAccountToken": _OFF,
    "containers": _CONTAINER,
    "dnsPolicy": _only("ClusterFirst"),
    "enableServiceLinks": _ANY,  # the stand-in has no services
    **dict.fromkeys(("hostIPC", "hostNetwork", "hostPID"), _OFF),
    "hostname": _ANY,
    "nodeSelector": _ANY,
    "preemptionPolicy": _only("PreemptLowerPriority"),
    "priority": _only(0),
    "restartPolicy": _only("Never"),
    "schedulerName": _only("default-scheduler"),
    "securityContext": {},
    "serviceAccount": _ANY,
    "serviceAccountName": _ANY,
    "terminationGracePeriodSeconds": _ANY,
    "tolerations": _ANY,
    "volumes": {
        "configMap": {"defaultMode": _only(420), "name": _ANY},
        "emptyDir": {"medium": _only("", "Memory"), "sizeLimit": _ANY},
        "name": _ANY,
        "persistentVolumeClaim": {"claimName": _ANY, "readOnly": _OFF},
    },
}
_DAEMON_POD: Mapping[str, _Fields] = {
    # Pods of DaemonSets are placed and reported, and never run: what is inside of their containers is not looked at.
    **_POD,
    **dict.fromkeys(("automountServiceAccountToken", "containers", "hostIPC", "hostNetwork", "hostPID"), _ANY),
    **dict.fromkeys(("priorityClassName", "securityContext", "volumes"), _ANY),
    "dnsPolicy": _ANY,
    "priority": _ANY,
    "restartPolicy": _only("Always"),
}
_RULES = {"rules": _ANY}
_BINDING = {"roleRef": _ANY, "subjects": _ANY}
_JOB: Mapping[str, _Fields] = {
    **dict.fromkeys(
        (
            "activeDeadlineSeconds",
            "backoffLimit",
            "backoffLimitPerIndex",
            "completions",
            "maxFailedIndexes",
            "parallelism",
            "podFailurePolicy",
            "podReplacementPolicy",
            "selector",
            "successPolicy",
            "suspend",
            "ttlSecondsAfterFinished",
        )
    ),
    "completionMode": _only("Indexed"),
    "managedBy": _only("kubernetes.io/job-controller"),
    "manualSelector": _OFF,
    "template": {"metadata": _METADATA, "spec": _POD},
}
_FIELDS: Mapping[Resource, Mapping[str, _Fields]] = {
    JOBS: {"spec": _JOB},
    PODS: {"spec": {**_POD, "nodeName": _ANY}},
    DAEMONS: {
        "spec": {
            "revisionHistoryLimit": _ANY,
            "selector": _ANY,
            "template": {"metadata": _METADATA, "spec": _DAEMON_POD},
            "updateStrategy": _ANY,
        }
    },
    VOLUMES: {
        "spec": {
            **dict.fromkeys(("accessModes", "capacity", "claimRef", "mountOptions", "storageClassName")),
            "csi": dict.fromkeys(("driver", "volumeHandle")),
            "persistentVolumeReclaimPolicy": _only("Retain"),
            "volumeMode": _only("Filesystem"),
        }
    },
    CLAIMS: {
        "spec": {
            **dict.fromkeys(("accessModes", "selector", "storageClassName", "volumeName")),
            "resources": {"requests": _ANY},
            "volumeMode": _only("Filesystem"),
        }
    },
    CONFIGURATIONS: {"binaryData": _ANY, "data": _ANY},
    ACCOUNTS: {"automountServiceAccountToken": _ANY},
    NAMESPACES: {"spec": {"finalizers": _ANY}},
    NODES: {"spec": dict.fromkeys(("podCIDR", "podCIDRs", "providerID", "taints", "unschedulable"))},
    ROLES: _RULES,
    CLUSTER_ROLES: _RULES,
    BINDINGS: _BINDING,
    CLUSTER_BINDINGS: _BINDING,
    DEPLOYMENTS: {},
}
"""Fields of each kind; other kinds (events, leases, secrets, storage classes) are kept and have no effect."""
_EVERYWHERE: Mapping[str, _Fields] = {"apiVersion": _ANY, "kind": _ANY, "metadata": _METADATA, "status": _ANY}
_FREE_PATHS = ("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName")


def require_support(resource: Resource, manifest: Manifest, *, is_daemon: bool = False) -> None:
    """
    Require that the stand-in obeys every field of an object; ApiError 501 names one that it does not.

    Args:
        resource: Kind of the object.
        manifest: The object, with its defaults.
        is_daemon: Whether it is a pod of a DaemonSet.
    """
    if resource not in _FIELDS:
        return
    fields = {"spec": {**_DAEMON_POD, "nodeName": _ANY}} if is_daemon else _FIELDS[resource]
    _require({**_EVERYWHERE, **fields}, manifest, "")
    if resource in (JOBS, PODS) and not is_daemon:
        at = "spec.template.spec" if resource is JOBS else "spec"
        spec = manifest["spec"]["template"]["spec"] if resource is JOBS else manifest["spec"]
        _require_one_program(spec, at)


def _require(fields: _Fields, value: Any, path: str) -> None:
    if fields is _ANY:
        return
    if isinstance(value, list):
        for number, each in enumerate(value):
            _require(fields, each, f"{path}[{number}]")
    elif isinstance(fields, frozenset):
        if value not in fields:
            raise report_unsupported(f"{path} {value}")
    elif isinstance(value, dict):
        for name, child in value.items():
            at = f"{path}.{name}" if path else name
            if name not in fields:
                raise report_unsupported(at)
            _require(fields[name], child, at)


def _require_one_program(spec: Mapping[str, Any], at: str) -> None:
    """Require one container that names its program: nobody knows the entry points of images here."""
    for container in spec["containers"][1:]:
        raise report_unsupported(f"{at}.containers[1] {container['name']}")
    for container in spec["containers"]:
        if not container.get("command"):
            raise report_unsupported(f"{at}.containers[0] without command")
        for number, variable in enumerate(container.get("env", ())):
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "metadata.name")
            if path not in _FREE_PATHS and not path.startswith(("metadata.labels['", "metadata.annotations['")):
                raise report_unsupported(f"{at}.containers[0].env[{number}].valueFrom.fieldRef.fieldPath {path}")
