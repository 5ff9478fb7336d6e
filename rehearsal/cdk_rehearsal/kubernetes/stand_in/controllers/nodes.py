"""
Controllers of nodes: readiness by leases, taints, the end of pods on nodes that are gone.

Times are the defaults of the controller manager (Kubernetes documentation, "kube-controller-manager"): 50 s without a
sign of life, 20 s between two collections of pods, and 40 s before a node that is missing counts as gone
(gc_controller.go).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.defaults import NOT_READY, UNREACHABLE
from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write, mark_disrupted, set_condition
from cdk_rehearsal.kubernetes.stand_in.base.clock import parse_time
from cdk_rehearsal.kubernetes.stand_in.base.resources import LEASES, NODES, PODS, Manifest, get_key
from cdk_rehearsal.kubernetes.stand_in.controllers.indexes import ENDED
from cdk_rehearsal.kubernetes.stand_in.controllers.scheduling import tolerates

_SOURCE, _TAINT_SOURCE = "node-controller", "taint-eviction-controller"
_LEASES = "kube-node-lease"
_COLLECT_SECONDS, _QUARANTINE_SECONDS = 20.0, 40.0
_OURS = (NOT_READY, UNREACHABLE)
_PRESSURES = {
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
}
"""Condition of a node -> taint that it has meanwhile."""


class NodeController:
    """
    Watches over nodes.

    Args:
        objects: Objects of the control plane.
        grace_seconds: Time without a sign of life after which a node is not ready.
    """

    def __init__(self, objects: Objects, grace_seconds: float) -> None:
        self._objects, self._store, self._grace_seconds = objects, objects.store, grace_seconds
        self._signs: dict[str, tuple[object, float]] = {}
        self._collected = 0.0
        self._missing: dict[str, float] = {}

    def settle(self) -> Sequence[float]:
        """Look at each node and its pods once; return when to look again."""
        due = [self._watch(node) for node in self._store.list(NODES)]
        for node in self._store.list(NODES):
            due += self._evict(node)
        return [*due, self._collect()]

    def _watch(self, node: Manifest) -> float:
        """Set the readiness and the taints of a node; return when it counts as lost without a sign of life."""
        name, now = node["metadata"]["name"], self._store.clock.read()
        lease = self._store.find(LEASES, (_LEASES, name))
        ready = _get_ready(node)
        sign = (
            node["metadata"]["uid"],
            lease["spec"].get("renewTime") if lease else None,
            ready.get("lastHeartbeatTime"),
        )
        if name not in self._signs or self._signs[name][0] != sign:
            self._signs[name] = (sign, now)
        over = self._signs[name][1] + self._grace_seconds
        if now >= over and ready.get("status") != "Unknown":
            self._lose(node)
        found = self._store.get(NODES, ("", name))
        self._taint(
            found, {"True": "", "Unknown": UNREACHABLE}.get(_get_ready(found).get("status", "False"), NOT_READY)
        )
        self._taint_pressure(self._store.get(NODES, ("", name)))
        return over if now < over else now + _COLLECT_SECONDS

    def _lose(self, node: Manifest) -> None:
        now, name = self._store.clock.format(), node["metadata"]["name"]
        had_status = bool(_get_ready(node))
        reason = "NodeStatusUnknown" if had_status else "NodeStatusNeverUpdated"
        words = "Kubelet stopped posting node status." if had_status else "Kubelet never posted node status."

        def edit(each: Manifest) -> None:
            kinds = {condition["type"] for condition in each["status"].get("conditions", ())}
            for kind in sorted(kinds | {"Ready"}):
                set_condition(each["status"], kind, "Unknown", (reason, words), now)

        self._store.change(NODES, ("", name), edit)
        words = f"Node {name} status is now: NodeNotReady"
        self._store.record_event(node, "NodeNotReady", words, source=_SOURCE, is_warning=False)
        for pod in self._list_pods(name):
            if any(
                each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
            ):
                self._store.record_event(pod, "NodeNotReady", "Node is not ready", source=_SOURCE)
                self._store.change(PODS, get_key(pod), lambda each: _end_readiness(each, now))

    def _taint(self, node: Manifest, wanted: str) -> None:
        """Give a node the taints of its readiness: of scheduling at once, and of execution."""
        taints = node["spec"].get("taints", [])
        others = [taint for taint in taints if taint["key"] not in _OURS]
        ours = [taint for taint in taints if taint["key"] in _OURS]
        effects = {taint["effect"] for taint in ours if taint["key"] == wanted}
        if (not wanted and not ours) or ({taint["key"] for taint in ours} == {wanted} and len(effects) == 2):  # noqa: PLR2004
            return
        now = self._store.clock.format()
        new = [{"key": wanted, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute")]

        def edit(each: Manifest) -> None:
            each["spec"]["taints"] = [*others, *(new if wanted else ())]
            if not each["spec"]["taints"]:
                del each["spec"]["taints"]

        self._store.change(NODES, get_key(node), edit)

    def _taint_pressure(self, node: Manifest) -> None:
        """Keep new pods from a node that is short of memory, disk or processes, or let them come again."""
        states = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
        taints = node["spec"].get("taints", [])
        others = [taint for taint in taints if taint["key"] not in _PRESSURES.values()]
        short = [key for kind, key in _PRESSURES.items() if states.get(kind) == "True"]
        if {taint["key"] for taint in taints} & set(_PRESSURES.values()) == set(short):
            return
        now = self._store.clock.format()
        new = [{"key": key, "effect": "NoSchedule", "timeAdded": now} for key in short]
        self._store.change(NODES, get_key(node), lambda each: each["spec"].update(taints=[*others, *new]))

    def _evict(self, node: Manifest) -> Sequence[float]:
        """Delete the pods that do not tolerate the taints of a node, or not any more; return when others follow."""
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["effect"] == "NoExecute"]
        due = []
        for pod in self._list_pods(node["metadata"]["name"]) if taints else ():
            if "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] in ENDED:
                continue
            at = min(_time_eviction(pod, taint) for taint in taints)
            if at > self._store.clock.read():
                due.append(at)
                continue
            namespace, name = get_key(pod)
            words = f"Marking for deletion Pod {namespace}/{name}"
            self._store.record_event(pod, "TaintManagerEviction", words, source=_TAINT_SOURCE, is_warning=False)
            words = "Taint manager: deleting due to NoExecute taint"
            mark_disrupted(self._store, (namespace, name), "DeletionByTaintManager", words)
            self._objects.delete(Write(PODS, namespace, name), {"propagationPolicy": "Background"})
        return [at for at in due if at != float("inf")]

    def _collect(self) -> float:
        """Remove pods of nodes that are gone, and deleted ones that never had a node."""
        now = self._store.clock.read()
        if now < self._collected + _COLLECT_SECONDS:
            return self._collected + _COLLECT_SECONDS
        self._collected = now
        nodes = {node["metadata"]["name"] for node in self._store.list(NODES)}
        pods = self._store.list(PODS)
        lost = {pod["spec"].get("nodeName", "") for pod in pods} - nodes - {""}
        self._missing = {name: self._missing.get(name, now) for name in lost}
        for pod in pods:
            name = pod["spec"].get("nodeName", "")
            if now >= self._missing.get(name, now) + _QUARANTINE_SECONDS:
                self._remove(pod, is_orphaned=True)
            elif not name and "deletionTimestamp" in pod["metadata"]:
                self._remove(pod, is_orphaned=False)
        return now + _COLLECT_SECONDS

    def _remove(self, pod: Manifest, *, is_orphaned: bool) -> None:
        key = get_key(pod)
        if pod["status"]["phase"] not in ENDED:
            if is_orphaned:
                words = "PodGC: node no longer exists"
                mark_disrupted(self._store, key, "DeletionByPodGC", words, phase="Failed")
            else:
                self._store.change(PODS, key, lambda each: each["status"].update(phase="Failed"))
        self._objects.delete(Write(PODS, *key), {"gracePeriodSeconds": 0})

    def _list_pods(self, node: str) -> list[Manifest]:
        return [pod for pod in self._store.list(PODS) if pod["spec"].get("nodeName") == node]


def _get_ready(node: Manifest) -> Mapping[str, Any]:
    return next((each for each in node["status"].get("conditions", ()) if each["type"] == "Ready"), {})


def _end_readiness(pod: Manifest, now: str) -> None:
    for each in pod["status"]["conditions"]:
        if each["type"] == "Ready":
            each |= {"status": "False", "lastTransitionTime": now}


def _time_eviction(pod: Manifest, taint: Mapping[str, Any]) -> float:
    """Return when a pod has to leave a node with a taint, in seconds since 1970; never is infinity."""
    found = [each for each in pod["spec"].get("tolerations", ()) if tolerates(each, taint)]
    if not found:
        return 0.0
    seconds = [each["tolerationSeconds"] for each in found if "tolerationSeconds" in each]
    added = taint.get("timeAdded")
    return parse_time(added) + min(seconds) if seconds and added else float("inf")
