"""One run of a stack whose jobs bring their nodes: deploy, look at the containers of a job, stop it, train."""

import contextlib
import io
import tarfile
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from cdk_rehearsal.errors import PromiseError, RehearsalError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SUBMISSION_PATH, SubmissionSettings
from deeplearning_contract.jobs.training_job import get_training
from deeplearning_contract.names import JOBS_FOLDER, MEMBERSHIP_FILE
from deeplearning_rehearsal.checks.contract_check import check_nodes, read_roster
from deeplearning_rehearsal.checks.training import upload_example
from deeplearning_rehearsal.cluster_run import ClusterRun
from deeplearning_rehearsal.containers import LabContainers
from deeplearning_rehearsal.platforms.registry import PLATFORMS
from deeplearning_rehearsal.platforms.sagemaker import await_training_job, list_training_jobs, start_training_job
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.report.environment_report import EnvironmentReport, read_environment

FIRST = "algo-1"
_CHECKED_JOB = JobDefinition("contract", ("sleep", "3600"), launcher="tf-ps")
"""A job that runs until it is stopped, so that there is time to look at its containers; its launcher needs nothing."""
_POLL_SECONDS = 0.3
_LANE = "training"


@dataclass(frozen=True)
class JobRun(ClusterRun):
    """
    The parts of one rehearsal, with the host of its containers.

    Attributes:
        containers: The containers of the job that runs.
    """

    containers: LabContainers
    _environments: list[EnvironmentReport] = field(default_factory=list)

    def check(self, evidence: Evidence) -> None:
        """Hold each container of a job against the contract, and stop the job."""
        client, submission = self.aws.place.client, self.find_submission()
        with self.timeline.phase("form containers"):
            name = start_training_job(client, submission, _CHECKED_JOB)
            self._await_membership(name)
            moments = {
                entry["Status"]: entry["StartTime"] for entry in self._describe(name)["SecondaryStatusTransitions"]
            }
            evidence.formation_seconds = (datetime.now(timezone.utc) - moments["Training"]).total_seconds()
        with self.timeline.phase("check"):
            evidence.roster = read_roster(self.containers, FIRST)
            evidence.nodes = check_nodes(
                self.containers, evidence.roster, submission.login_user, self.timeline.tell, has_systemd=False
            )
            self._environments.append(read_environment(self.containers.find(FIRST).root, self.kept.brought))
            client("sagemaker").stop_training_job(TrainingJobName=name)
            job = await_training_job(client, name, self.give_up - time.monotonic())
            if job["TrainingJobStatus"] != "Stopped":
                evidence.problems.append(f"training job {name} must be Stopped, it is {job['TrainingJobStatus']}")

    def train(self, evidence: Evidence) -> None:
        """Run the example job; RehearsalError when it failed, or its model lacks the newest checkpoint."""
        client, submission = self.aws.place.client, self.find_submission()
        platform = PLATFORMS[submission.platform]
        with self.timeline.phase("train"):
            job = upload_example(client, submission, self.find_digits())
            seconds = self.last_moment - time.monotonic()
            evidence.training = platform.train(
                self.containers, FIRST, job, seconds, clients=client, submission=submission
            )
            self.timeline.tell(_LANE, f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")
            self.check_logs(evidence, platform, submission)
            self._check_model(evidence, submission, job)

    def find_submission(self) -> SubmissionSettings:
        """Return the submission document of the stack."""
        found = self.aws.place.client("ssm").get_parameters_by_path(Path=SUBMISSION_PATH, Recursive=True)["Parameters"]
        return SubmissionSettings.from_json(found[0]["Value"])

    def find_environment(self) -> EnvironmentReport | None:
        """Return what jobs run in, as the first container had it; None when none was checked."""
        return next(iter(self._environments), None)

    def _describe(self, name: str) -> dict[str, Any]:
        job: dict[str, Any] = self.aws.place.client("sagemaker").describe_training_job(TrainingJobName=name)
        return job

    def _await_membership(self, name: str) -> None:
        """Wait until each container has the membership; PromiseError when the job ends before."""
        while time.monotonic() < self.last_moment:
            job = self._describe(name)
            if job["TrainingJobStatus"] in ("Failed", "Stopped", "Completed"):
                said = job.get("FailureReason", "no reason given")
                raise PromiseError(f"training job {name} is {job['TrainingJobStatus']} before it formed: {said}")
            hosts = [f"algo-{number}" for number in range(1, 1 + job["ResourceConfig"]["InstanceCount"])]
            with contextlib.suppress(RehearsalError):  # A container is not there yet.
                if all(self.containers.run(host, ["test", "-f", MEMBERSHIP_FILE]).returncode == 0 for host in hosts):
                    return
            time.sleep(_POLL_SECONDS)
        raise PromiseError(f"training job {name} must form, it is not in time")

    def _check_model(self, evidence: Evidence, submission: SubmissionSettings, job: JobDefinition) -> None:
        """Hold the model against the newest checkpoint of the job."""
        client = self.aws.place.client
        (name, *_) = list_training_jobs(client, submission)
        described = self._describe(name)
        bucket, _, key = described["ModelArtifacts"]["S3ModelArtifacts"].removeprefix("s3://").partition("/")
        content = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            names = archive.getnames()
        folder = (
            self.lab.file_system(get_training(submission).shared.file_system_id)
            / JOBS_FOLDER
            / job.name
            / "checkpoints"
        )
        newest = max(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns).name
        if newest not in names:
            evidence.problems.append(f"the model must contain {newest}, got {', '.join(names) or 'nothing'}")
        self.timeline.tell(_LANE, f"the model in s3://{bucket}/{key} contains {', '.join(names)}")
