"""Jobs on SageMaker, each of them a training job with instances of its own."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from deeplearning_cli.errors import UNAVAILABLE, UnavailableError
from deeplearning_cli.jobs.output import JobOutput, print_progress
from deeplearning_cli.jobs.platform import (
    ENDED_STATES,
    Queued,
    Refused,
    StackJobs,
    Started,
    map_contract_errors,
    print_plan,
    require_first_rank,
)
from deeplearning_cli.jobs.training_log import TrainingLog
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import PLANNED, TrainingSettings, make_secret
from deeplearning_contract.jobs.training_job import (
    get_training,
    make_training_request,
    name_training_job,
    read_training_job,
)

POLL_SECONDS = 5.0
STOP_SECONDS = 300.0
"""Longest wait for the end of a stopped job: 120 s for its containers, and the upload of the model."""
MOST_JOBS = 50
_ENDED = {"Completed": "succeeded", "Failed": "failed", "Stopped": "stopped"}
_ALIVE = {"Training": "running", "Uploading": "running", "Interrupted": "interrupted", "Stopping": "stopping"}
_EXIT_CODE = re.compile(r"exit code: ([0-9]{1,3})")
_QUOTA = "aws service-quotas list-service-quotas --service-code sagemaker --query \"Quotas[?QuotaName=='{name}']\""
_NO_CAPACITY = "CapacityError"


@dataclass(frozen=True)
class SageMakerPlatform(StackJobs):
    """A stack that takes jobs, on SageMaker."""

    @property
    def training(self) -> TrainingSettings:
        """Settings of the training jobs."""
        with map_contract_errors():
            return get_training(self.settings)

    def check(self, job: JobDefinition) -> None:
        """Raise UnavailableError for a job that cannot be a training job."""
        with map_contract_errors():
            self._make_request(job, PLANNED)
        gpus, slots = self.training.gpu_count, job.gpus_per_member
        if slots is not None and slots > max(1, gpus):
            raise UnavailableError(
                f"gpus_per_member must be at most {max(1, gpus)} on {self.training.instance_type}, got {slots}; "
                "leave it out for all GPUs"
            )

    def plan(self, job: JobDefinition, on_line: Callable[[str], None], *, as_json: bool) -> int:
        """Print the ranks of a job and the request that starts it; return 1 while a job of its name runs."""
        hosts = job.members or self.training.members
        slots = job.gpus_per_member or max(1, self.training.gpu_count)
        request = self._make_request(job, PLANNED)
        lines = [
            f"{hosts} x {self.training.instance_type}, at most {request['StoppingCondition']}",
            "request of CreateTrainingJob:",
            *json.dumps(request, indent=2).splitlines(),
        ]
        print_plan(job, hosts, slots, on_line, lines=lines, document={"request": request}, as_json=as_json)
        running = self._find_running(job.name)
        if running is not None:
            print_progress(_describe_running(job.name, running))
        return 0 if running is None else 1

    def start(self, job: JobDefinition, on_line: Callable[[str], None]) -> Queued | Refused:
        """Create the training job of a job, unless one of the same name has not ended."""
        if (running := self._find_running(job.name)) is not None:
            on_line(_describe_running(job.name, running))
            return Refused(UNAVAILABLE)
        request = self._make_request(job, make_secret())
        with self._use_training() as sagemaker:
            try:
                sagemaker.create_training_job(**request)
            except sagemaker.exceptions.ResourceLimitExceeded as error:
                on_line(_describe_quota(str(error), self.training.instance_type))
                return Refused(UNAVAILABLE)
        name = str(request["TrainingJobName"])
        return Queued(f"training job {name} is created", lambda: self._await_start(name, on_line))

    def _await_start(self, name: str, on_line: Callable[[str], None]) -> Started | Refused:
        shown = 0
        while True:
            job = self._describe(name)
            transitions = job.get("SecondaryStatusTransitions", [])
            for entry in transitions[shown:]:
                print_progress(f"{name} {entry['Status']}: {entry.get('StatusMessage', '')}".rstrip(": "))
            shown = len(transitions)
            state = _read_state(job)
            if state in ENDED_STATES and "TrainingStartTime" not in job:
                on_line(_read_cause(job) or f"{name} {state} before its start")
                return Refused(UNAVAILABLE)
            if state in ENDED_STATES or job["SecondaryStatus"] == "Training":
                return Started()
            time.sleep(POLL_SECONDS)

    def follow(
        self, name: str, output: JobOutput, *, rank: str | None = None, lines: int | None = None, to_end: bool = True
    ) -> int:
        """Print the log of the first container of a job's newest training job, in which rank 0 runs."""
        require_first_rank("SageMaker", name, rank)
        job = self._find(name)
        if job is None:
            raise UnavailableError(f"job {name} must exist, got none; see: deeplearning-cdk jobs")
        with self._use_training():
            log = TrainingLog(self.access.clients("logs"), job["TrainingJobName"])
            if not to_end:
                log.print_last(output, lines)
                return 0
            while _read_state(job) not in ENDED_STATES:
                log.print_new(output)
                time.sleep(POLL_SECONDS)
                job = self._describe(job["TrainingJobName"])
            log.print_new(output)
        return 0

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """Stop the newest training job of a job, and wait for its end."""
        job = self._find(name)
        if job is None:
            raise UnavailableError(f"job {name} must exist, got none; see: deeplearning-cdk jobs")
        run = str(job["TrainingJobName"])
        if _read_state(job) in ENDED_STATES:
            on_line(f"{run} has ended: {_read_state(job)}")
            return 0
        if _read_state(job) != "stopping":
            with self._use_training() as sagemaker:
                sagemaker.stop_training_job(TrainingJobName=run)
        on_line(f"{run} is stopping")
        give_up = time.monotonic() + STOP_SECONDS
        while (state := _read_state(self._describe(run))) not in ENDED_STATES:
            if time.monotonic() > give_up:
                on_line(f"{run} is {state} after {STOP_SECONDS:.0f} s; see: deeplearning-cdk jobs")
                return 1
            time.sleep(POLL_SECONDS)
        on_line(f"{run} {state}")
        return 0

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return each job of the newest training jobs, with the state of its newest one."""
        found: dict[str, dict[str, Any]] = {}
        for job in self._list():
            found.setdefault(_read_name(job), job)
        return [_list_job(name, job) for name, job in found.items()]

    def _make_request(self, job: JobDefinition, secret: str) -> dict[str, Any]:
        time_text = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S")
        name = name_training_job(self.training, job.name, time_text)
        return make_training_request(self.settings, job, name, secret=secret)

    def _find_running(self, name: str) -> dict[str, Any] | None:
        job = self._find(name)
        return None if job is None or _read_state(job) in ENDED_STATES else job

    def _find(self, name: str) -> dict[str, Any] | None:
        """Return the newest training job of a job; None without one."""
        stem = name_training_job(self.training, name, "")
        return next((job for job in self._list(stem) if _read_name(job) == name), None)

    def _list(self, stem: str = "") -> Iterator[dict[str, Any]]:
        """Yield the descriptions of the stack's training jobs whose names begin with a stem, the newest first."""
        stem = stem or self.training.name_prefix
        with self._use_training() as sagemaker:
            pages = sagemaker.get_paginator("list_training_jobs").paginate(
                NameContains=stem,
                SortBy="CreationTime",
                SortOrder="Descending",
                PaginationConfig={"MaxItems": MOST_JOBS, "PageSize": MOST_JOBS},
            )
            names = [str(entry["TrainingJobName"]) for page in pages for entry in page["TrainingJobSummaries"]]
        yield from (self._describe(name) for name in names if name.startswith(stem))

    def _describe(self, name: str) -> dict[str, Any]:
        with self._use_training() as sagemaker:
            job: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
            return job

    @contextlib.contextmanager
    def _use_training(self) -> Iterator[Any]:
        """Lend the client of SageMaker; UnavailableError with the rights that may be missing."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

        try:
            yield self.access.clients("sagemaker")
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError(
                f"could not use the training jobs {self.training.name_prefix}*: {error}; the caller needs the rights "
                "to create, list, describe and stop them and to read their logs, which the stack's grant_submit grants"
            ) from error


def _read_state(job: Mapping[str, Any]) -> str:
    status = str(job["TrainingJobStatus"])
    if status == "Stopping":
        return "stopping"
    return _ENDED.get(status) or _ALIVE.get(str(job["SecondaryStatus"]), "queued")


def _read_name(job: Mapping[str, Any]) -> str:
    """Return the name of the job of a training job; the training job's own where another program created it."""
    try:
        return read_training_job(job.get("HyperParameters", {})).name
    except ContractError:
        return str(job["TrainingJobName"])


def _read_cause(job: Mapping[str, Any]) -> str:
    cause = str(job.get("FailureReason", ""))
    if cause.startswith(_NO_CAPACITY):
        kind = job["ResourceConfig"]["InstanceType"]
        return f"{cause}; submit again later, take another instance_type than {kind}, or let jobs wait with max_pending"
    if job["SecondaryStatus"] in ("MaxRuntimeExceeded", "MaxWaitTimeExceeded"):
        return f"{job['SecondaryStatus']}: {job['StoppingCondition']}; submit again to resume"
    return cause


def _read_status(job: Mapping[str, Any]) -> int | None:
    state = _read_state(job)
    if state == "failed":
        found = _EXIT_CODE.search(str(job.get("FailureReason", "")))
        return int(found[1]) if found else 1
    return 0 if state == "succeeded" else None


def _list_job(name: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job with the keys of `deeplearning jobs --json`."""
    try:
        launcher = read_training_job(job.get("HyperParameters", {})).launcher
    except ContractError:
        launcher = ""
    transitions = job.get("SecondaryStatusTransitions") or [{}]
    ended = job.get("TrainingEndTime")
    return {
        "name": name,
        "run": job["TrainingJobName"],
        "state": _read_state(job),
        "status": _read_status(job),
        "launcher": launcher,
        "members": job["ResourceConfig"]["InstanceCount"],
        "started": job["CreationTime"].isoformat(),
        "ended": ended.isoformat() if ended else "",
        "cause": _read_cause(job),
        "resumed_from": "",
        "last_line": _read_cause(job) or transitions[-1].get("StatusMessage", ""),
    }


def _describe_running(name: str, job: Mapping[str, Any]) -> str:
    return (
        f"job {name} must have ended before it starts again, got {job['TrainingJobName']}, which is "
        f"{_read_state(job)}; wait for it, or end it: deeplearning-cdk stop {name}"
    )


def _describe_quota(message: str, instance_type: str) -> str:
    """Return the refusal of a quota, with the command that shows it; SageMaker's message names quota, value and use."""
    found = re.search(r"account-level service limit '([^']+)'", message)
    name = found[1] if found else f"{instance_type} for training job usage"
    return (
        f"{message}; see the quota's code with {_QUOTA.format(name=name)} and raise it with "
        "aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code CODE --desired-value N"
    )
