"""One run of a fault case of training jobs: a job runs while faults are injected, and may be submitted again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cdk_rehearsal.errors import PromiseError
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.run.case_run import CaseRun
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.training_jobs import TrainingJobs

_POLL_SECONDS = 0.3


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
        self.begin_jobs(evidence)
        with self.timeline.phase("train"):
            self.jobs.start()
            self.live.await_injections(self.last_moment - time.monotonic())
            while not self.jobs.has_ended() and time.monotonic() < self.last_moment:
                time.sleep(_POLL_SECONDS)
        self.read_training(evidence, self.jobs.read_output())

    def reckon_paid(self, _evidence: Evidence) -> Mapping[str, float]:
        """Return cause -> seconds of all instances of training jobs."""
        return self.jobs.reckon_paid() if self.situation.formed.is_set() else {}

    def _look(self, evidence: Evidence) -> Outcome:
        if not evidence.has_formed:
            return super()._look(evidence)
        jobs = [self.jobs.describe(name) or {} for name in self.jobs.names()]
        newest = jobs[0] if jobs else {}
        try:
            model = tuple(self.jobs.list_model())
        except PromiseError:
            model = ()
        return replace(
            super()._look(evidence),
            job_status=str(newest.get("TrainingJobStatus", "")),
            job_secondary=str(newest.get("SecondaryStatus", "")),
            job_reason=" ".join([*self.jobs.refusals, *(str(job.get("FailureReason", "")) for job in jobs)]),
            job_runs=len(jobs),
            job_transitions=tuple(entry["Status"] for entry in newest.get("SecondaryStatusTransitions", ())),
            job_output=self.jobs.read_output(),
            job_model=model,
        )
