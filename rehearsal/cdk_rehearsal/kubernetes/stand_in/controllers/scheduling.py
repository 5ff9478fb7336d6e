"""
Scheduler: binds pods to nodes that have room, and says why there is none.

The words are those of Kubernetes 1.36.2; a node is counted for the first reason that excludes it, in the order of the
default profile's plug-ins (Kubernetes documentation, "Scheduler Configuration").
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.objects import set_condition
from cdk_rehearsal.kubernetes.stand_in.base.resources import CLAIMS, NODES, PODS, Manifest, get_key
from cdk_rehearsal.kubernetes.stand_in.base.selectors import matches_expression, matches_labels, read_quantity
from cdk_rehearsal.kubernetes.stand_in.base.store import Store
from cdk_rehearsal.kubernetes.stand_in.schemas.schema import parse_version

_SOURCE = "default-scheduler"
_ENDED = ("Succeeded", "Failed")
_TAINTS_UNNAMED = (1, 35)
"""Version from which the words name no taint."""
_UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_HOPELESS, _NO_VICTIMS = "Preemption is not helpful for scheduling", "No preemption victims found for incoming pod"


class Scheduler:
    """
    Binds pods.

    Args:
        store: The store.
        version: Minor version of Kubernetes, such as `1.35`.
    """

    def __init__(self, store: Store, version: str) -> None:
        self._store = store
        self._names_taints = parse_version(version) < _TAINTS_UNNAMED

    def settle(self) -> Sequence[float]:
        """Bind the pods that can be bound."""
        pods = self._store.list(PODS)
        waiting = [pod for pod in pods if "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]]
        for pod in sorted(waiting, key=lambda each: each["metadata"]["creationTimestamp"]):
            if pod["spec"]["schedulerName"] == _SOURCE and pod["status"]["phase"] == "Pending":
                self._schedule(pod)
        return []

    def _schedule(self, pod: Manifest) -> None:
        nodes = self._store.list(NODES)
        placed = [each for each in self._store.list(PODS) if "nodeName" in each["spec"]]
        living = [each for each in placed if each["status"]["phase"] not in _ENDED]
        if not nodes:
            self._refuse(pod, "no nodes available to schedule pods")
            return
        if reason := self._check_claims(pod):
            self._refuse(
                pod, f"0/{len(nodes)} nodes are available: {reason}. {self._end(len(nodes), {_HOPELESS: len(nodes)})}"
            )
            return
        places, reasons, ways_out = [], Counter[str](), Counter[str]()
        for node in nodes:
            here = [each for each in living if each["spec"]["nodeName"] == node["metadata"]["name"]]
            found, is_hopeless = self._exclude(pod, node, nodes, here, living)
            if not found:
                places.append((len(here), node["metadata"]["name"]))
            reasons.update(found)
            ways_out.update([_HOPELESS if is_hopeless else _NO_VICTIMS] if found else [])
        if places:
            self._bind(pod, min(places)[1])
            return
        listing = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        self._refuse(pod, f"0/{len(nodes)} nodes are available: {listing}. {self._end(len(nodes), ways_out)}")

    def _end(self, count: int, ways_out: Mapping[str, int]) -> str:
        listing = ", ".join(sorted(f"{number} {way}" for way, number in ways_out.items()))
        return f"no new claims to deallocate, preemption: 0/{count} nodes are available: {listing}."

    def _check_claims(self, pod: Manifest) -> str:
        """Return why the volumes of a pod keep it from every node; empty where they do not."""
        for volume in pod["spec"].get("volumes", ()):
            if "persistentVolumeClaim" not in volume:
                continue
            name = volume["persistentVolumeClaim"]["claimName"]
            claim = self._store.find(CLAIMS, (pod["metadata"]["namespace"], name))
            if claim is None:
                return f'persistentvolumeclaim "{name}" not found'
            if "deletionTimestamp" in claim["metadata"]:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if claim["status"].get("phase") != "Bound":
                return "pod has unbound immediate PersistentVolumeClaims"
        return ""

    def _exclude(
        self,
        pod: Manifest,
        node: Manifest,
        nodes: Sequence[Manifest],
        here: Sequence[Manifest],
        living: Sequence[Manifest],
    ) -> tuple[list[str], bool]:
        """Return why a node is excluded, and whether the end of other pods would not help."""
        if reason := self._keep_away(pod["spec"], node):
            return [reason], True
        lacking, is_hopeless = _find_lacking(pod, node, here)
        if lacking:
            return lacking, is_hopeless
        if _is_kept_apart(pod, node, nodes, living):
            return ["node(s) didn't match pod anti-affinity rules"], False
        if any(_is_kept_apart(other, node, nodes, [pod], at=node) for other in _list_neighbours(node, nodes, living)):
            return ["node(s) didn't satisfy existing pods anti-affinity rules"], False
        return [], False

    def _keep_away(self, spec: Mapping[str, Any], node: Manifest) -> str:
        """Return why a node wants no such pod, or the pod no such node; empty where they fit."""
        tolerations = spec.get("tolerations", ())
        if node["spec"].get("unschedulable") and not _tolerates(tolerations, _UNSCHEDULABLE):
            return "node(s) were unschedulable"
        for taint in node["spec"].get("taints", ()):
            if taint["effect"] != "PreferNoSchedule" and not _tolerates(tolerations, taint):
                named = f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
                return named if self._names_taints else "node(s) had untolerated taint(s)"
        return "" if fits_affinity(spec, node) else "node(s) didn't match Pod's node affinity/selector"

    def _bind(self, pod: Manifest, node: str) -> None:
        now = self._store.clock.format()

        def edit(each: Manifest) -> None:
            each["spec"]["nodeName"] = node
            set_condition(each["status"], "PodScheduled", "True", ("", ""), now)

        namespace, name = get_key(pod)
        self._store.change(PODS, (namespace, name), edit)
        words = f"Successfully assigned {namespace}/{name} to {node}"
        self._store.record_event(pod, "Scheduled", words, source=_SOURCE, is_warning=False)

    def _refuse(self, pod: Manifest, message: str) -> None:
        now = self._store.clock.format()
        conditions = pod["status"].get("conditions", ())
        if any(each["type"] == "PodScheduled" and each.get("message") == message for each in conditions):
            return

        def edit(each: Manifest) -> None:
            set_condition(each["status"], "PodScheduled", "False", ("Unschedulable", message), now)

        self._store.change(PODS, get_key(pod), edit)
        self._store.record_event(pod, "FailedScheduling", message, source=_SOURCE)


def _tolerates(tolerations: Sequence[Mapping[str, Any]], taint: Mapping[str, Any]) -> bool:
    return any(tolerates(each, taint) for each in tolerations)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration is one of a taint."""
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    is_same: bool = toleration.get("value", "") == taint.get("value", "")
    return is_same and toleration.get("key") == taint["key"]


def fits_affinity(spec: Mapping[str, Any], node: Manifest) -> bool:
    """Return whether a node is one that a pod selects."""
    labels = node["metadata"].get("labels", {})
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    names = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(matches_expression(each, labels) for each in term.get("matchExpressions", ()))
        and all(matches_expression(each, names) for each in term.get("matchFields", ()))
        for term in required["nodeSelectorTerms"]
    )


def _find_lacking(pod: Manifest, node: Manifest, here: Sequence[Manifest]) -> tuple[list[str], bool]:
    """Return the resources that a node lacks, and whether it never has enough of them."""
    room = {name: read_quantity(amount) for name, amount in node["status"].get("allocatable", {}).items()}
    used: Counter[str] = Counter()
    for each in here:
        used.update(_get_requests(each))
    lacking, is_hopeless = [], False
    if len(here) + 1 > room.get("pods", 0):
        lacking.append("Too many pods")
    for name, amount in _get_requests(pod).items():
        if amount + used[name] > room.get(name, 0):
            lacking.append(f"Insufficient {name}")
            is_hopeless = is_hopeless or amount > room.get(name, 0)
    return lacking, is_hopeless


def _get_requests(pod: Manifest) -> Mapping[str, Decimal]:
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            total[name] = total.get(name, Decimal(0)) + read_quantity(amount)
    return total


def _is_kept_apart(
    pod: Manifest, node: Manifest, nodes: Sequence[Manifest], others: Sequence[Manifest], at: Manifest | None = None
) -> bool:
    """Return whether the anti-affinity of a pod excludes a node for the sake of other pods, on it or coming to it."""
    apart = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    for term in apart.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
        place = node["metadata"].get("labels", {}).get(term["topologyKey"])
        if place is None:
            continue
        for other in others:
            found = at or next((each for each in nodes if each["metadata"]["name"] == other["spec"]["nodeName"]), None)
            same = found is not None and found["metadata"].get("labels", {}).get(term["topologyKey"]) == place
            spaces = term.get("namespaces") or [pod["metadata"]["namespace"]]
            labels = other["metadata"].get("labels", {})
            if same and other["metadata"]["namespace"] in spaces and matches_labels(term.get("labelSelector"), labels):
                return True
    return False


def _list_neighbours(node: Manifest, nodes: Sequence[Manifest], living: Sequence[Manifest]) -> Iterator[Manifest]:
    """Yield the pods with a required anti-affinity that holds on the node, from the nodes of the same place."""
    labels = node["metadata"].get("labels", {})
    by_name = {each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in nodes}
    for pod in living:
        apart = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
        for term in apart.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            key = term["topologyKey"]
            there = by_name.get(pod["spec"]["nodeName"], {}).get(key)
            if there is not None and there == labels.get(key):
                yield pod
                break
