"""State of a Job, read from its object, its pods and their events; reasons are in the words of Kubernetes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.kubernetes_job import JOB_LABEL, QUEUE_LABEL, read_job

CAUSE_ANNOTATION = "deeplearning/cause"
"""Annotation of a Job that `submit` has ended, with the reason."""
_EXIT_CODE = re.compile(r"failed with exit code ([0-9]{1,3})")
_STARTS = ("ContainerCreating", "PodInitializing")
"""Reasons of a container that waits for volumes or other containers; events have the cause."""


def read_name(job: Mapping[str, Any]) -> str:
    """Return the name of the job of a Job; the Job's own where another program created it."""
    metadata = job["metadata"]
    return str(metadata.get("annotations", {}).get(JOB_LABEL, metadata["name"]))


def read_state(job: Mapping[str, Any]) -> str:
    """Return the state of a Job."""
    status = job.get("status", {})
    conditions = _read_conditions(job)
    if "Complete" in conditions:
        return "succeeded"
    if "Failed" in conditions:
        return "failed"
    if job["spec"].get("suspend"):
        if is_queued(job):
            return "queued"
        return "stopping" if status.get("active") or status.get("terminating") else "stopped"
    if status.get("failed"):
        return "retrying" if status.get("ready", 0) < job["spec"]["completions"] else "running"
    return "running" if status.get("ready") else "queued"


def is_queued(job: Mapping[str, Any]) -> bool:
    """Return whether a Job waits for a queue of Kueue; `stop` takes a Job out of its queue."""
    return bool(job["spec"].get("suspend")) and QUEUE_LABEL in job["metadata"].get("labels", {})


def read_cause(job: Mapping[str, Any]) -> str:
    """Return why a Job has failed or was ended; empty for others."""
    failed = _read_conditions(job).get("Failed")
    if failed is not None:
        return f"{failed.get('reason', '')}: {failed.get('message', '')}".strip(": ")
    return str(job["metadata"].get("annotations", {}).get(CAUSE_ANNOTATION, ""))


def read_status(job: Mapping[str, Any]) -> int | None:
    """Return the exit status of a Job; None before its end, and of a stopped one."""
    state = read_state(job)
    if state == "failed":
        found = _EXIT_CODE.search(read_cause(job))
        return int(found[1]) if found else 1
    return 0 if state == "succeeded" else None


def describe_job(job: Mapping[str, Any], waits: str = "") -> dict[str, Any]:
    """
    Return a Job with the keys of `deeplearning jobs --json`.

    Args:
        job: The Job.
        waits: Why its pods do not run. Default: nothing is known.
    """
    try:
        launcher = read_job(job).launcher
    except ContractError:
        launcher = ""
    conditions, status = _read_conditions(job), job.get("status", {})
    ended = conditions.get("Failed", {}).get("lastTransitionTime") or status.get("completionTime")
    cause = read_cause(job)
    return {
        "name": read_name(job),
        "run": job["metadata"]["name"],
        "state": read_state(job),
        "status": read_status(job),
        "launcher": launcher,
        "members": job["spec"]["completions"],
        "started": job["metadata"]["creationTimestamp"].replace("Z", "+00:00"),
        "ended": (ended or "").replace("Z", "+00:00"),
        "cause": cause,
        "resumed_from": "",
        "last_line": cause or waits,
    }


def is_started(pod: Mapping[str, Any]) -> bool:
    """Return whether the container of a pod runs, or has ended."""
    containers = pod.get("status", {}).get("containerStatuses", [])
    return any(state in each.get("state", {}) for each in containers for state in ("running", "terminated"))


def describe_waits(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> str:
    """
    Return why pods of a Job do not run, in the words of the scheduler, the kubelet or the controller; empty if unknown.

    Args:
        job: The Job.
        pods: Its pods.
        events: Warnings of the namespace; those of other objects are left out.
    """
    waiting = [pod for pod in pods if not is_started(pod)]
    for pod in waiting:
        for container in pod.get("status", {}).get("containerStatuses", []):
            state = container.get("state", {}).get("waiting", {})
            if state.get("reason", _STARTS[0]) not in _STARTS:
                return f"{pod['metadata']['name']}: {state['reason']}: {state.get('message', '')}".rstrip(": ")
    objects = {each["metadata"]["uid"] for each in (*waiting, *([] if pods else [job]))}
    warnings = sorted((each for each in events if each["involvedObject"].get("uid") in objects), key=_read_time)
    if warnings:
        newest = warnings[-1]
        return f"{newest['involvedObject']['name']}: {newest.get('reason', '')}: {newest.get('message', '')}"
    for pod in waiting:
        for condition in pod.get("status", {}).get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{pod['metadata']['name']}: {condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def _read_waiting(pod: Mapping[str, Any]) -> str:
    """Return why the container of a pod waits; that of a start if the kubelet has not said yet."""
    containers = pod.get("status", {}).get("containerStatuses", [])
    reasons = [each.get("state", {}).get("waiting", {}).get("reason", _STARTS[0]) for each in containers]
    return str(next((reason for reason in reasons if reason not in _STARTS), _STARTS[0]))


def is_pulling(pods: Sequence[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> bool:
    """
    Return whether the image of a pod that has not started is being pulled.

    A pull that makes no progress ends by itself, and becomes a warning (containerd, `image_pull_progress_timeout`).

    Args:
        pods: Pods of a Job.
        events: Events of the namespace, of the kubelet's reasons `Pulling` and `Pulled`.
    """
    waiting = {pod["metadata"]["uid"] for pod in pods if not is_started(pod) and _read_waiting(pod) in _STARTS}
    newest: dict[str, str] = {}
    for event in sorted(events, key=_read_time):
        newest[event["involvedObject"].get("uid", "")] = event.get("reason", "")
    return any(newest.get(uid) == "Pulling" for uid in waiting)


def _read_conditions(job: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = job.get("status", {}).get("conditions", [])
    return {each["type"]: each for each in found if each["status"] == "True"}


def _read_time(event: Mapping[str, Any]) -> str:
    """Return the time of an event; the scheduler's have another key than the kubelet's (API reference, Event v1)."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((str(time)[:19] for time in times if time), "")
