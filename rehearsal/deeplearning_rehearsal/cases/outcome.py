"""The outcome of a rehearsed case, as its function reads it after `run.finish()`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deeplearning_rehearsal.cases.recovery import Recovery
from deeplearning_rehearsal.report.environment_report import EnvironmentReport


@dataclass(frozen=True)
class Outcome:
    """
    Observations of a rehearsed case. Nodes are counted with the master, times are in seconds.

    Attributes:
        stack: Status of the stack.
        reason: The reasons of the stack and of the state item.
        requested: Nodes that were asked for.
        formed: Nodes of the last membership.
        launches: Machines launched in all.
        timeline: Texts of the timeline.
        accuracy: Held-out accuracy of the job; 0 where none ended.
        ranks: Ranks of the job that counts them; 0 where none ended.
        failure_seconds: From the cause, a failed launch or the first injection, to the stack's failure; else infinite.
        recoveries: Effect of each injection that the elastic job felt.
        replacements: Members that were launched after the first injection.
        changed_files: Instance id -> files that changed, of nodes that were to stay the same.
        calls: AWS calls of the nodes until they formed; `call_bound` is the limit, 0 if none formed.
        object_reads: Objects read from S3 in all.
        denials: Actions that the deployed policies denied -> what AWS said.
        job_status: Status of the newest training job, or of the Job of the case on EKS; `job_secondary`,
            `job_transitions`, `job_output` and `job_model` (names in it) are of the same.
        job_reason: What SageMaker said of all training jobs, also of those that it refused.
        job_runs: Training jobs in all.
        job_failures: Pods of a job on EKS that have failed at the cost of a retry.
        submit_status: Exit status of `deeplearning-cdk submit`.
        lost_lines: Lines of the log of a job on EKS that `deeplearning-cdk submit` has not shown.
    """

    stack: str = ""
    reason: str = ""
    requested: int = 0
    formed: int = 0
    generation: int = 0
    launches: int = 0
    timeline: tuple[str, ...] = ()
    accuracy: float = 0.0
    ranks: int = 0
    failure_seconds: float = math.inf
    recoveries: tuple[Recovery, ...] = ()
    replacements: tuple[str, ...] = ()
    changed_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: int = 0
    call_bound: int = 0
    object_reads: int = 0
    denials: Mapping[str, str] = field(default_factory=dict)
    environment: EnvironmentReport = field(default_factory=lambda: EnvironmentReport("absent"))
    job_status: str = ""
    job_secondary: str = ""
    job_reason: str = ""
    job_runs: int = 0
    job_transitions: Sequence[str] = ()
    job_output: str = ""
    job_model: Sequence[str] = ()
    job_failures: int | None = None
    submit_status: int | None = None
    lost_lines: int | None = None

    @property
    def recovery_seconds(self) -> float:
        """The longest time from an injection to new progress; infinite when none was felt, or one never came."""
        seconds = [math.inf if each.seconds is None else each.seconds for each in self.recoveries]
        return max(seconds, default=math.inf)

    @property
    def lost_commits(self) -> float:
        """The most commits that one fault cost; infinite when none was felt, or training never went on."""
        return max(
            (math.inf if each.lost_commits is None else each.lost_commits for each in self.recoveries), default=math.inf
        )

    @property
    def has_regained_size(self) -> bool:
        """True if a later world of the elastic job had all ranks again."""
        return any(each.has_regained_size for each in self.recoveries)

    def says(self, text: str) -> str:
        """Return the first line of the timeline that contains a text; empty without one."""
        return next((line for line in self.timeline if text in line), "")

    def prints(self, text: str) -> str:
        """Return the first line of the job's output that contains a text; empty without one."""
        return next((line for line in self.job_output.splitlines() if text in line), "")

    def goes_through(self, *statuses: str) -> bool:
        """Return whether the training job had these secondary statuses in this order, others between them or not."""
        rest = iter(self.job_transitions)
        return all(status in rest for status in statuses)
