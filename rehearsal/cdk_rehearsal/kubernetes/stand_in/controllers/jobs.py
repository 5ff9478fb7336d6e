"""
Controller of jobs: pods of each index, their replacement, and how a job ends.

Its states follow the Kubernetes documentation ("Jobs", "Handling retriable and non-retriable pod failures with Pod
failure policy") and what Kubernetes 1.36.2 answered.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write, set_condition
from cdk_rehearsal.kubernetes.stand_in.base.clock import parse_time
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import JOBS, PODS, Manifest, get_key
from cdk_rehearsal.kubernetes.stand_in.controllers.indexes import (
    ENDED,
    TRACKING,
    find_delayed,
    get_index,
    has_succeeded,
    is_active,
    is_counted,
    is_failed,
    is_index_failed,
    is_terminating,
    make_index_pod,
    match_failure_policy,
    read_indexes,
    show_indexes,
    time_replacement,
)

SOURCE = "job-controller"
MANAGER = "kube-controller-manager"
_FAILED, _MET = "FailureTarget", "SuccessCriteriaMet"
_GATHER_SECONDS = 1.0
"""Time for which the controller gathers changes of pods before it looks at their job (syncJobBatchPeriod)."""
_LATER_SECONDS = 10
"""Time after which a pod that could not be created is tried again."""


@dataclass
class _Sync:
    """
    One look at a job.

    Attributes:
        job: The job.
        pods: Its pods.
        status: Status that it gets.
        completed: Indexes that have succeeded.
        lost: Indexes that have failed for good.
        end: Interim condition of a job that ends: type, reason and message.
        delayed: Failed pods by index that wait for their replacement.
        due: When to look again, in seconds since 1970.
    """

    job: Manifest
    pods: Sequence[Manifest]
    status: dict[str, Any]
    completed: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    end: tuple[str, str, str] | None = None
    delayed: Mapping[int, Manifest] = field(default_factory=dict)
    due: list[float] = field(default_factory=list)

    @property
    def spec(self) -> Mapping[str, Any]:
        """Specification of the job."""
        return self.job["spec"]  # type: ignore[no-any-return]

    @property
    def active(self) -> list[Manifest]:
        """Pods that have not ended and are not deleted."""
        return [pod for pod in self.pods if is_active(pod)]


class JobController:
    """
    Makes the pods of jobs, and ends jobs.

    Args:
        objects: Objects of the control plane.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects, self._store = objects, objects.store
        self._not_before: dict[str, float] = {}
        self._gathered: dict[str, tuple[set[str], float]] = {}

    def settle(self) -> Sequence[float]:
        """Look at each job once; return when to look again."""
        due: list[float] = []
        owned: dict[str, list[Manifest]] = {}
        for pod in self._store.list(PODS):
            for owner in pod["metadata"].get("ownerReferences", ()):
                if owner["kind"] == "Job":
                    owned.setdefault(owner["uid"], []).append(pod)
            if not pod["metadata"].get("ownerReferences"):
                self._release(pod)
        jobs = self._store.list(JOBS)
        for job in jobs:
            due += self._sync(job, owned.pop(job["metadata"]["uid"], []))
        for pods in owned.values():
            for pod in pods:
                self._release(pod)
        return due

    def _sync(self, job: Manifest, pods: Sequence[Manifest]) -> Sequence[float]:
        if _has(job["status"], "Complete") or _has(job["status"], "Failed"):
            for pod in pods:
                self._release(pod)
            return self._expire(job)
        if (at := self._gather(job, pods)) > self._store.clock.read():
            return [at]
        sync = _Sync(job, pods, copy.deepcopy(job["status"]))
        self._find_end(sync)
        if sync.end is not None:
            self._delete(sync, sync.active)
        elif "deletionTimestamp" not in job["metadata"]:
            self._manage(sync)
        self._track(sync)
        return sync.due

    def _gather(self, job: Manifest, pods: Sequence[Manifest]) -> float:
        """Return until when a job waits for further ends of its pods, in seconds since 1970."""
        uid, now = job["metadata"]["uid"], self._store.clock.read()
        ended = {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] in ENDED}
        seen, until = self._gathered.get(uid, (set(), 0.0))
        if not until and ended - seen:
            until = now + _GATHER_SECONDS
        self._gathered[uid] = (seen, until) if now < until else (ended, 0.0)
        return until

    def _find_end(self, sync: _Sync) -> None:
        """Find out which indexes have ended, and whether the job ends."""
        spec, status = sync.spec, sync.status
        if not spec["suspend"] and ("startTime" not in status or _has(status, "Suspended")):
            status["startTime"] = self._store.clock.format()  # the deadline of a job that goes on begins anew
        interim = (each for each in status.get("conditions", ()) if each["type"] in (_FAILED, _MET))
        sync.end = next(((each["type"], each["reason"], each["message"]) for each in interim), None)
        failed = [pod for pod in sync.pods if is_failed(pod, spec)]
        messages = (match_failure_policy(spec, pod)[0] for pod in failed)
        if sync.end is None and (message := next(filter(None, messages), "")):
            sync.end = (_FAILED, "PodFailurePolicy", message)
        if sync.end is None and "activeDeadlineSeconds" in spec and not spec["suspend"]:
            sync.due.append(parse_time(status["startTime"]) + spec["activeDeadlineSeconds"])
            if self._store.clock.read() >= sync.due[-1]:
                sync.end = (_FAILED, "DeadlineExceeded", "Job was active longer than specified deadline")
                sync.due.clear()
        sync.completed = read_indexes(status.get("completedIndexes", "")) | {
            get_index(pod) for pod in sync.pods if pod["status"]["phase"] == "Succeeded" and _is_tracked(pod)
        }
        if "backoffLimitPerIndex" in spec:
            self._find_lost_indexes(sync, failed)
        elif sync.end is None and self._count_failed(sync, failed) > spec["backoffLimit"]:
            sync.end = (_FAILED, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        sync.end = sync.end or _find_success(spec, sync.completed)

    def _find_lost_indexes(self, sync: _Sync, failed: Sequence[Manifest]) -> None:
        spec = sync.spec
        lost = {get_index(pod) for pod in failed if _is_tracked(pod) and is_index_failed(pod, spec)}
        sync.lost = read_indexes(sync.status.get("failedIndexes", "")) | lost
        if sync.end is None and len(sync.lost) > spec.get("maxFailedIndexes", spec["completions"]):
            message = "Job has exceeded the specified maximal number of failed indexes"
            sync.end = (_FAILED, "MaxFailedIndexesExceeded", message)
        elif sync.end is None and sync.lost and len(sync.lost | sync.completed) >= spec["completions"]:
            sync.end = (_FAILED, "FailedIndexes", "Job has failed indexes")
        sync.delayed = find_delayed(spec, sync.pods, sync.completed | sync.lost)

    def _count_failed(self, sync: _Sync, failed: Sequence[Manifest]) -> int:
        new = sum(1 for pod in failed if _is_tracked(pod) and is_counted(sync.spec, pod))
        return int(sync.status.get("failed", 0)) + new

    def _manage(self, sync: _Sync) -> None:
        """Make the pods that are missing, or delete those of a suspended job."""
        spec, now = sync.spec, self._store.clock.format()
        if spec["suspend"]:
            for pod in sync.active:
                self._release(pod)
            self._delete(sync, sync.active)
            if set_condition(sync.status, "Suspended", "True", ("JobSuspended", "Job suspended"), now):
                self._store.record_event(sync.job, "Suspended", "Job suspended", source=SOURCE, is_warning=False)
            return
        if _has(sync.status, "Suspended"):
            set_condition(sync.status, "Suspended", "False", ("JobResumed", "Job resumed"), now)
            self._store.record_event(sync.job, "Resumed", "Job resumed", source=SOURCE, is_warning=False)
        terminating = [pod for pod in sync.pods if is_terminating(pod)]
        waits = terminating if spec["podReplacementPolicy"] == "Failed" else []
        wanted = min(spec["parallelism"], spec["completions"] - len(sync.completed))
        surplus = sorted(sync.active, key=get_index)[max(0, wanted) :]
        if surplus:
            for pod in surplus:
                self._release(pod)  # which ends because the job wants fewer, and counts for nothing
            self._delete(sync, surplus)
            return
        taken = {get_index(pod) for pod in (*sync.active, *waits)} | sync.completed | sync.lost
        free = [index for index in range(spec["completions"]) if index not in taken]
        self._create(sync, free[: max(0, wanted - len(waits) - len(sync.active))])

    def _create(self, sync: _Sync, indexes: Sequence[int]) -> None:
        now, uid = self._store.clock.read(), sync.job["metadata"]["uid"]
        for index in indexes:
            last = sync.delayed.get(index)
            at = max(time_replacement(last) if last else 0.0, self._not_before.get(uid, 0.0))
            if at > now:
                sync.due.append(at)
                continue
            manifest = make_index_pod(sync.job, index, last)
            namespace = sync.job["metadata"]["namespace"]
            try:
                pod = self._objects.create(Write(PODS, namespace, manager=MANAGER), manifest)
            except ApiError as error:
                self._not_before[uid] = now + _LATER_SECONDS
                sync.due.append(now + _LATER_SECONDS)
                self._store.record_event(sync.job, "FailedCreate", f"Error creating: {error.message}", source=SOURCE)
                return
            words = f"Created pod: {pod['metadata']['name']}"
            self._store.record_event(sync.job, "SuccessfulCreate", words, source=SOURCE, is_warning=False)

    def _delete(self, sync: _Sync, pods: Sequence[Manifest]) -> None:
        for pod in pods:
            name = pod["metadata"]["name"]
            self._objects.delete(Write(PODS, pod["metadata"]["namespace"], name), {"propagationPolicy": "Background"})
            self._store.record_event(
                sync.job, "SuccessfulDelete", f"Deleted pod: {name}", source=SOURCE, is_warning=False
            )

    def _track(self, sync: _Sync) -> None:
        """Count the pods that have ended, let them go, and write the status."""
        spec, status = sync.spec, sync.status
        is_ending = "deletionTimestamp" in sync.job["metadata"]
        failed = 0
        for pod in sync.pods:
            if not _is_tracked(pod):
                continue
            has_ended = pod["status"]["phase"] == "Succeeded" or is_failed(pod, spec)
            is_delayed = sync.delayed.get(get_index(pod)) is pod and not is_ending and sync.end is None
            if is_delayed or not (has_ended or is_ending or sync.end is not None):
                continue
            is_cut_off = sync.end is not None and sync.end[0] == _FAILED
            if pod["status"]["phase"] != "Succeeded" and (is_failed(pod, spec) or is_cut_off):
                failed += is_counted(spec, pod)
            self._release(pod)
        pods = [found for pod in sync.pods if (found := self._store.find(PODS, get_key(pod)))]
        pods += self._list_new(sync)
        ready = [pod for pod in pods if is_active(pod) and _is_ready(pod)]
        numbers = {
            "active": sum(map(is_active, pods)),
            "succeeded": len(sync.completed),
            "failed": status.get("failed", 0) + failed,
        }
        for name, number in numbers.items():
            status.pop(name, None)
            status |= {name: number} if number else {}
        terminating = sum(map(is_terminating, pods))
        status |= {"ready": len(ready), "terminating": terminating, "uncountedTerminatedPods": {}}
        status |= {"completedIndexes": show_indexes(sync.completed)} if sync.completed else {}
        status |= {"failedIndexes": show_indexes(sync.lost)} if "backoffLimitPerIndex" in spec else {}
        if sync.end is not None:
            self._write_end(sync, can_end=not terminating and not numbers["active"])
        self._store.change(JOBS, get_key(sync.job), lambda job: job.update(status=status))

    def _list_new(self, sync: _Sync) -> list[Manifest]:
        uid, known = sync.job["metadata"]["uid"], {pod["metadata"]["uid"] for pod in sync.pods}
        return [
            pod
            for pod in self._store.list(PODS, sync.job["metadata"]["namespace"])
            if pod["metadata"]["uid"] not in known
            and any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))
        ]

    def _write_end(self, sync: _Sync, *, can_end: bool) -> None:
        assert sync.end is not None
        kind, reason, message = sync.end
        now = self._store.clock.format()
        set_condition(sync.status, kind, "True", (reason, message), now)
        if not can_end:
            return
        last = "Failed" if kind == _FAILED else "Complete"
        set_condition(sync.status, last, "True", (reason, message), now)
        if last == "Complete":
            sync.status["completionTime"] = now
            self._store.record_event(sync.job, "Completed", "Job completed", source=SOURCE, is_warning=False)
        else:
            self._store.record_event(sync.job, reason, message, source=SOURCE)

    def _release(self, pod: Manifest) -> None:
        """Take the finalizer from a pod whose end is counted."""
        if _is_tracked(pod):
            self._store.change(PODS, get_key(pod), lambda each: each["metadata"]["finalizers"].remove(TRACKING))

    def _expire(self, job: Manifest) -> Sequence[float]:
        """Delete a job whose time after its end is over; return when that is."""
        if "ttlSecondsAfterFinished" not in job["spec"] or "deletionTimestamp" in job["metadata"]:
            return []
        ended = next(e for e in job["status"]["conditions"] if e["type"] in ("Complete", "Failed"))
        over = parse_time(ended["lastTransitionTime"]) + job["spec"]["ttlSecondsAfterFinished"]
        if self._store.clock.read() < over:
            return [over]
        namespace, name = get_key(job)
        self._objects.delete(Write(JOBS, namespace, name), {"propagationPolicy": "Foreground"})
        return []


def _find_success(spec: Mapping[str, Any], completed: set[int]) -> tuple[str, str, str] | None:
    if message := has_succeeded(spec, completed):
        return _MET, "SuccessPolicy", message
    if len(completed) >= spec["completions"]:
        return _MET, "CompletionsReached", "Reached expected number of succeeded pods"
    return None


def _has(status: Mapping[str, Any], kind: str) -> bool:
    return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions", ()))


def _is_tracked(pod: Manifest) -> bool:
    return TRACKING in pod["metadata"].get("finalizers", ())


def _is_ready(pod: Manifest) -> bool:
    conditions = pod["status"].get("conditions", ())
    return pod["status"]["phase"] not in ENDED and any(
        each["type"] == "Ready" and each["status"] == "True" for each in conditions
    )
