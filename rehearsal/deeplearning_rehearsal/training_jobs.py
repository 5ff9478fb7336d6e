"""The training jobs of a rehearsed stack: created as `deeplearning-cdk submit` does, and looked at from outside."""

import contextlib
import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cdk_rehearsal.errors import PromiseError
from cdk_rehearsal.run.timeline import Span
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_contract.jobs.training_job import get_training
from deeplearning_rehearsal.checks.training import find_submission, list_checkpoints
from deeplearning_rehearsal.platforms.platform import Clients
from deeplearning_rehearsal.platforms.sagemaker import ENDED, list_training_jobs, read_log, start_training_job
from deeplearning_rehearsal.report.paid_seconds import (
    DATA,
    RESTART,
    SOFTWARE,
    STARTING,
    TRAINING,
    UPLOAD,
    PaidNode,
    reckon,
)

if TYPE_CHECKING:  # Reading a case needs no lab.
    from cdk_rehearsal.lab import Lab
    from deeplearning_rehearsal.containers import LabContainers

_CAUSES = {
    "Downloading": DATA,
    "DownloadingTrainingImage": SOFTWARE,
    "Training": TRAINING,
    "Interrupted": RESTART,
    "Starting": STARTING,
    "Stopping": UPLOAD,
    "Uploading": UPLOAD,
}
"""Secondary status -> what the seconds of its instances go into."""


@dataclass
class TrainingJobs:
    """
    Training jobs of one stack.

    Attributes:
        clients: Clients of who submits jobs.
        operator: Clients of the account's owner, for what a submitter may not read.
        refusals: What SageMaker said of jobs that it refused.
    """

    clients: Clients
    operator: Clients
    lab: "Lab"
    containers: "LabContainers"
    make_job: Callable[[SubmissionSettings], JobDefinition]
    interrupt: Callable[[str], bool]
    refusals: list[str] = field(default_factory=list)

    @cached_property
    def submission(self) -> SubmissionSettings:
        """The submission document of the stack."""
        return find_submission(self.clients)

    @cached_property
    def job(self) -> JobDefinition:
        """The job of a case, with its source uploaded."""
        return self.make_job(self.submission)

    def start(self) -> None:
        """Submit the job; a refusal is kept. As for a user, a job of a name that runs is refused before the call."""
        if (running := self.describe()) is not None and running["TrainingJobStatus"] not in ENDED:
            self.refusals.append(f"job {self.job.name} must have ended, {running['TrainingJobName']} runs")
            return
        try:
            start_training_job(self.clients, self.submission, self.job)
        except ClientError as error:
            self.refusals.append(f"{error.response['Error']['Code']}: {error.response['Error']['Message']}")

    def stop(self) -> None:
        """Stop the newest training job."""
        self.clients("sagemaker").stop_training_job(TrainingJobName=self.names()[0])

    def names(self) -> list[str]:
        """Return the names of all training jobs, the newest first."""
        return list_training_jobs(self.clients, self.submission)

    def describe(self, name: str = "") -> dict[str, Any] | None:
        """Return the description of a training job, by default of the newest; None without one."""
        if not (chosen := name or next(iter(self.names()), "")):
            return None
        job: dict[str, Any] = self.clients("sagemaker").describe_training_job(TrainingJobName=chosen)
        return job

    def secondary(self) -> str:
        """Return the secondary status of the newest training job; empty without one."""
        return str((self.describe() or {}).get("SecondaryStatus", ""))

    def has_ended(self) -> bool:
        """Return whether there is no training job that has not ended."""
        job = self.describe()
        return job is None or job["TrainingJobStatus"] in ENDED

    def reckon_paid(self) -> Mapping[str, float]:
        """
        Return cause -> seconds of all instances.

        SageMaker bills them from the start to the end of training, the download of data among it (API reference,
        DescribeTrainingJob, TrainingStartTime).
        """
        nodes, spans = [], []
        for name in self.names():
            job = self.describe(name) or {}
            if "TrainingStartTime" not in job or "TrainingEndTime" not in job:
                continue
            begin, end = job["TrainingStartTime"].timestamp(), job["TrainingEndTime"].timestamp()
            nodes += [PaidNode(begin, end, set_up=begin, joined=begin)] * job["ResourceConfig"]["InstanceCount"]
            for entry in job["SecondaryStatusTransitions"]:
                if (cause := _CAUSES.get(entry["Status"])) is not None:
                    start, stop = entry["StartTime"], entry.get("EndTime", job["TrainingEndTime"])
                    spans.append(Span(cause, start.timestamp(), (stop - start).total_seconds()))
        return reckon(nodes, spans)

    def list_checkpoints(self) -> list[Path]:
        """Return the checkpoints of the job on the shared file system, the newest last."""
        root = self.lab.file_system(get_training(self.submission).shared.file_system_id)
        return list_checkpoints(root, self.job.name)

    def read_output(self) -> str:
        """Return the output of the first container of the newest training job."""
        names = self.names()
        with contextlib.suppress(ClientError):  # No container has written.
            return "\n".join(read_log(self.clients, names[0])) if names else ""
        return ""

    def list_model(self) -> list[str]:
        """Return the names in the model of the newest training job; PromiseError without a model."""
        uri = str((self.describe() or {}).get("ModelArtifacts", {}).get("S3ModelArtifacts", ""))
        if not uri:
            raise PromiseError("the training job must have written a model, it has not")
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        content = self.operator("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            return archive.getnames()
