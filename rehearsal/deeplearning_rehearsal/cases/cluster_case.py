"""The rehearsal of a case as its function sees it: the moments it waits for, its faults, and what came out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdk_rehearsal.errors import RehearsalError
from deeplearning_contract.names import NodeRole
from deeplearning_rehearsal.cases.case_node import CaseNode
from deeplearning_rehearsal.cases.case_parts import CaseParts, NeverCameError
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.provisioned_data import find_failure, find_incomplete, has_provisioned, read_steps
from deeplearning_rehearsal.report.outside_view import describe_outside

if TYPE_CHECKING:
    from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
    from deeplearning_rehearsal.training_jobs import TrainingJobs

_INTERVAL_SECONDS = 0.5
_STATUS_SECONDS = 120.0
"""Agents look for troubles of their node once a minute, and ship what they say every ten seconds."""


@dataclass(frozen=True, kw_only=True)
class ClusterCase(CaseParts):
    """
    The rehearsal of a case, as `run` of its function.

    The function begins before the stack is created. `stacks` is empty until `finish` returns.
    """

    # --- Nodes and jobs ---------------------------------------------------------------------------------

    @property
    def master(self) -> CaseNode:
        """The master that was launched last."""
        return CaseNode(self, NodeRole.MASTER)

    def worker(self, number: int) -> CaseNode:
        """Return the worker of the `number`-th launch, counted from 1; replacements go on counting."""
        return CaseNode(self, NodeRole.WORKER, number)

    @property
    def sagemaker(self) -> "TrainingJobs":
        """The training jobs of a stack on SageMaker; RehearsalError elsewhere."""
        if self.training_jobs is None:
            raise RehearsalError("the stack must have training jobs, it has none")
        return self.training_jobs

    @property
    def eks(self) -> "SubmittedJobs":
        """The jobs of a stack on EKS; RehearsalError elsewhere."""
        if self.submitted is None:
            raise RehearsalError("the stack must have jobs on EKS, it has none")
        return self.submitted

    # --- Moments ----------------------------------------------------------------------------------------

    def wait_for_state(self, phase: str) -> None:
        """Wait until the state item has a phase."""
        self.wait_for(f"state {phase}", lambda: self.situation.phase() == phase)

    def wait_for_formation(self) -> None:
        """Wait until the stack is complete."""
        self.wait_for("formed", self.situation.formed.is_set)

    def wait_for_generation(self, generation: int) -> None:
        """Wait until the state item has a generation, or a later one."""

        def has_come() -> bool:
            state = self.situation.state()
            return state is not None and state.generation >= generation

        self.wait_for(f"generation {generation}", has_come)

    def wait_for_line(self, text: str) -> None:
        """Wait until the timeline has a text."""
        self.wait_for(f"the line {text!r}", lambda: any(text in event.text for event in self.timeline.events))

    def wait_for_commits(self, count: int, *, ranks: int) -> None:
        """Wait until a world of so many ranks of the elastic job has committed so often."""
        job = self.situation.job
        self.wait_for(
            f"training commit {count} with {ranks} ranks",
            lambda: job.commits(ranks) >= count or self._require(job.result() is None, "the job has ended before"),
        )

    def wait_for_job(self, secondary: str) -> None:
        """Wait until the newest training job on SageMaker has a secondary status."""
        self._awaits_job.set()
        self.wait_for(f"job {secondary}", lambda: self.situation.job_secondary() == secondary)

    def wait_for_checkpoint(self) -> None:
        """Wait until the job on SageMaker or EKS has written a checkpoint."""
        self._awaits_job.set()
        self.wait_for("checkpoint", lambda: self.situation.checkpoints() > 0)

    def wait_for_print(self, text: str) -> None:
        """Wait until a command for jobs on EKS prints a text."""
        self._awaits_job.set()
        self.wait_for(f"submit prints {text}", lambda: self.situation.has_printed(text))

    def wait_for_steps(self, *done: str, failed: str = "") -> None:
        """
        Wait until every node has done steps of what jobs need.

        Args:
            done: Steps, `data:<source>` or `environment`.
            failed: Step that has failed for good on a node. Default: none.
        """
        self.wait_for_formation()
        nodes = [machine.instance_id for machine in self.fleet.machines()]
        self.wait_for(
            f"the steps {', '.join(filter(None, (*done, failed)))}",
            lambda: has_provisioned([read_steps(self.lab, node) for node in nodes], done, failed),
        )

    def _require(self, is_held: bool, trouble: str) -> bool:  # noqa: FBT001 - of one lambda
        if not is_held:
            raise NeverCameError(f"the case waits for {self._moments[-1]}: {trouble}")
        return False

    # --- A second deployment ----------------------------------------------------------------------------

    def deploy_again(self) -> None:
        """Deploy the stack with what the case's second deployment changes, and wait for its end."""
        if self.second is None or self.change_template is None:
            raise RehearsalError("the case must have a second deployment, it has none")
        name = self.second.name
        self.inject("a second deployment begins")
        self.aws.update(self.second, change_template=self.change_template)

        def has_ended() -> bool:
            return not self.aws.wait(0, name).status.endswith("_IN_PROGRESS")

        self.wait_for("the end of the second deployment", has_ended)
        outcome = self.aws.wait(0, name)
        self.record("the second deployment is UPDATE_COMPLETE", outcome.status == "UPDATE_COMPLETE", outcome.reason)

    # --- The end ----------------------------------------------------------------------------------------

    def finish(self) -> Outcome:
        """Let the cluster settle, its nodes be checked and its job end; return what was seen."""
        self._awaits_job.set()
        self._finishing.set()
        self._ended.wait()
        if not self._outcomes:
            raise NeverCameError("the case waits for the end of the rehearsal, which failed")
        return self._outcomes[0]

    def find_incomplete(self, source: str) -> Mapping[str, str]:
        """Return node -> digest of what is there, of the nodes that have a source of data not as S3 has it."""
        return find_incomplete(self.case, self.lab, self.fleet, self.read_settings().login_user, source)

    def find_failure(self, step: str) -> str:
        """Return what a node says of a step of what jobs need that failed for good; empty where none did."""
        return find_failure([read_steps(self.lab, machine.instance_id) for machine in self.fleet.machines()], step)

    def await_status(self, *texts: str) -> str:
        """Return the page of `deeplearning-cdk status` in one line, when it has all texts or after two minutes."""
        give_up = time.monotonic() + _STATUS_SECONDS
        while True:
            page = " ".join(describe_outside(self.aws).split())
            if all(text in page for text in texts) or time.monotonic() > give_up:
                return page
            time.sleep(_INTERVAL_SECONDS)

    # --- For the rehearsal ------------------------------------------------------------------------------

    def carry_out(self) -> str:
        """Carry out the case's function; return why that failed, empty where it did not."""
        try:
            self.case.function(self)
        except Exception as error:  # noqa: BLE001 - whatever it was, the case has not shown what it says
            words = str(error) if isinstance(error, RehearsalError) else f"{type(error).__name__}: {error}"
            return f"{self.injected[-1].what} was injected last; {words}" if self.injected else words
        finally:
            self._awaits_job.set()
            self._finishing.set()
        return ""

    def await_injections(self, seconds: float, *, before_job: bool = False) -> None:
        """Wait until the function waits for the job, or for the end; a time at most."""
        (self._awaits_job if before_job else self._finishing).wait(max(0.0, seconds))

    def stop_waiting(self) -> None:
        """End what the function waits for, and forget what was to happen later."""
        self._ending.set()
        for timer in self._timers:
            timer.cancel()
        self._finishing.wait()

    def end(self, outcome: Outcome | None) -> None:
        """Let `finish` return an outcome; None where there is none."""
        self._outcomes.extend([] if outcome is None else [outcome])
        self._ended.set()
