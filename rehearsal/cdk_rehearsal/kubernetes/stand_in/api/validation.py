"""Rules that objects keep, with the words in which the API server refuses them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api import pod_security
from cdk_rehearsal.kubernetes.stand_in.api.job_rules import check_fixed_job, check_job
from cdk_rehearsal.kubernetes.stand_in.api.pod_rules import check_fixed_pod, check_pod
from cdk_rehearsal.kubernetes.stand_in.api.rules import (
    check_annotations,
    check_choice,
    check_labels,
    check_name,
    check_selector,
    forbid,
    invalid,
    require,
)
from cdk_rehearsal.kubernetes.stand_in.base.failures import report_invalid
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    BINDINGS,
    CLAIMS,
    CLUSTER_BINDINGS,
    CONFIGURATIONS,
    DAEMONS,
    EVENTS,
    JOBS,
    NAMESPACES,
    PODS,
    VOLUMES,
    Manifest,
    Resource,
)
from cdk_rehearsal.kubernetes.stand_in.base.selectors import matches_labels, read_quantity

_ACCESS = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_NOT_SOURCES = (
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
)
_MOST_CONFIGURATION = 1_048_576
_CONFIGURATION_KEY = re.compile(r"[-._a-zA-Z0-9]+")


def check(resource: Resource, manifest: Manifest, before: Manifest | None, version: tuple[int, int]) -> None:
    """
    Require the rules of its kind of an object.

    Args:
        resource: Kind of the object.
        manifest: The object, with its defaults.
        before: The object before the update; None for a new one.
        version: Minor version of Kubernetes.

    Raises:
        ApiError: A rule is broken.
    """
    findings = list(_check_metadata(resource, manifest))
    if resource is JOBS:
        findings += check_job(manifest)
        findings += check_fixed_job(manifest, before, version) if before else ()
    elif resource in _CHECKS:
        findings += _CHECKS[resource](manifest, before)
    if findings:
        raise report_invalid(resource, manifest["metadata"]["name"], *findings)


def _check_metadata(resource: Resource, manifest: Manifest) -> Iterator[str]:
    metadata = manifest["metadata"]
    if resource.group != "rbac.authorization.k8s.io":  # whose names may have colons
        yield from check_name("metadata.name", metadata["name"], is_label=resource is NAMESPACES)
    yield from check_labels("metadata.labels", metadata.get("labels", {}))
    yield from check_annotations("metadata.annotations", metadata.get("annotations", {}))


def _check_pod_object(pod: Manifest, before: Manifest | None) -> Iterator[str]:
    yield from check_pod(pod["spec"], "spec")
    if before:
        yield from check_fixed_pod(pod, before)


def _check_daemons(daemons: Manifest, before: Manifest | None) -> Iterator[str]:
    spec = daemons["spec"]
    selector, template = spec.get("selector", {}), spec["template"]
    yield from check_selector("spec.selector", selector)
    labels = template.get("metadata", {}).get("labels", {})
    if not matches_labels(selector, labels) or selector == {}:
        rule = "`selector` does not match template `labels`"
        yield invalid("spec.template.metadata.labels", labels, rule)
    yield from check_pod(template["spec"], "spec.template.spec")
    yield from check_choice("spec.template.spec.restartPolicy", template["spec"]["restartPolicy"], ("Always",))
    if before and before["spec"].get("selector") != selector:
        yield invalid("spec.selector", selector, "field is immutable")


def _check_volume(volume: Manifest, before: Manifest | None) -> Iterator[str]:
    spec = volume["spec"]
    for name in ("accessModes", "capacity"):
        if not spec.get(name):
            yield require(f"spec.{name}")
    for mode in spec.get("accessModes", ()):
        yield from check_choice("spec.accessModes", mode, _ACCESS)
    for name, amount in spec.get("capacity", {}).items():
        if read_quantity(amount) <= 0:
            yield invalid(f"spec.capacity[{name}]", str(amount), "must be greater than zero")
    policies = ("Delete", "Recycle", "Retain")
    yield from check_choice("spec.persistentVolumeReclaimPolicy", spec["persistentVolumeReclaimPolicy"], policies)
    yield from _check_sources(spec, before["spec"] if before else spec)


def _check_sources(spec: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    sources = [name for name in spec if name not in _NOT_SOURCES]
    if not sources:
        yield require("spec", "must specify a volume type")
    for name in sources[1:]:
        yield forbid(f"spec.{name}", "may not specify more than 1 volume type")
    for name in ("driver", "volumeHandle"):
        if "csi" in spec and not spec["csi"].get(name):
            yield require(f"spec.csi.{name}")
    if any(spec.get(name) != old.get(name) for name in {*sources, *(set(old) - set(_NOT_SOURCES))}):
        words = "spec.persistentvolumesource is immutable after creation"
        yield forbid("spec.persistentvolumesource", words)
    if spec.get("volumeMode") != old.get("volumeMode"):
        yield invalid("spec.volumeMode", spec.get("volumeMode"), "field is immutable")


def _check_claim(claim: Manifest, before: Manifest | None) -> Iterator[str]:
    spec = claim["spec"]
    if not spec.get("accessModes"):
        yield require("spec.accessModes", "at least 1 access mode is required")
    for mode in spec.get("accessModes", ()):
        yield from check_choice("spec.accessModes", mode, _ACCESS)
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield require("spec.resources[storage]")
        return
    if read_quantity(storage) <= 0:
        yield invalid("spec.resources[storage]", str(storage), "must be greater than zero")
    if before is None:
        return
    new, old = ({name: part for name, part in each["spec"].items() if name != "resources"} for each in (claim, before))
    if not old.get("volumeName"):
        old["volumeName"] = new.get("volumeName")
        new["volumeName"] = new.get("volumeName")
    amount = read_quantity(before["spec"]["resources"]["requests"]["storage"])
    is_bound = before["status"].get("phase") == "Bound"
    if new != old or (not is_bound and read_quantity(storage) != amount):
        words = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound "
        yield forbid("spec", f"{words}claims")
    elif read_quantity(storage) < amount:
        yield forbid("spec.resources.requests.storage", "field can not be less than status.capacity")


def _check_configuration(configuration: Manifest, _before: Manifest | None) -> Iterator[str]:
    texts, bytes_ = configuration.get("data", {}), configuration.get("binaryData", {})
    for kind, found in (("data", texts), ("binaryData", bytes_)):
        for key in found:
            if not _CONFIGURATION_KEY.fullmatch(key):
                rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
                yield invalid(f"{kind}[{key}]", key, rule)
    for key in set(texts) & set(bytes_):
        yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    size = sum(len(text.encode()) for text in texts.values()) + sum(len(text) * 3 // 4 for text in bytes_.values())
    if size > _MOST_CONFIGURATION:
        yield f"[]: Too long: may not be more than {_MOST_CONFIGURATION} bytes"


def _check_binding(binding: Manifest, before: Manifest | None) -> Iterator[str]:
    reference = binding["roleRef"]
    kinds = ("ClusterRole", "Role") if "namespace" in binding["metadata"] else ("ClusterRole",)
    yield from check_choice("roleRef.kind", reference.get("kind"), kinds)
    for number, subject in enumerate(binding.get("subjects", ())):
        yield from check_choice(f"subjects[{number}].kind", subject.get("kind"), ("Group", "ServiceAccount", "User"))
    if before and reference != before["roleRef"]:
        yield invalid("roleRef", reference, "cannot change roleRef")


def _check_event(event: Manifest, _before: Manifest | None) -> Iterator[str]:
    place, own = event["involvedObject"].get("namespace", ""), event["metadata"].get("namespace", "")
    if place != own and (place or own not in ("", "default", "kube-system")):
        yield invalid("involvedObject.namespace", place, "does not match event.namespace")


def _check_namespace(namespace: Manifest, _before: Manifest | None) -> Iterator[str]:
    yield from pod_security.check_labels(namespace["metadata"].get("labels", {}))


_CHECKS: dict[Resource, Callable[[Manifest, Manifest | None], Iterator[Any]]] = {
    PODS: _check_pod_object,
    DAEMONS: _check_daemons,
    VOLUMES: _check_volume,
    CLAIMS: _check_claim,
    CONFIGURATIONS: _check_configuration,
    BINDINGS: _check_binding,
    CLUSTER_BINDINGS: _check_binding,
    EVENTS: _check_event,
    NAMESPACES: _check_namespace,
}
