"""Jobs on EKS, each of them a Job of Kubernetes whose pods are the members."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from deeplearning_cli.errors import UNAVAILABLE, UnavailableError
from deeplearning_cli.jobs.output import JobOutput, print_progress
from deeplearning_cli.jobs.platform import (
    ENDED_STATES,
    JobPlatform,
    Queued,
    Refused,
    StackJobs,
    Started,
    map_contract_errors,
    print_plan,
    require_first_rank,
)
from deeplearning_cli.kubernetes.client import KubernetesApi
from deeplearning_cli.kubernetes.job_state import (
    CAUSE_ANNOTATION,
    describe_job,
    describe_waits,
    is_pulling,
    is_queued,
    is_started,
    read_cause,
    read_name,
    read_state,
)
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import GPU, LABELS, get_kubernetes
from deeplearning_contract.jobs.kubernetes_job import INDEX_LABEL, JOB_LABEL, QUEUE_LABEL, make_job, name_job
from deeplearning_contract.jobs.submission import PLANNED, KubernetesSettings, make_secret

POLL_SECONDS = 5.0
PENDING_SECONDS = 900.0
"""Longest wait for pods that cannot be scheduled, or whose image or volume is absent; a pull does not count."""
STOP_SECONDS = 180.0
"""Longest wait for the end of pods: they have 120 s after SIGTERM."""
LAST_LINES = 40
_STAMP = re.compile(r"([0-9T:.-]{19,30}Z) (.*)")


@dataclass(frozen=True)
class KubernetesPlatform(StackJobs):
    """A stack that takes jobs, on EKS."""

    @property
    def kubernetes(self) -> KubernetesSettings:
        """Settings of the cluster."""
        with map_contract_errors():
            return get_kubernetes(self.settings)

    @cached_property
    def api(self) -> KubernetesApi:
        """API server of the cluster."""
        return KubernetesApi(self.access, self.kubernetes)

    def choose_queue(self, queue: str) -> "KubernetesPlatform":
        """Return the platform with another queue of Kueue for its jobs."""
        return replace(self, settings=replace(self.settings, kubernetes=replace(self.kubernetes, queue=queue)))

    def describe(self, job: JobDefinition) -> str:
        """Return the Job of a job as YAML for `kubectl apply --server-side`."""
        return _write_yaml(self._make(job, make_secret()))

    def check(self, job: JobDefinition) -> None:
        """Raise UnavailableError for a job that cannot be a Job."""
        self._make(job, PLANNED)

    def plan(self, job: JobDefinition, on_line: Callable[[str], None], *, as_json: bool) -> int:
        """Print the ranks of a job and its Job; return 1 if the job would be refused now."""
        made = self._make(job, PLANNED)
        hosts = made["spec"]["completions"]
        limits = made["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits", {})
        slots = int(limits.get(GPU, 1))
        # A Job of the name may exist, so the server is asked about one whose name it chooses.
        name, metadata = made["metadata"]["name"], made["metadata"]
        unnamed = {**{key: metadata[key] for key in metadata if key != "name"}, "generateName": f"{name}-"}
        self.api.create({**made, "metadata": unnamed}, is_dry_run=True)
        lines = ["Job, which the API server accepts:", *_write_yaml(made).splitlines()]
        print_plan(job, hosts, slots, on_line, lines=lines, document={"job": made}, as_json=as_json)
        refusal = self._find_refusal(job)
        if refusal:
            print_progress(refusal)
        return 1 if refusal else 0

    def start(self, job: JobDefinition, on_line: Callable[[str], None]) -> Queued | Refused:
        """Create the Job of a job, in place of one that has ended, unless others have the members that it needs."""
        made = self._make(job, make_secret())
        refusal = self._find_refusal(job)
        if refusal:
            on_line(refusal)
            return Refused(UNAVAILABLE)
        name = str(made["metadata"]["name"])
        if self.api.find("Job", name) is not None:
            self._delete(name)
        self.api.create(made)
        queue = self.kubernetes.queue
        waits = f"Job {name} is created" + (f", and waits in the queue {queue}" if queue else "")
        return Queued(waits, lambda: self._await_start(name, on_line))

    def _find_refusal(self, job: JobDefinition) -> str:
        """Return why a job cannot start now; empty if it can."""
        name = name_job(job.name)
        present = self.api.find("Job", name)
        if present is not None and read_name(present) != job.name:
            return (
                f"name must be that of one job on Kubernetes, got {job.name}, whose Job {name} is that of "
                f"{read_name(present)}; choose another"
            )
        if present is not None and read_state(present) not in ENDED_STATES:
            return (
                f"job {job.name} must have ended before it starts again, got {name}, which is {read_state(present)}; "
                f"wait for it, or end it: deeplearning-cdk stop {job.name}"
            )
        return "" if self.kubernetes.queue else self._find_holders(job)

    def _find_holders(self, job: JobDefinition) -> str:
        """Return which jobs have the members that a job needs; empty if they are free."""
        total = self.kubernetes.members
        held = {
            read_name(each): int(each["spec"]["parallelism"])
            for each in self.api.list_objects("Job", LABELS)
            if read_state(each) not in ENDED_STATES and not is_queued(each)
        }
        if not held or sum(held.values()) + (job.members or total) <= total:
            return ""
        names = ", ".join(f"{name}, which has {count} of {total}" for name, count in held.items())
        return (
            f"job {job.name} must have {job.members or total} free members, got those of {names}; wait for it, end it "
            "with deeplearning-cdk stop, or let jobs wait for each other with --queue"
        )

    def _await_start(self, name: str, on_line: Callable[[str], None]) -> Started | Refused:
        give_up, shown = time.monotonic() + PENDING_SECONDS, ""
        while True:
            job = self._get(name)
            pods = self._list_pods(name)
            started = sum(map(is_started, pods))
            if read_state(job) in ENDED_STATES:
                if started:
                    return Started()
                on_line(read_cause(job) or f"{name} {read_state(job)} before its start")
                return Refused(UNAVAILABLE)
            if started >= job["spec"]["completions"]:
                return Started()
            waits = self._describe_waits(job, pods)
            if is_queued(job) or self._is_pulling(pods):
                give_up = time.monotonic() + PENDING_SECONDS
            if waits and waits != shown:
                print_progress(waits)
                shown = waits
            if time.monotonic() > give_up:
                cause = waits or f"{name} has {started} of {job['spec']['completions']} pods"
                self._suspend(name, cause)
                on_line(f"{cause}; the job is stopped after {PENDING_SECONDS / 60:.0f} minutes")
                return Refused(UNAVAILABLE)
            time.sleep(POLL_SECONDS)

    def follow(
        self, name: str, output: JobOutput, *, rank: str | None = None, lines: int | None = None, to_end: bool = True
    ) -> int:
        """Print the log of the pod of index 0, in which rank 0 runs, and of the pods that replace it."""
        require_first_rank("EKS", name, rank)
        self._find(name)
        log = _PodLog(self.api, output)
        if not to_end:
            first = self._find_first(name)
            if first is None:
                raise UnavailableError(
                    f"the first pod of job {name} must exist, got none; its log is on the shared file system, in "
                    f"jobs/{name}/runs"
                )
            log.print_last(first, lines or LAST_LINES)
            return 0
        while True:
            has_ended = read_state(self._find(name)) in ENDED_STATES
            first = self._find_first(name)
            if first is not None:
                log.print_new(first)
            if has_ended:
                return 0
            time.sleep(POLL_SECONDS)

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """Suspend the Job of a job, and wait for the end of its pods; the Job stays to be seen."""
        job = self._find(name)
        run = str(job["metadata"]["name"])
        if read_state(job) in ENDED_STATES:
            on_line(f"{run} has ended: {read_state(job)}")
            return 0
        self._suspend(run)
        on_line(f"{run} is stopping")
        give_up = time.monotonic() + STOP_SECONDS
        while read_state(job := self._get(run)) not in ENDED_STATES or self._list_pods(run, is_live=True):
            if time.monotonic() > give_up:
                on_line(f"{run} is {read_state(job)} after {STOP_SECONDS:.0f} s; see: deeplearning-cdk jobs")
                return 1
            time.sleep(POLL_SECONDS)
        on_line(f"{run} {read_state(job)}")
        return 0

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the Jobs of the namespace, the newest first."""
        jobs = sorted(
            self.api.list_objects("Job", LABELS), key=lambda job: job["metadata"]["creationTimestamp"], reverse=True
        )
        return [
            describe_job(job, self._describe_waits(job, self._list_pods(job["metadata"]["name"])))
            if read_state(job) in ("queued", "retrying")
            else describe_job(job)
            for job in jobs
        ]

    def _make(self, job: JobDefinition, secret: str) -> dict[str, Any]:
        with map_contract_errors():
            return make_job(self.settings, job, secret=secret)

    def _find(self, name: str) -> dict[str, Any]:
        """Return the Job of a job; UnavailableError without it."""
        job = self.api.find("Job", name_job(name))
        if job is None:
            raise UnavailableError(f"job {name} must exist, got none; see: deeplearning-cdk jobs")
        if read_name(job) != name:
            raise UnavailableError(
                f"job {name} must exist, got none; its Job is that of {read_name(job)}, so write that"
            )
        return job

    def _get(self, name: str) -> dict[str, Any]:
        job = self.api.find("Job", name)
        if job is None:
            raise UnavailableError(f"Job {name} must exist, got none; it was deleted meanwhile")
        return job

    def _list_pods(self, name: str, *, is_live: bool = False) -> list[dict[str, Any]]:
        """Return the pods of a Job, or only those that have not ended."""
        pods = self.api.list_objects("Pod", {JOB_LABEL: name})
        ended = ("Succeeded", "Failed") if is_live else ()
        return [pod for pod in pods if pod.get("status", {}).get("phase") not in ended]

    def _find_first(self, name: str) -> str | None:
        """Return the name of the newest pod of index 0 that has started; None without one."""
        pods = self.api.list_objects("Pod", {JOB_LABEL: name_job(name), INDEX_LABEL: "0"})
        found = sorted(filter(is_started, pods), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return str(found[-1]["metadata"]["name"]) if found else None

    def _describe_waits(self, job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> str:
        if is_queued(job):
            return f"waits in the queue {job['metadata']['labels'][QUEUE_LABEL]}"
        return describe_waits(job, pods, self.api.list_objects("Event", fields={"type": "Warning"}))

    def _is_pulling(self, pods: Sequence[Mapping[str, Any]]) -> bool:
        found = [self.api.list_objects("Event", fields={"reason": name}) for name in ("Pulling", "Pulled")]
        return is_pulling(pods, [event for events in found for event in events])

    def _suspend(self, name: str, cause: str | None = None) -> None:
        """End the pods of a Job; without the label of its queue, Kueue does not start it again."""
        metadata = {"labels": {QUEUE_LABEL: None}, "annotations": {CAUSE_ANNOTATION: cause}}
        self.api.patch("Job", name, {"metadata": metadata, "spec": {"suspend": True}})

    def _delete(self, name: str) -> None:
        self.api.delete("Job", name)
        give_up = time.monotonic() + STOP_SECONDS
        while self.api.find("Job", name) is not None:
            if time.monotonic() > give_up:
                raise UnavailableError(f"Job {name} must be gone after {STOP_SECONDS:.0f} s, got pods; submit again")
            time.sleep(POLL_SECONDS)


def _write_yaml(made: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415 - slow, and only two commands need it

    text: str = yaml.safe_dump(made, sort_keys=False, width=1000)
    return text


def require_kubernetes(platform: JobPlatform, what: str) -> KubernetesPlatform:
    """Return a platform that is on EKS; UnavailableError for another one, which names a command or an option."""
    if not isinstance(platform, KubernetesPlatform):
        raise UnavailableError(f"{what} must be left out on {platform.settings.platform}; it is for stacks on EKS")
    return platform


class _PodLog:
    """Log of the first pods of a job, each line once."""

    def __init__(self, api: KubernetesApi, output: JobOutput) -> None:
        self._api, self._output = api, output
        self._pod, self._last, self._is_new = "", "", True

    def print_last(self, pod: str, lines: int) -> None:
        """Print the last lines of a pod."""
        for line in self._api.read_log(pod, lines=lines):
            self._print(line)

    def print_new(self, pod: str) -> None:
        """Print the lines of a pod since the last call, and new ones until its container or the connection ends."""
        if pod != self._pod:
            self._pod, self._last = pod, ""
        for line in self._api.read_log(pod, is_followed=True):
            self._print(line)

    def _print(self, line: str) -> None:
        """Print a line that is newer than the last; the part of a line behind a carriage return has no time."""
        found = _STAMP.fullmatch(line)
        if found is not None:
            self._is_new = found[1] > self._last
            self._last = max(found[1], self._last)
        if self._is_new:
            self._output.print_line(line if found is None else found[2])
