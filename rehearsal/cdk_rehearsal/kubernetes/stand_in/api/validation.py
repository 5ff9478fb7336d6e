"""Rules that objects keep, with the words in which the API server refuses them."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.defaults import CONTROLLER_LABEL
from cdk_rehearsal.kubernetes.stand_in.base.failures import report_invalid, report_unsupported
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    CLAIMS,
    JOBS,
    PODS,
    VOLUMES,
    Manifest,
    Resource,
)
from cdk_rehearsal.kubernetes.stand_in.base.selectors import read_quantity

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LABEL_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_MOST_LABEL = 63
_MOST_NAME = 253
_FIXED_IN_JOBS = (
    "completions",
    "completionMode",
    "selector",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "successPolicy",
    "managedBy",
)
_FIXED_IN_PODS = ("nodeSelector", "affinity", "volumes", "restartPolicy", "hostname", "serviceAccountName")


def check(resource: Resource, manifest: Manifest, before: Manifest | None) -> None:
    """
    Require the rules of its kind of an object.

    Args:
        resource: Kind of the object.
        manifest: The object.
        before: The object before the update; None for a new one.

    Raises:
        ApiError: A rule is broken, or the stand-in does not implement what the object wants.
    """
    findings = list(_check_names(resource, manifest))
    if resource is JOBS:
        _check_support(manifest)
        findings += _check_job(manifest)
        findings += _check_fixed_job(manifest, before) if before else ()
    elif resource is PODS:
        _check_pod_support(manifest["spec"], "spec")
        findings += _check_pod(manifest["spec"], "spec")
        if before:
            findings += _check_fixed(
                manifest, before, _FIXED_IN_PODS, "Forbidden: pod updates may not change this field"
            )
    elif resource is VOLUMES:
        findings += _check_volume(manifest, before)
    elif resource is CLAIMS:
        findings += _check_claim(manifest, before)
    if findings:
        raise report_invalid(resource, manifest["metadata"]["name"], *findings)


def _check_names(resource: Resource, manifest: Manifest) -> Iterator[str]:
    metadata = manifest["metadata"]
    name = metadata["name"]
    if resource.group != "rbac.authorization.k8s.io":  # whose names may have colons
        if len(name) > _MOST_NAME:
            yield f'metadata.name: Invalid value: "{name}": must be no more than {_MOST_NAME} bytes'
        if not _NAME.fullmatch(name):
            yield f'metadata.name: Invalid value: "{name}": {_NAME_RULE}'
    for value in metadata.get("labels", {}).values():
        if len(value) > _MOST_LABEL:
            yield f'metadata.labels: Invalid value: "{value}": must be no more than {_MOST_LABEL} bytes'
        if not _LABEL.fullmatch(value):
            yield f'metadata.labels: Invalid value: "{value}": {_LABEL_RULE}'


def _check_support(job: Manifest) -> None:
    spec = job["spec"]
    if spec["completionMode"] != "Indexed":
        raise report_unsupported(f"spec.completionMode {spec['completionMode']}")
    for name in ("manualSelector", "managedBy"):
        if name in spec:
            raise report_unsupported(f"spec.{name}")
    _check_pod_support(spec["template"]["spec"], "spec.template.spec")


def _check_pod_support(spec: Mapping[str, Any], at: str) -> None:
    for name in (
        "initContainers",
        "topologySpreadConstraints",
        "schedulingGates",
        "resourceClaims",
        "priorityClassName",
    ):
        if spec.get(name):
            raise report_unsupported(f"{at}.{name}")
    if spec.get("affinity", {}).get("podAffinity"):
        raise report_unsupported(f"{at}.affinity.podAffinity")


def _check_job(job: Manifest) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    template = spec["template"]["spec"]
    if "completions" not in spec:
        yield "spec.completions: Required value: when completion mode is Indexed"
    elif len(f"{name}-{spec['completions'] - 1}") > _MOST_LABEL:
        host = f"{name}-{spec['completions'] - 1}"
        yield (
            f'metadata.name: Invalid value: "{name}": will not able to create pod with invalid DNS label: {host}: '
            f"must be no more than {_MOST_LABEL} bytes"
        )
    if template["restartPolicy"] not in ("Never", "OnFailure"):
        yield 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    if "podFailurePolicy" in spec:
        yield from _check_failure_policy(spec, template)
    for number, found in enumerate(spec.get("successPolicy", {}).get("rules", ())):
        if not {"succeededIndexes", "succeededCount"} & set(found):
            rule = "at least one of succeededCount or succeededIndexes must be specified"
            yield f"spec.successPolicy.rules[{number}]: Required value: {rule}"
    yield from _check_pod(template, "spec.template.spec")


def _check_failure_policy(spec: Mapping[str, Any], template: Mapping[str, Any]) -> Iterator[str]:
    if template["restartPolicy"] != "Never":
        yield (
            f'spec.template.spec.restartPolicy: Invalid value: "{template["restartPolicy"]}": only "Never" is '
            "supported when podFailurePolicy is specified"
        )
    if spec["podReplacementPolicy"] != "Failed":
        given = spec["podReplacementPolicy"]
        yield f'spec.podReplacementPolicy: Unsupported value: "{given}": supported values: "Failed"'
    names = {container.get("name") for container in template.get("containers", ())}
    for number, rule in enumerate(spec["podFailurePolicy"].get("rules", ())):
        name = rule.get("onExitCodes", {}).get("containerName")
        if name is not None and name not in names:
            yield (
                f'spec.podFailurePolicy.rules[{number}].onExitCodes.containerName: Invalid value: "{name}": must be '
                "one of the container or initContainer names in the pod template"
            )


def _check_pod(spec: Mapping[str, Any], at: str) -> Iterator[str]:
    if not spec.get("containers"):
        yield f"{at}.containers: Required value"
    names = {volume["name"] for volume in spec.get("volumes", ())}
    for number, container in enumerate(spec.get("containers", ())):
        where = f"{at}.containers[{number}]"
        if not container.get("image"):
            yield f"{where}.image: Required value"
        for mount_number, mount in enumerate(container.get("volumeMounts", ())):
            if mount["name"] not in names:
                yield f'{where}.volumeMounts[{mount_number}].name: Not found: "{mount["name"]}"'


def _check_fixed_job(job: Manifest, before: Manifest) -> Iterator[str]:
    yield from _check_fixed(job, before, _FIXED_IN_JOBS, "field is immutable")
    old, new = (dict(each["spec"]["template"]) for each in (before, job))
    for template in (old, new):
        labels = template.get("metadata", {}).get("labels", {})
        template["metadata"] = {**template.get("metadata", {}), "labels": {**labels, CONTROLLER_LABEL: ""}}
    if before["spec"].get("suspend") and "startTime" not in before["status"]:  # its place may still be decided
        for template in (old, new):
            open_fields = ("affinity", "nodeSelector", "tolerations", "schedulingGates")
            template["spec"] = {key: value for key, value in template["spec"].items() if key not in open_fields}
            template["metadata"] = {}
    if old != new:
        yield f"spec.template: Invalid value: {json.dumps(job['spec']['template'])}: field is immutable"


def _check_fixed(new: Manifest, old: Manifest, names: tuple[str, ...], rule: str) -> Iterator[str]:
    for name in names:
        if new["spec"].get(name) != old["spec"].get(name):
            kind = "" if rule.startswith("Forbidden") else f"Invalid value: {json.dumps(new['spec'].get(name))}: "
            yield f"spec.{name}: {kind}{rule}"


def _check_volume(volume: Manifest, before: Manifest | None) -> Iterator[str]:
    spec = volume["spec"]
    for name in ("accessModes", "capacity"):
        if not spec.get(name):
            yield f"spec.{name}: Required value"
    sources = set(spec) & {"csi", "hostPath", "nfs", "local"}
    if not sources:
        yield "spec: Required value: must specify a volume type"
    if before is not None and any(spec.get(name) != before["spec"].get(name) for name in (*sources, "volumeMode")):
        yield "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"


def _check_claim(claim: Manifest, before: Manifest | None) -> Iterator[str]:
    spec = claim["spec"]
    if not spec.get("accessModes"):
        yield "spec.accessModes: Required value: at least 1 access mode is required"
    storage = spec.get("resources", {}).get("requests", {}).get("storage")
    if storage is None:
        yield "spec.resources[storage]: Required value"
        return
    if before is None:
        return
    old = {name: value for name, value in before["spec"].items() if name != "resources"}
    if not old.get("volumeName"):
        old["volumeName"] = spec.get("volumeName")
    if any(spec.get(name) != value for name, value in old.items()):
        yield (
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
            "for bound claims"
        )
    if read_quantity(storage) < read_quantity(before["spec"]["resources"]["requests"]["storage"]):
        yield "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
