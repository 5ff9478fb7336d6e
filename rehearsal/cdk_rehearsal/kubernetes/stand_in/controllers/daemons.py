"""Controller of DaemonSets: pods on each node that they select and tolerate (Kubernetes documentation, "DaemonSet")."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.defaults import NOT_READY, UNREACHABLE, make_name
from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import DAEMONS, NODES, PODS, Manifest, get_key
from cdk_rehearsal.kubernetes.stand_in.controllers.indexes import ENDED
from cdk_rehearsal.kubernetes.stand_in.controllers.scheduling import fits_affinity, tolerates

SOURCE = "daemonset-controller"
_LATER_SECONDS = 10
"""Time after which a pod that could not be created is tried again."""
_STATES = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class DaemonController:
    """
    Makes the pods of DaemonSets; the scheduler binds each to its node.

    Args:
        objects: Objects of the control plane.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects, self._store = objects, objects.store
        self._not_before: dict[str, float] = {}

    def settle(self) -> Sequence[float]:
        """Look at each DaemonSet once; return when to look again."""
        due: list[float] = []
        for daemons in self._store.list(DAEMONS):
            if "deletionTimestamp" not in daemons["metadata"]:
                due += self._sync(daemons)
        return due

    def _sync(self, daemons: Manifest) -> Sequence[float]:
        uid, now, due = daemons["metadata"]["uid"], self._store.clock.read(), []
        pods = [pod for pod in self._store.list(PODS, daemons["metadata"]["namespace"]) if _is_owned(pod, uid)]
        template = _make_template(daemons)
        wanted = [node["metadata"]["name"] for node in self._store.list(NODES) if _fits(template["spec"], node)]
        by_node: dict[str, list[Manifest]] = {}
        for pod in pods:
            by_node.setdefault(_get_node(pod), []).append(pod)
        for name, found in by_node.items():
            for pod in found:
                if (name not in wanted or pod["status"]["phase"] in ENDED) and "deletionTimestamp" not in pod[
                    "metadata"
                ]:
                    self._objects.delete(Write(PODS, *get_key(pod)), {"propagationPolicy": "Background"})
        for name in wanted:
            if name not in by_node and now < self._not_before.get(uid, 0.0):
                due.append(self._not_before[uid])
            elif name not in by_node and not self._create(daemons, template, name):
                self._not_before[uid] = now + _LATER_SECONDS
                due.append(now + _LATER_SECONDS)
        ready = sum(1 for name in wanted for pod in by_node.get(name, ()) if _is_ready(pod))
        current = sum(1 for name in wanted if name in by_node)
        counts = {
            "currentNumberScheduled": current,
            "desiredNumberScheduled": len(wanted),
            "numberMisscheduled": sum(1 for name in by_node if name not in wanted),
            "numberReady": ready,
            "observedGeneration": daemons["metadata"]["generation"],
            "updatedNumberScheduled": current,
            **({"numberAvailable": ready} if ready else {}),
        }
        self._store.change(DAEMONS, get_key(daemons), lambda each: each.update(status=counts))
        return due

    def _create(self, daemons: Manifest, template: dict[str, Any], node: str) -> bool:
        """Create the pod of a node; return whether the server takes it."""
        metadata, made = daemons["metadata"], copy.deepcopy(template)
        prefix = f"{metadata['name']}-"
        owner = {
            "apiVersion": DAEMONS.api_version,
            "kind": DAEMONS.kind,
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        place = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        made["spec"].setdefault("affinity", {})["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": [place]}}
        made["metadata"] = {
            **{name: part for name, part in made.get("metadata", {}).items() if name in ("annotations", "labels")},
            "generateName": prefix,
            "name": make_name(prefix),
            "ownerReferences": [owner],
        }
        try:
            pod = self._objects.create(Write(PODS, metadata["namespace"], manager="kube-controller-manager"), made)
        except ApiError as error:
            self._store.record_event(daemons, "FailedCreate", f"Error creating: {error.message}", source=SOURCE)
            return False
        words = f"Created pod: {pod['metadata']['name']}"
        self._store.record_event(daemons, "SuccessfulCreate", words, source=SOURCE, is_warning=False)
        return True


def _make_template(daemons: Manifest) -> dict[str, Any]:
    """Return the template with the tolerations that the controller adds (pkg/controller/daemon/util)."""
    template: dict[str, Any] = copy.deepcopy(daemons["spec"]["template"])
    added = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in (NOT_READY, UNREACHABLE)]
    states = (*_STATES, *(("network-unavailable",) if template["spec"].get("hostNetwork") else ()))
    keys = [f"node.kubernetes.io/{state}" for state in states]
    added += [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    template["spec"]["tolerations"] = [*template["spec"].get("tolerations", ()), *added]
    return template


def _fits(spec: Mapping[str, Any], node: Manifest) -> bool:
    """Return whether a node is selected, and has no taint that keeps a pod away for ever."""
    taints = (taint for taint in node["spec"].get("taints", ()) if taint["effect"] != "PreferNoSchedule")
    # A node that is not ready has that taint without its effect on pods of DaemonSets, which come before it is ready.
    lasting = (taint for taint in taints if taint["key"] not in (NOT_READY, UNREACHABLE))
    return fits_affinity(spec, node) and all(
        any(tolerates(each, taint) for each in spec["tolerations"]) for taint in lasting
    )


def _is_owned(pod: Manifest, uid: str) -> bool:
    return any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))


def _get_node(pod: Manifest) -> str:
    """Return the node of a pod, or the one that it is made for."""
    if "nodeName" in pod["spec"]:
        return str(pod["spec"]["nodeName"])
    required = pod["spec"]["affinity"]["nodeAffinity"][_REQUIRED]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
