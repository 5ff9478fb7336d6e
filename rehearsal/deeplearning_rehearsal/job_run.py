"""One run of a stack whose jobs bring their nodes: deploy, look at the containers of a job, stop it, train."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from cdk_rehearsal.errors import PromiseError, RehearsalError
from deeplearning_contract.names import MEMBERSHIP_FILE
from deeplearning_rehearsal.checks.contract_check import check_nodes, read_membership
from deeplearning_rehearsal.checks.failure_alarm import FAILING_JOB
from deeplearning_rehearsal.checks.training import ENDLESS_JOB
from deeplearning_rehearsal.cluster_run import ClusterRun
from deeplearning_rehearsal.platforms.sagemaker import (
    ENDED,
    await_training_job,
    find_logs,
    run_training_job,
    start_training_job,
)
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.training_jobs import TrainingJobs

FIRST = "algo-1"
_POLL_SECONDS = 0.3
_LANE = "training"


@dataclass(frozen=True)
class JobRun(ClusterRun):
    """
    The parts of one rehearsal, with the training jobs of its stack.

    Attributes:
        jobs: The training jobs.
    """

    jobs: TrainingJobs

    def check(self, evidence: Evidence) -> None:
        """Hold each container of a job against the contract, and stop the job."""
        client, jobs, containers = self.jobs.clients, self.jobs, self.jobs.containers
        with self.timeline.phase("form containers"):
            name = start_training_job(client, jobs.submission, ENDLESS_JOB)
            self._await_membership(name)
            transitions = (jobs.describe(name) or {})["SecondaryStatusTransitions"]
            moments = {entry["Status"]: entry["StartTime"] for entry in transitions}
            evidence.calls, evidence.ships_logs = self.aws.calls(), False
            evidence.formation_seconds = (datetime.now(timezone.utc) - moments["Training"]).total_seconds()
        with self.timeline.phase("check"):
            evidence.membership = read_membership(containers, FIRST)
            evidence.nodes = check_nodes(
                containers, evidence.membership, jobs.submission.login_user, self.timeline.report, has_systemd=False
            )
            client("sagemaker").stop_training_job(TrainingJobName=name)
            job = await_training_job(client, name, self.give_up - time.monotonic())
            if job["TrainingJobStatus"] != "Stopped":
                evidence.problems.append(f"training job {name} must be Stopped, it is {job['TrainingJobStatus']}")

    def train(self, evidence: Evidence) -> None:
        """Run the example job; RehearsalError when it failed, or its model lacks the newest checkpoint."""
        jobs = self.jobs
        with self.timeline.phase("train"):
            evidence.training = run_training_job(
                jobs.clients, jobs.submission, jobs.job, self.last_moment - time.monotonic()
            )
            self.timeline.report(_LANE, f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")
            self.check_logs(evidence, "SAGEMAKER", find_logs(self.aws.place.client, jobs.submission))
            names, newest = jobs.list_model(), jobs.list_checkpoints()[-1].name
            if newest not in names:
                evidence.problems.append(f"the model must contain {newest}, got {', '.join(names) or 'nothing'}")
            self.timeline.report(_LANE, f"the model contains {', '.join(names)}")

    def run_failing_job(self) -> None:
        """Run the failing job; PromiseError with its end."""
        jobs, seconds = self.jobs, self.last_moment - time.monotonic()
        run_training_job(jobs.clients, jobs.submission, FAILING_JOB, seconds)

    def reckon_paid(self, evidence: Evidence) -> Mapping[str, float]:
        """Return cause -> seconds of all instances of training jobs."""
        return self.jobs.reckon_paid() if evidence.has_formed else {}

    def find_environment(self) -> EnvironmentReport | None:
        """Return what jobs run in; None when no container began."""
        images = self.jobs.containers.images
        return EnvironmentReport("image", detail=images[0].stand_in.behaviour) if images else None

    def _await_membership(self, name: str) -> None:
        """Wait until each container has the membership; PromiseError when the job ends before."""
        while time.monotonic() < self.last_moment:
            job = self.jobs.describe(name) or {}
            if job["TrainingJobStatus"] in ENDED:
                said = job.get("FailureReason", "no reason given")
                raise PromiseError(f"training job {name} is {job['TrainingJobStatus']} before it formed: {said}")
            hosts = [f"algo-{number}" for number in range(1, 1 + job["ResourceConfig"]["InstanceCount"])]
            find = ["test", "-f", MEMBERSHIP_FILE]
            with contextlib.suppress(RehearsalError):  # A container is not there yet.
                if all(self.jobs.containers.run(host, find).returncode == 0 for host in hosts):
                    return
            time.sleep(_POLL_SECONDS)
        raise PromiseError(f"training job {name} must form, it is not in time")
