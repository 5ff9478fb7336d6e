"""Indexes of a job: which pods count as failed, when they are replaced, and when a job has succeeded."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.defaults import make_name
from cdk_rehearsal.kubernetes.stand_in.base.clock import parse_time
from cdk_rehearsal.kubernetes.stand_in.base.resources import Manifest

TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of pods, which a job takes away once it has counted their end."""
INDEX = "batch.kubernetes.io/job-completion-index"
_FAILURES, _IGNORED = (
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
)
ENDED = ("Succeeded", "Failed")
_BACKOFF_SECONDS, _MOST_BACKOFF_SECONDS = 10, 600
_MOST_PREFIX = 58
"""Most characters of a generated name before its five letters."""

Spec = Mapping[str, Any]


def get_index(pod: Manifest) -> int:
    """Return the index of a pod; -1 without one."""
    return int(pod["metadata"].get("annotations", {}).get(INDEX, -1))


def is_active(pod: Manifest) -> bool:
    """Return whether a pod has neither ended nor been deleted."""
    return pod["status"]["phase"] not in ENDED and "deletionTimestamp" not in pod["metadata"]


def is_terminating(pod: Manifest) -> bool:
    """Return whether a pod has been deleted and has not ended."""
    return pod["status"]["phase"] not in ENDED and "deletionTimestamp" in pod["metadata"]


def is_failed(pod: Manifest, spec: Spec) -> bool:
    """Return whether a pod counts as failed: one that is deleted does before its end where pods are replaced early."""
    if pod["status"]["phase"] == "Failed":
        return True
    return spec["podReplacementPolicy"] != "Failed" and is_terminating(pod)


def match_failure_policy(spec: Spec, pod: Manifest) -> tuple[str, str]:
    """
    Return what the failure policy of a job says of a failed pod.

    Returns:
        Message with which the job fails, empty where it does not, and the action; empty without a rule.
    """
    for number, rule in enumerate(spec.get("podFailurePolicy", {}).get("rules", ())):
        action = rule["action"]
        if "onExitCodes" in rule:
            container = _match_exit_codes(rule["onExitCodes"], pod)
            if container is None:
                continue
            words = f"Container {container['name']} for pod {pod['metadata']['namespace']}/{pod['metadata']['name']} "
            words += f"failed with exit code {container['state']['terminated']['exitCode']}"
        else:
            condition = _match_conditions(rule.get("onPodConditions", ()), pod)
            if condition is None:
                continue
            words = f"Pod {pod['metadata']['namespace']}/{pod['metadata']['name']} has condition {condition}"
        return (f"{words} matching {action} rule at index {number}" if action == "FailJob" else ""), action
    return "", ""


def _match_exit_codes(wanted: Mapping[str, Any], pod: Manifest) -> Mapping[str, Any] | None:
    for container in pod["status"].get("containerStatuses", ()):
        code = container.get("state", {}).get("terminated", {}).get("exitCode", 0)
        is_named = wanted.get("containerName") in (None, container["name"])
        if is_named and code and (code in wanted["values"]) is (wanted["operator"] == "In"):
            return container  # type: ignore[no-any-return]
    return None


def _match_conditions(patterns: Iterable[Mapping[str, str]], pod: Manifest) -> str | None:
    wanted = {(pattern["type"], pattern.get("status", "True")) for pattern in patterns}
    found = (each["type"] for each in pod["status"].get("conditions", ()) if (each["type"], each["status"]) in wanted)
    return next(found, None)


def is_counted(spec: Spec, pod: Manifest) -> bool:
    """Return whether the failure of a pod counts."""
    return match_failure_policy(spec, pod)[1] != "Ignore"


def is_index_failed(pod: Manifest, spec: Spec) -> bool:
    """Return whether the failure of a pod is the last of its index."""
    action = match_failure_policy(spec, pod)[1]
    if action == "Ignore":
        return False
    return action == "FailIndex" or _count(pod, _FAILURES) >= spec["backoffLimitPerIndex"]


def find_delayed(spec: Spec, pods: Sequence[Manifest], ended: set[int]) -> Mapping[int, Manifest]:
    """
    Return the last failed pod of each index that has no other: it stays until its replacement takes over its count.

    Args:
        spec: Specification of the job.
        pods: Pods of the job.
        ended: Indexes that need no pod any more.
    """
    active = {get_index(pod) for pod in pods if is_active(pod)}
    found: dict[int, Manifest] = {}
    for pod in pods:
        index = get_index(pod)
        if index in active | ended or not is_failed(pod, spec) or TRACKING not in pod["metadata"].get("finalizers", ()):
            continue
        last = found.get(index)
        if last is None or _count_all(last) <= _count_all(pod):
            found[index] = pod
    return found


def time_replacement(pod: Manifest) -> float:
    """Return when a failed pod is replaced, in seconds since 1970: each failure of its index doubles the time."""
    seconds: int = min(_MOST_BACKOFF_SECONDS, _BACKOFF_SECONDS * 2 ** _count_all(pod))
    return _get_end(pod) + seconds


def _get_end(pod: Manifest) -> float:
    ends = [
        each["state"]["terminated"]["finishedAt"]
        for each in pod["status"].get("containerStatuses", ())
        if each.get("state", {}).get("terminated", {}).get("finishedAt")
    ]
    metadata = pod["metadata"]
    return parse_time(max(ends) if ends else metadata.get("deletionTimestamp", metadata["creationTimestamp"]))


def _count(pod: Manifest, name: str) -> int:
    return int(pod["metadata"].get("annotations", {}).get(name, 0))


def _count_all(pod: Manifest) -> int:
    return _count(pod, _FAILURES) + _count(pod, _IGNORED)


def make_index_pod(job: Manifest, index: int, last: Manifest | None) -> Manifest:
    """
    Return the pod of an index.

    Args:
        job: The job.
        index: The index.
        last: Failed pod of the index that it replaces; None for the first.
    """
    metadata = job["metadata"]
    template = copy.deepcopy(job["spec"]["template"])
    labels = {**template.get("metadata", {}).get("labels", {}), INDEX: str(index)}
    annotations = {**template.get("metadata", {}).get("annotations", {}), INDEX: str(index)}
    if "backoffLimitPerIndex" in job["spec"]:
        counts = {_FAILURES: 0, _IGNORED: 0}
        if last is not None:
            counts = {name: _count(last, name) for name in counts}
            counts[_FAILURES if is_counted(job["spec"], last) else _IGNORED] += 1
        annotations |= {name: str(count) for name, count in counts.items() if count or name == _FAILURES}
    template["spec"]["hostname"] = f"{metadata['name']}-{index}"
    for container in template["spec"]["containers"]:
        if all(each["name"] != "JOB_COMPLETION_INDEX" for each in container.get("env", ())):
            reference = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}
            variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": reference}}
            container["env"] = [*container.get("env", ()), variable]
    suffix = f"-{index}-"
    prefix = metadata["name"][: _MOST_PREFIX - len(suffix)] + suffix
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "generateName": prefix,
            "name": make_name(prefix),
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "finalizers": [TRACKING],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    }


def has_succeeded(spec: Spec, completed: set[int]) -> str:
    """Return the words of the rule of success that indexes meet; empty for none."""
    for number, rule in enumerate(spec.get("successPolicy", {}).get("rules", ())):
        indexes = read_indexes(rule["succeededIndexes"]) if "succeededIndexes" in rule else None
        found = completed if indexes is None else completed & indexes
        wanted = rule.get("succeededCount", len(indexes or ()))
        if found and len(found) >= wanted:
            return f"Matched rules at index {number}"
    return ""


def read_indexes(text: str) -> set[int]:
    """Return the indexes of a text such as `1,3-5`."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def show_indexes(indexes: Iterable[int]) -> str:
    """Return indexes as a text; three or more in a row are a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)  # noqa: PLR2004
    return ",".join(parts)
