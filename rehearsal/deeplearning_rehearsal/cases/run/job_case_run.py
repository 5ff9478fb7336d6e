"""One run of a fault case of training jobs: a job runs while faults are injected, and may be submitted again."""

import time
from dataclasses import dataclass, field, replace

from cdk_rehearsal.errors import PromiseError
from deeplearning_rehearsal.cases.format.expectations import CaseObservations
from deeplearning_rehearsal.cases.run.case_run import CaseRun
from deeplearning_rehearsal.cases.run.injector import Injected
from deeplearning_rehearsal.checks.training import LAUNCHER, make_training_report, read_result
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.training_jobs import TrainingJobs

_POLL_SECONDS = 0.3
_FORMED = "formed"
_RESUMES = "resumes from /efs/jobs/"


@dataclass(frozen=True)
class JobCaseRun(CaseRun):
    """
    One rehearsal of a case of training jobs.

    Attributes:
        jobs: The training jobs.
    """

    jobs: TrainingJobs = field(kw_only=True)

    def examine(self, evidence: Evidence) -> None:
        """Submit the job, wait for all injections and for the end of the last job, and read its result."""
        evidence.has_nodes = False
        self.situation.formed.set()
        before = sum(injection.when.kind == _FORMED for injection in self.case.injections)
        while len(self.injector.injected) < before and time.monotonic() < self.give_up:
            time.sleep(_POLL_SECONDS)
        with self.timeline.phase("train"):
            self.jobs.start()
            self.injector.wait(self.last_moment - time.monotonic())
            while not self.jobs.has_ended() and time.monotonic() < self.last_moment:
                time.sleep(_POLL_SECONDS)
        if self.case.expect == "trained":
            evidence.training = make_training_report(LAUNCHER, read_result(self.jobs.read_output()))
            self.timeline.report("training", f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")

    def find_environment(self) -> EnvironmentReport | None:
        """Return nothing: what jobs run in is in their image."""
        return None

    def _look(self, evidence: Evidence, injected: list[Injected]) -> CaseObservations:
        if not evidence.has_formed:
            return super()._look(evidence, injected)
        jobs = [self.jobs.describe(name) or {} for name in self.jobs.names()]
        newest = jobs[0] if jobs else {}
        try:
            model = tuple(self.jobs.list_model())
        except PromiseError:
            model = ()
        return replace(
            super()._look(evidence, injected),
            job_status=str(newest.get("TrainingJobStatus", "")),
            job_secondary=str(newest.get("SecondaryStatus", "")),
            job_reason=" ".join([*self.jobs.refusals, *(str(job.get("FailureReason", "")) for job in jobs)]),
            job_runs=len(jobs),
            job_transitions=tuple(entry["Status"] for entry in newest.get("SecondaryStatusTransitions", ())),
            job_output=self.jobs.read_output(),
            job_model=model,
        )
