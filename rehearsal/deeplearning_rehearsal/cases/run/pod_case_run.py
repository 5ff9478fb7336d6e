"""One run of a fault case on EKS: the installed commands submit a job while faults are injected."""

import time
from dataclasses import dataclass, field, replace

from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.run.case_run import CaseRun
from deeplearning_rehearsal.kubernetes_jobs import name_node
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.submitted_jobs import SubmittedJobs

_POLL_SECONDS = 0.3
_LAST_INJECTION_SECONDS = 5.0
"""After the end of `submit`; an injection that waits for the job then waits for ever."""


@dataclass(frozen=True)
class PodCaseRun(CaseRun):
    """
    One rehearsal of a case on EKS.

    Attributes:
        submitted: The jobs.
        statuses: Exit status of `submit`, when it has ended.
    """

    submitted: SubmittedJobs = field(kw_only=True)
    statuses: list[int] = field(default_factory=list, kw_only=True)

    def examine(self, evidence: Evidence) -> None:
        """Prepare the cluster, submit the job, wait for all injections and the end of the command."""
        submitted = self.submitted
        if self.case.cloud.token_seconds is not None:
            self.aws.limit_tokens(self.case.cloud.token_seconds)
        self.begin_jobs(evidence)
        try:
            with self.timeline.phase("prepare cluster"):
                submitted.prepare()
            with self.timeline.phase("train"):
                command = submitted.submit()
                while not command.has_ended() and time.monotonic() < self.last_moment:
                    time.sleep(_POLL_SECONDS)
                self.statuses.append(command.wait(0.0))
                self.live.await_injections(_LAST_INJECTION_SECONDS)
            if left := submitted.jobs.pods.await_end(self.give_up):
                evidence.problems.append(f"no pod must run after the end of the job, {', '.join(left)} does")
        finally:
            submitted.close()
        self.read_training(evidence, submitted.read_output())

    def name_lane(self, instance_id: str) -> str:
        """Return the track of a node of Kubernetes."""
        return name_node(self.fleet.launched(), instance_id)

    def _look(self, evidence: Evidence) -> Outcome:
        if not evidence.has_formed:
            return super()._look(evidence)
        submitted = self.submitted
        return replace(
            super()._look(evidence),
            job_status=submitted.find_status(),
            job_runs=len(submitted.list_jobs()),
            job_failures=submitted.count_failures(),
            job_output=submitted.read_output(),
            submit_status=self.statuses[-1] if self.statuses else None,
            lost_lines=submitted.count_lost_lines(),
        )
