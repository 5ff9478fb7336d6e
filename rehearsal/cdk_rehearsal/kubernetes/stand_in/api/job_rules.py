"""Rules of jobs, in the order of the API server (pkg/apis/batch/validation of Kubernetes)."""

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.defaults import CONTROLLER_LABEL
from cdk_rehearsal.kubernetes.stand_in.api.pod_rules import check_pod
from cdk_rehearsal.kubernetes.stand_in.api.rules import (
    MOST_LABEL,
    check_annotations,
    check_choice,
    check_key,
    check_labels,
    check_least,
    check_most,
    invalid,
    require,
)
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest

_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_FIXED = ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
_OPEN_UNTIL_STARTED = ("nodeSelector", "tolerations", "schedulingGates")
_MOST_PARALLELISM, _MOST_COMPLETIONS_OF_LIMITS = 100_000, 100_000
_MOST_RULES, _MOST_CODES, _MOST_INDEXES = 20, 255, 65_536
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPEN_RESOURCES = (1, 36)
"""Version from which the resources of a suspended job may change (feature gate MutablePodResourcesForSuspendedJobs)."""

Spec = Mapping[str, Any]


def check_job(job: Manifest) -> Iterator[str]:
    """Yield what is wrong with a job."""
    spec, name = job["spec"], job["metadata"]["name"]
    for field in _COUNTS:
        yield from check_least(f"spec.{field}", spec.get(field))
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield require("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    yield from _check_mode(spec, name)
    template = spec["template"]["spec"]
    if "podFailurePolicy" in spec:
        yield from _check_failure_policy(spec, template)
    if "completions" in spec and "successPolicy" in spec:
        yield from _check_success_policy(spec)
    supported = ("Failed",) if "podFailurePolicy" in spec else ("Failed", "TerminatingOrFailed")
    yield from check_choice("spec.podReplacementPolicy", spec["podReplacementPolicy"], supported)
    metadata = spec["template"].get("metadata", {})
    yield from check_labels("spec.template.labels", metadata.get("labels", {}))
    yield from check_annotations("spec.template.annotations", metadata.get("annotations", {}))
    yield from check_pod(template, "spec.template.spec")
    policy, at = template["restartPolicy"], "spec.template.spec.restartPolicy"
    if policy == "Always":
        yield require(at, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield from check_choice(at, policy, ("OnFailure", "Never"))
    elif "podFailurePolicy" in spec and policy != "Never":
        yield invalid(at, policy, 'only "Never" is supported when podFailurePolicy is specified')


def _check_mode(spec: Spec, name: str) -> Iterator[str]:
    mode = spec["completionMode"]
    yield from check_choice("spec.completionMode", mode, ("Indexed", "NonIndexed"))
    if mode == "Indexed":
        yield from _check_indexes(spec, name)
        return
    for field in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if field in spec:
            yield invalid(f"spec.{field}", spec[field], "requires indexed completion mode")


def _check_indexes(spec: Spec, name: str) -> Iterator[str]:
    if "completions" not in spec:
        yield require("spec.completions", "when completion mode is Indexed")
        return
    completions, lost = spec["completions"], spec.get("maxFailedIndexes")
    if spec["parallelism"] > _MOST_PARALLELISM:
        rule = f"must be less than or equal to {_MOST_PARALLELISM} when completion mode is Indexed"
        yield invalid("spec.parallelism", spec["parallelism"], rule)
    if lost is not None and lost > completions:
        yield invalid("spec.maxFailedIndexes", lost, "must be less than or equal to completions")
    if completions > _MOST_COMPLETIONS_OF_LIMITS and "backoffLimitPerIndex" in spec and lost is None:
        rule = f"must be specified when completions is above {_MOST_COMPLETIONS_OF_LIMITS}"
        yield require("spec.maxFailedIndexes", rule)
    host = f"{name}-{completions - 1}"
    if completions > 0 and len(host) > MOST_LABEL:
        rule = f"will not able to create pod with invalid DNS label: {host}: must be no more than {MOST_LABEL} bytes"
        yield invalid("metadata.name", name, rule)


def _check_failure_policy(spec: Spec, template: Spec) -> Iterator[str]:
    rules, at = spec["podFailurePolicy"].get("rules", ()), "spec.podFailurePolicy.rules"
    yield from check_most(at, rules, _MOST_RULES)
    names = {each.get("name") for kind in ("containers", "initContainers") for each in template.get(kind, ())}
    for number, rule in enumerate(rules):
        where = f"{at}[{number}]"
        action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions", ())
        if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
            yield invalid(f"{where}.action", action, "requires the backoffLimitPerIndex to be set")
        yield from check_choice(f"{where}.action", action, _ACTIONS)
        if codes is not None:
            yield from _check_codes(codes, f"{where}.onExitCodes", names)
        yield from check_most(f"{where}.onPodConditions", conditions, _MOST_RULES)
        for place, each in enumerate(conditions):
            path = f"{where}.onPodConditions[{place}]"
            yield from check_key(f"{path}.type", each.get("type", ""))
            yield from check_choice(f"{path}.status", each.get("status"), ("False", "True", "Unknown"))
        if bool(codes) is bool(conditions):
            words = "specifying both OnExitCodes and OnPodConditions is not supported"
            words = words if codes else "specifying one of OnExitCodes and OnPodConditions is required"
            yield f"{where}: Invalid value: {words}"


def _check_codes(codes: Mapping[str, Any], at: str, names: set[Any]) -> Iterator[str]:
    yield from check_choice(f"{at}.operator", codes.get("operator"), ("In", "NotIn"))
    name = codes.get("containerName")
    if name is not None and name not in names:
        rule = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{at}.containerName", name, rule)
    values = codes.get("values") or []
    if not values:
        yield invalid(f"{at}.values", values, "at least one value is required")
    yield from check_most(f"{at}.values", values, _MOST_CODES)
    for number, value in enumerate(values):
        if codes.get("operator") == "In" and value == 0:
            yield invalid(f"{at}.values[{number}]", value, "must not be 0 for the In operator")
        if value in values[:number]:
            yield f"{at}.values[{number}]: Duplicate value: {value}"
    if values != sorted(values):
        yield invalid(f"{at}.values", values, "must be ordered")


def _check_success_policy(spec: Spec) -> Iterator[str]:
    rules, at, completions = spec["successPolicy"].get("rules", ()), "spec.successPolicy.rules", spec["completions"]
    if not rules:
        yield require(at, "at least one rules must be specified when the successPolicy is specified")
    yield from check_most(at, rules, _MOST_RULES)
    for number, rule in enumerate(rules):
        where = f"{at}[{number}]"
        wanted, text = rule.get("succeededCount"), rule.get("succeededIndexes")
        if wanted is None and text is None:
            yield require(where, "at least one of succeededCount or succeededIndexes must be specified")
        total, mistake = _count_indexes(text, completions) if text is not None else (completions, "")
        if text is not None and len(text) > _MOST_INDEXES:
            yield f"{where}.succeededIndexes: Too long: may not be more than {_MOST_INDEXES} bytes"
        if mistake:
            yield invalid(f"{where}.succeededIndexes", text, f"error parsing succeededIndexes: {mistake}")
        yield from check_least(f"{where}.succeededCount", wanted)
        limits = [(completions, "specified completions")]
        limits += [(total, "indexes in the specified succeededIndexes field")] if text is not None else []
        for limit, what in limits:
            if wanted is not None and wanted > limit:
                words = f"must be less than or equal to {limit} (the number of {what})"
                yield invalid(f"{where}.succeededCount", wanted, words)


def _count_indexes(text: str, completions: int) -> tuple[int, str]:
    """Return how many indexes a text names, and what is wrong with it."""
    last, total = -1, 0
    for part in text.split(",") if text else ():
        first, dash, end = part.partition("-")
        for number in (first, end) if dash else (first,):
            if not number.isascii() or not number.isdecimal():
                return 0, f'cannot convert string to integer for index: "{number}"'
            if int(number) >= completions:
                return 0, f'too large index: "{number}"'
        if int(first) <= last or (dash and int(end) <= int(first)):
            return 0, f"non-increasing order, previous: {last}, current: {int(first)}"
        last = int(end) if dash else int(first)
        total += last - int(first) + 1
    return total, ""


def check_fixed_job(job: Manifest, before: Manifest, version: tuple[int, int]) -> Iterator[str]:
    """
    Yield what an update changes that it may not.

    Args:
        job: The job.
        before: The job before.
        version: Minor version of Kubernetes.
    """
    spec, old = job["spec"], before["spec"]
    if spec.get("completions") != old.get("completions") and spec.get("completions") != spec["parallelism"]:
        rule = "can only be modified in tandem with spec.parallelism"
        yield invalid("spec.completions", spec.get("completions"), rule)
    for name in _FIXED:
        if spec.get(name) != old.get(name):
            yield invalid(f"spec.{name}", spec.get(name), "field is immutable")
    new_template, old_template = (_take_fixed(each["template"], before, version) for each in (spec, old))
    if new_template != old_template:
        yield f"spec.template: Invalid value: {json.dumps(spec['template'])}: field is immutable"


def _take_fixed(found: Mapping[str, Any], before: Manifest, version: tuple[int, int]) -> dict[str, Any]:
    """Return a template without what may change in an update of a job."""
    template = copy.deepcopy(dict(found))
    template.setdefault("metadata", {}).setdefault("labels", {})[CONTROLLER_LABEL] = ""
    if not before["spec"].get("suspend"):
        return template
    is_new = version >= _OPEN_RESOURCES and not before["status"].get("active")
    if is_new or "startTime" not in before["status"]:
        _drop_places(template)
    for container in template["spec"].get("containers", ()) if is_new else ():
        container.pop("resources", None)
    return template


def _drop_places(template: dict[str, Any]) -> None:
    """Leave out of a template what may change before its job has started."""
    template["metadata"] = {}
    for name in _OPEN_UNTIL_STARTED:
        template["spec"].pop(name, None)
    affinity = template["spec"].get("affinity", {})
    affinity.pop("nodeAffinity", None)
    if not affinity:
        template["spec"].pop("affinity", None)
