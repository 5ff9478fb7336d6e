"""
Drives training jobs: takes them through their states, and runs their containers in the lab.

Sources: SageMaker API reference, DescribeTrainingJob and StopTrainingJob; developer guide, "Managed Spot Training".
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdk_rehearsal.embedded_aws.base.cloud_options import ScalingPace
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.base.scaling_group import now
from cdk_rehearsal.embedded_aws.sagemaker.containers import (
    ContainerHost,
    ContainerOrder,
    Mount,
    MountError,
    RunningContainer,
)
from cdk_rehearsal.embedded_aws.sagemaker.events import TrainingEvents
from cdk_rehearsal.embedded_aws.sagemaker.inputs import (
    FAILURE,
    FOLDERS,
    check_channels,
    describe_job,
    download,
    list_variables,
)
from cdk_rehearsal.embedded_aws.sagemaker.instances import InstanceLedger
from cdk_rehearsal.embedded_aws.sagemaker.job import ENDED, Secondary, TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.outputs import ContainerLog, MetricReader, upload_output
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import KIND, JobError, Provisioner
from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError, check_request
from cdk_rehearsal.place import Credentials, Place

_STOP_SECONDS = 120.0
"""Time between SIGTERM and SIGKILL (SageMaker API reference, StopTrainingJob)."""
_DAY = 86_400
_POLL_SECONDS = 0.1
_BEFORE_UPLOAD = ("Pending", "Downloading", "DownloadingTrainingImage", "Training", "Interrupted", "Starting")
End = Literal["ended", "stopped", "late", "expired", "interrupted"]
_FINAL: Mapping[End, Secondary] = {
    "ended": "Completed",
    "stopped": "Stopped",
    "late": "MaxRuntimeExceeded",
    "expired": "MaxWaitTimeExceeded",
}
_NO_POOL = ("CapacityError", "InternalServerError")
"""Beginnings of the reasons of failures after which instances are not kept."""


class _StopError(Exception):
    """The job ends before it trains."""

    def __init__(self, end: End) -> None:
        super().__init__(end)
        self.end = end


@dataclass
class _Run:
    """Containers of a job, from one start to the next interruption; `failed` has index and status of the first."""

    interfaces: Mapping[str, tuple[str, str]]
    containers: list[RunningContainer] = field(default_factory=list)
    logs: list[ContainerLog] = field(default_factory=list)
    failed: tuple[int, int] | None = None


class TrainingDriver:
    """Runs training jobs; `minute_seconds` is the length of a minute of a stop and of a warm pool, in seconds."""

    def __init__(
        self,
        *,
        place: Place,
        host: ContainerHost | None,
        provisioner: Provisioner,
        principals: PrincipalRegistry,
        observations: Observations,
        pace: ScalingPace,
        ledger: InstanceLedger,
        minute_seconds: float = 60.0,
    ) -> None:
        self._place, self._host, self._provisioner = place, host, provisioner
        self._principals, self._pace, self.ledger = principals, pace, ledger
        self._stop_seconds = _STOP_SECONDS * minute_seconds / 60
        self.events = TrainingEvents(place, observations)
        self.jobs: dict[str, TrainingJob] = {}
        self._runs: dict[str, _Run] = {}
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()

    def create(self, request: Mapping[str, Any]) -> TrainingJob:
        """Begin a job; raise RequestError for a request that SageMaker or the rehearsal refuses."""
        check_request(request)
        if self._host is None:
            raise RequestError("the rehearsal has no containers here")
        job = TrainingJob(request, self.name_arn(str(request["TrainingJobName"])))
        if any(each.arn == job.arn for each in self.jobs.values()):  # aws/amazon-sagemaker-examples#3108
            raise RequestError(
                "Training job names must be unique within an AWS account and region, and a training job with this name "
                f"already exists ({job.arn})",
                "ResourceInUse",
            )
        self._provisioner.check_account(job)
        check_channels(self._place.client_as("s3", self._mint(job)), job, self._place.region)
        self.ledger.check_quota(job, self.jobs.values())
        self.jobs[job.name] = job
        self._enter(job, "Starting")
        thread = threading.Thread(target=self._carry_out, args=[job], name=job.name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def stop(self, job: TrainingJob) -> None:
        """Begin to stop a job; RequestError for one that does not run."""
        with job.lock:
            if job.status != "InProgress":  # awslabs/benchmark-ai#928
                raise RequestError(f"The request was rejected because the training job is in status {job.status}.")
            job.stop.set()
            self._enter(job, "Stopping")

    def delete(self, job: TrainingJob) -> None:
        """Delete a job that has ended and keeps no instances (SageMaker API reference, DeleteTrainingJob)."""
        is_kept = job.pool is not None and job.pool.status == "Available"
        if job.status not in ENDED or is_kept:
            said = "retains an Available warm pool" if is_kept else f"is in status {job.status}"
            raise RequestError(f"training job {job.name} must have ended to be deleted, it {said}", "ResourceInUse")
        del self.jobs[job.name]

    def interrupt(self, name: str) -> bool:
        """Take back the spot capacity of a job; return whether it has any that trains."""
        job = self.jobs[name]
        is_training = job.is_on_spot and job.secondary == "Training"
        if is_training:
            job.interruption.set()
        return is_training

    def kill_container(self, name: str, number: int) -> bool:
        """End the container `algo-<number>` of a job; return whether it had it."""
        run = self._runs.get(name)
        if run is None or number > len(run.containers):
            return False
        run.containers[number - 1].kill()
        return True

    def name_arn(self, name: str) -> str:
        """Return the ARN of a job, which is in lower case."""
        return self._place.arn("sagemaker", f"training-job/{name.lower()}")

    def find(self, arn: str) -> TrainingJob | None:
        """Return a job by its ARN; None where there is no such job."""
        return next((job for job in list(self.jobs.values()) if job.arn == arn), None)

    def find_tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a job by its ARN; none where there is no such job."""
        job = self.find(arn)
        return {} if job is None else job.tags

    def close(self) -> None:
        """End all jobs and their containers."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self.ledger.close()
        self.events.close()

    def _carry_out(self, job: TrainingJob) -> None:
        final: Secondary = "Failed"
        reason = ""
        try:
            self._pause(job, self._pace.reaction)
            self._provisioner.check_rights(job)
            while (end := self._attempt(job)) == "interrupted":
                job.interruption.clear()
                self.ledger.release(job, is_healthy=False)
                self._enter(job, "Interrupted")
                self._enter(job, "Starting")
                self._pause(job, self._pace.reaction)
            final = _FINAL[end]
        except _StopError as stop:
            final = _FINAL[stop.end]
        except JobError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a defect of the rehearsal must not pass for a slow job
            reason = f"InternalServerError: the rehearsal failed: {type(error).__name__}: {error}"
        self.ledger.release(job, is_healthy=not reason.startswith(_NO_POOL) and not self._closing.is_set())
        self._enter(job, "Failed" if reason else final, reason)

    def _attempt(self, job: TrainingJob) -> End:
        """Provision a job, run it, and keep its output; JobError where it fails."""
        self._take_instances(job)
        self._enter(job, "Downloading")
        credentials = self._mint(job)
        self._provisioner.check_s3_route(job, "Data download")
        files = download(self._place.client_as("s3", credentials), job)
        self._enter(job, "DownloadingTrainingImage")
        self._provisioner.check_image(job)
        mounts = self._provisioner.list_mounts(job)
        names = [f"algo-{number}" for number in range(1, job.count + 1)]
        run = _Run(self._provisioner.make_interfaces(job, names))
        try:
            self._start(job, run, credentials, files, mounts)
            self._enter(job, "Training")
            self._runs[job.name] = run
            end = self._watch(job, run)
            if end != "interrupted":
                self._conclude(job, run, credentials)
            return end
        finally:
            self._runs.pop(job.name, None)
            self._remove(job, run)

    def _take_instances(self, job: TrainingJob) -> None:
        """Wait for instances: on spot for as long as the user waits, else AWS gives up."""
        self._enter(job, "Pending")
        self._pause(job, self._pace.launch)
        while not self.ledger.take(job):
            self._pause(job, self._pace.failure)
            if not job.is_on_spot:  # comic/grand-challenge.org#2631
                raise JobError(
                    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different "
                    "ML instance type."
                )
            if self._is_expired(job):
                self._enter(job, "Stopping")
                raise _StopError("expired")

    def _start(
        self,
        job: TrainingJob,
        run: _Run,
        credentials: Credentials,
        files: Mapping[str, bytes],
        mounts: Sequence[Mount],
    ) -> None:
        assert self._host is not None  # without one, no job begins
        algorithm = job.request["AlgorithmSpecification"]
        hosts = {name: address for name, (_, address) in run.interfaces.items()}
        if not self._provisioner.admits_members(job):
            self._host.separate(list(hosts.values()))
        for name, address in hosts.items():
            log = ContainerLog(self._place, job, name, credentials)
            order = ContainerOrder(
                job=job.name,
                name=name,
                image=str(algorithm["TrainingImage"]),
                address=address,
                hosts=hosts,
                files={**files, **describe_job(job, name, list(hosts))},
                folders=FOLDERS,
                mounts=mounts,
                command=[*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])],
                environment=list_variables(job, self._place, self._mint(job)),
            )
            try:
                run.containers.append(self._host.start(order, log.take))
            except MountError as error:
                raise JobError(f"ClientError: Unable to mount file system: {error}") from error
            run.logs.append(log)

    def _watch(self, job: TrainingJob, run: _Run) -> End:
        """Wait for the end of the containers; the first one that fails ends the others."""
        metrics = MetricReader(self._place, job, self._provisioner)
        end: End | None = None
        while end is None:
            time.sleep(_POLL_SECONDS)
            statuses = [container.wait(0) for container in run.containers]
            _flush(run, metrics)
            failed = [(index, status) for index, status in enumerate(statuses) if status]
            if failed:
                run.failed = failed[0]
            end = "ended" if failed or None not in statuses else self._find_end(job)
        if end == "interrupted":
            for container in run.containers:
                container.kill()
        else:
            self._stop_containers(run, metrics)
        _flush(run, metrics)
        return end

    def _find_end(self, job: TrainingJob) -> End | None:
        """Return why a job ends that still trains; None while it goes on."""
        if self._closing.is_set():
            raise JobError("InternalServerError: the rehearsal ends")
        if job.stop.is_set():
            return "stopped"
        if job.interruption.is_set():
            return "interrupted"
        limits = job.request["StoppingCondition"]
        end: End | None = "expired" if self._is_expired(job) else None
        if job.measure_training() > int(limits.get("MaxRuntimeInSeconds", _DAY)):
            end = "late"
        if end is not None:
            self._enter(job, "Stopping")
        return end

    def _stop_containers(self, run: _Run, metrics: MetricReader) -> None:
        """Send SIGTERM to the containers that still run, and take their output until they have ended."""
        running = [container for container in run.containers if container.wait(0) is None]
        threads = [threading.Thread(target=each.stop, args=[self._stop_seconds], daemon=True) for each in running]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(_POLL_SECONDS)
            _flush(run, metrics)

    def _conclude(self, job: TrainingJob, run: _Run, credentials: Credentials) -> None:
        """Upload the output; raise JobError for a job that failed."""
        reason = _word_failure(run)
        self._enter(job, "Uploading")
        try:
            self._provisioner.check_s3_route(job, "Artifact upload")
            upload_output(self._place, job, credentials, run.containers)
        except JobError as error:
            reason = reason or str(error)
        if reason:
            raise JobError(reason)

    def _remove(self, job: TrainingJob, run: _Run) -> None:
        assert self._host is not None  # without one, no job begins
        for container in run.containers:
            self._host.remove(container)
        self._provisioner.remove_interfaces(job, run.interfaces)

    def _enter(self, job: TrainingJob, secondary: Secondary, reason: str = "") -> None:
        with job.lock:
            if job.stop.is_set() and secondary in _BEFORE_UPLOAD:
                raise _StopError("stopped")
            job.enter(secondary, reason)
            self.events.report(job)

    def _pause(self, job: TrainingJob, seconds: float) -> None:
        if job.stop.wait(seconds):
            raise _StopError("stopped")
        if self._closing.is_set():
            raise JobError("InternalServerError: the rehearsal ends")

    def _is_expired(self, job: TrainingJob) -> bool:
        wait = job.request["StoppingCondition"].get("MaxWaitTimeInSeconds")
        return wait is not None and (now() - job.created).total_seconds() > int(wait)

    def _mint(self, job: TrainingJob) -> Credentials:
        subnet = str(job.vpc["Subnets"][0])
        return self._principals.mint(self._place, role_arn=job.role, session="SageMaker", kind=KIND, subnet=subnet)


def _flush(run: _Run, metrics: MetricReader) -> None:
    for log in run.logs:
        metrics.read(log.flush())


def _word_failure(run: _Run) -> str:
    """Return the reason of a job whose container failed, with what that wrote about it; empty for another one."""
    if run.failed is None:
        return ""
    index, status = run.failed
    file = run.containers[index].root / FAILURE.lstrip("/")
    said = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    ending = f", exit code: {status}"
    return f"AlgorithmError: {said}"[: 1024 - len(ending)] + ending
