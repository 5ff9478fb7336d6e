"""
Drives training jobs: takes them through their states, and runs their containers on a host.

SageMaker developer guide, "How Amazon SageMaker AI Provides Training Information", "How Amazon SageMaker AI Runs Your
Training Image" and "How Amazon SageMaker AI Processes Training Output".
"""

import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cdk_rehearsal.embedded_aws.access.gatekeeper import Gatekeeper
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.messaging.event_bus import build_event
from cdk_rehearsal.embedded_aws.sagemaker.host import ContainerHost, RunningContainer, TrainingContainer
from cdk_rehearsal.embedded_aws.sagemaker.job import MOST_REASON, TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.log import TrainingLog
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import INPUT, Interface, TrainingError, TrainingProvisioner
from cdk_rehearsal.place import Place

STOP_SECONDS = 120.0
"""Time between SIGTERM and SIGKILL (API reference, StopTrainingJob)."""
_SERVICE_PRINCIPAL = Principal("service", "", "SageMaker")
_EVENT = "SageMaker Training Job State Change"
_POLL_SECONDS = 0.1
_MODEL, _OUTPUT, _FAILURE = "opt/ml/model", "opt/ml/output/data", "opt/ml/output/failure"
End = Literal["ended", "stopped", "late", "interrupted"]


@dataclass
class RunningJob:
    """The containers of a job that runs, and their interfaces."""

    containers: dict[str, RunningContainer] = field(default_factory=dict)
    interfaces: list[Interface] = field(default_factory=list)


class TrainingDriver:
    """
    Runs training jobs.

    Attributes:
        send: Sends an event to the default event bus, once there is one.
        running: Job name -> its containers, while they are there.
    """

    def __init__(
        self,
        place: Place,
        host: ContainerHost | None,
        provisioner: TrainingProvisioner,
        gatekeeper: Gatekeeper,
        observations: Observations,
    ) -> None:
        self._place, self._host, self.provisioner = place, host, provisioner
        self.gatekeeper, self._observations = gatekeeper, observations
        self.send: Callable[[dict[str, Any]], object] = lambda _: None
        self._jobs: dict[str, TrainingJob] = {}
        self.running: dict[str, RunningJob] = {}
        self._lock = threading.Lock()
        self._is_closing = False

    def jobs(self) -> list[TrainingJob]:
        """Return all jobs."""
        with self._lock:
            return list(self._jobs.values())

    def find(self, name: str) -> TrainingJob | None:
        """Return a job; None without it."""
        with self._lock:
            return self._jobs.get(name)

    def run(self, request: Mapping[str, Any]) -> TrainingJob | None:
        """Begin a job whose request is in order; None when its name is in use."""
        name = str(request["TrainingJobName"])
        job = TrainingJob(request, self.name_arn(name))
        with self._lock:
            if name in self._jobs:
                return None
            self._jobs[name] = job
        self._enter(job, "Starting")
        threading.Thread(target=self._carry_out, args=[job], name=name, daemon=True).start()
        return job

    def name_arn(self, name: str) -> str:
        """Return the ARN of a job, which is in lower case."""
        return self._place.arn("sagemaker", f"training-job/{name.lower()}")

    def interrupt(self, name: str) -> None:
        """Take the spot capacity of a job back."""
        if (job := self.find(name)) is not None:
            job.is_interrupted.set()

    def close(self) -> None:
        """End all activity; containers are left to their host."""
        self._is_closing = True

    def _carry_out(self, job: TrainingJob) -> None:
        give_up = time.monotonic() + float(job.request["StoppingCondition"].get("MaxWaitTimeInSeconds", 1 << 30))
        try:
            while self._run_once(job) == "interrupted":
                if time.monotonic() > give_up:
                    return self._enter(job, "MaxWaitTimeExceeded")
                job.is_interrupted.clear()
                self._enter(job, "Interrupted")
                self._enter(job, "Starting")
        except TrainingError as error:
            job.reason = str(error)[:MOST_REASON]
            self._enter(job, "Failed")
        except Exception as error:  # noqa: BLE001 - a defect of the rehearsal must not pass for a slow job
            job.reason = f"InternalServerError: the rehearsal failed: {type(error).__name__}: {error}"[:MOST_REASON]
            self.gatekeeper.note_failure(_SERVICE_PRINCIPAL, "sagemaker.CreateTrainingJob", job.reason)
            self._enter(job, "Failed")
        return None

    def _run_once(self, job: TrainingJob) -> End:
        """Run the containers of a job to an end; only an interruption leaves it without its last state."""
        if self._host is None:
            raise TrainingError("InternalServerError: the rehearsal of this stack runs no containers")
        host, provisioner, running = self._host, self.provisioner, RunningJob()
        self.running[job.name] = running
        log = TrainingLog(provisioner.client(job, "logs"), job, self._observations)
        try:
            provisioner.require_capacity(job)
            self._enter(job, "Pending")
            provisioner.check_network(job)
            provisioner.require_volume(job)
            count = int(job.request["ResourceConfig"]["InstanceCount"])
            running.interfaces = provisioner.make_interfaces(job, count)
            self._enter(job, "Downloading")
            files = provisioner.download(job)
            self._enter(job, "DownloadingTrainingImage")
            provisioner.require_image(job)
            host.require_image(str(job.request["AlgorithmSpecification"]["TrainingImage"]))
            if job.is_stopped.is_set():
                return self._end(job, {}, "stopped")
            self._start(job, running, files, log)
            self._enter(job, "Training")
            end = self._watch(job, running.containers)
            log.close()
            return end if end == "interrupted" else self._end(job, running.containers, end)
        finally:
            log.close()
            for container in running.containers.values():
                host.remove(container)
            provisioner.remove_interfaces(job, running.interfaces)
            del self.running[job.name]

    def _start(self, job: TrainingJob, running: RunningJob, files: Mapping[str, bytes], log: TrainingLog) -> None:
        assert self._host is not None
        names = [f"algo-{number}" for number in range(1, len(running.interfaces) + 1)]
        sites = dict(zip(names, running.interfaces, strict=True))
        algorithm, mounts = job.request["AlgorithmSpecification"], self.provisioner.list_mounts(job)
        is_reachable = self.provisioner.are_reachable(job)
        for name, site in sites.items():
            order = TrainingContainer(
                host=name,
                address=site.address,
                prefix_length=site.prefix_length,
                hosts={each: other.address for each, other in sites.items()},
                image=str(algorithm["TrainingImage"]),
                command=[*algorithm.get("ContainerEntrypoint", ["train"]), *algorithm.get("ContainerArguments", [])],
                environment=self._describe_environment(job),
                files={**files, **_describe_job(job, name, names)},
                mounts=mounts,
                credentials=lambda: self.provisioner.mint(job),
                is_reachable=is_reachable,
            )
            running.containers[name] = self._host.start(order, log.open(name))

    def _describe_environment(self, job: TrainingJob) -> dict[str, str]:
        assert self._host is not None
        return {
            "HOME": "/root",
            "AWS_REGION": self._place.region,
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": self._host.credentials_path,
            "AWS_ENDPOINT_URL": self._place.endpoint,
            "TRAINING_JOB_NAME": job.name,
            "TRAINING_JOB_ARN": job.arn,
            **job.request.get("Environment", {}),
        }

    def _watch(self, job: TrainingJob, containers: Mapping[str, RunningContainer]) -> End:
        """Wait for the end; the first container that fails ends the others."""
        limit = time.monotonic() + float(job.request["StoppingCondition"].get("MaxRuntimeInSeconds", 86_400))
        while not self._is_closing:
            statuses = [container.wait(0) for container in containers.values()]
            if any(statuses) or None not in statuses:
                job.failed = next((name for name, status in zip(containers, statuses, strict=True) if status), "")
                _stop(containers.values())
                return "ended"
            if job.is_interrupted.is_set() and job.is_spot:
                _stop(containers.values())
                return "interrupted"
            if job.is_stopped.is_set() or time.monotonic() > limit:
                end: End = "stopped" if job.is_stopped.is_set() else "late"
                self._enter(job, "Stopping")
                _stop(containers.values())
                return end
            time.sleep(_POLL_SECONDS)
        return "stopped"

    def _end(self, job: TrainingJob, containers: Mapping[str, RunningContainer], end: End) -> End:
        if end == "ended" and job.failed:
            job.reason = _describe_failure(containers[job.failed])
        if containers:
            self._enter(job, "Uploading")
            self._upload(job, [container.root for container in containers.values()])
        last = {"ended": "Failed" if job.reason else "Completed", "stopped": "Stopped", "late": "MaxRuntimeExceeded"}
        self._enter(job, last[end])
        return end

    def _upload(self, job: TrainingJob, roots: Sequence[Any]) -> None:
        """Upload the model, one archive of the folders of all containers, and what else they left."""
        output = job.request["OutputDataConfig"]
        uri = f"{str(output['S3OutputPath']).rstrip('/')}/{job.name}/output"
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        s3 = self.provisioner.client(job, "s3")
        key = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": output["KmsKeyId"]} if output.get("KmsKeyId") else {}
        for name, folder in (("model.tar.gz", _MODEL), ("output.tar.gz", _OUTPUT)):
            content = _pack([root / folder for root in roots])
            if content is None and name != "model.tar.gz":
                continue
            try:
                s3.put_object(Bucket=bucket, Key=f"{prefix}/{name}", Body=content or _pack([], is_empty=True), **key)
            except Exception as error:
                raise TrainingError(f"ClientError: Artifact upload failed:{error}") from error
        job.model = f"{uri}/model.tar.gz"

    def _enter(self, job: TrainingJob, secondary: str) -> None:
        before = job.status
        job.enter(secondary)
        reason = f": {job.reason}" if job.reason and job.has_ended else ""
        self._observations.tell("scaling", job.name, f"{secondary}{reason}")
        if secondary == "Starting" or job.status != before:
            detail = {key: value for key, value in job.to_api().items() if isinstance(value, (str, int, bool))}
            self.send(build_event(self._place, "aws.sagemaker", _EVENT, detail, [job.arn]))


def _describe_job(job: TrainingJob, name: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files with which SageMaker describes a job to its containers, path -> content."""
    kind = job.request["ResourceConfig"]["InstanceType"]
    hosts = sorted(names)  # As texts: algo-10 comes before algo-2.
    resources = {
        "current_host": name,
        "current_instance_type": kind,
        "current_group_name": "homogeneousCluster",
        "hosts": hosts,
        "instance_groups": [{"instance_group_name": "homogeneousCluster", "instance_type": kind, "hosts": hosts}],
        "network_interface_name": "eth0",
    }
    channels = {
        channel["ChannelName"]: {
            "TrainingInputMode": channel.get("InputMode", "File"),
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
        for channel in job.request.get("InputDataConfig", [])
    }
    documents = {
        "resourceconfig.json": resources,
        "hyperparameters.json": dict(job.request.get("HyperParameters", {})),
        "inputdataconfig.json": channels,
    }
    files = {f"{INPUT}/config/{file}": json.dumps(document).encode() for file, document in documents.items()}
    return {**files, f"/{_MODEL}/": b"", f"/{_OUTPUT}/": b""}


def _stop(containers: Any) -> None:
    """Stop containers at once, each with its own time to end."""
    threads = [threading.Thread(target=container.stop, args=[STOP_SECONDS]) for container in containers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _describe_failure(container: RunningContainer) -> str:
    """
    Return the reason of a failure, by the container that failed first.

    API reference, FailureReason; aws/sagemaker-training-toolkit has the file and the exit code in this form.
    """
    said = _read_failure(container) or "See the job logs for more information"
    return f"AlgorithmError: {said}, exit code: {container.wait(0)}"[:MOST_REASON]


def _read_failure(container: RunningContainer) -> str:
    try:
        return (container.root / _FAILURE).read_text(errors="replace").strip()[:MOST_REASON]
    except OSError:
        return ""


def _pack(folders: Sequence[Any], *, is_empty: bool = False) -> bytes | None:
    """Return an archive of the content of folders, whose names must not clash; None when nothing is in them."""
    paths = {path.name: path for folder in reversed(folders) if folder.is_dir() for path in folder.iterdir()}
    if not paths and not is_empty:
        return None
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, path in sorted(paths.items()):
            archive.add(path, name)
    return buffer.getvalue()
