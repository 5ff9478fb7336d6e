"""One run of a fault case: what a run does, while faults are injected, and what was seen of it."""

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.run.timeline import Span
from deeplearning_rehearsal.cases.case import Case, Launchers
from deeplearning_rehearsal.cases.case_parts import Injected
from deeplearning_rehearsal.cases.cluster_case import ClusterCase
from deeplearning_rehearsal.cases.node_files import NodeFiles
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.recovery import ElasticJob, Recovery, list_elastic_spans, measure_recovery
from deeplearning_rehearsal.cases.run.synthesis import find_second
from deeplearning_rehearsal.cases.situation import LiveSituation, is_at_rest, is_settled
from deeplearning_rehearsal.checks.results import CaseReport, CountReport
from deeplearning_rehearsal.checks.training import (
    ELASTIC,
    LAUNCHER,
    MINIMUM_ACCURACY,
    make_training_report,
    read_result,
)
from deeplearning_rehearsal.cluster_run import ClusterRun
from deeplearning_rehearsal.launchers.trial_run import try_launchers
from deeplearning_rehearsal.report.assessment import Evidence, bound_calls, count_node_calls
from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
from deeplearning_rehearsal.template import apply_overrides, read_cluster
from deeplearning_rehearsal.training_jobs import TrainingJobs

_INTERVAL_SECONDS = 0.5
_CHECK_SECONDS = 60.0
"""Reserved for the checks of the nodes when the cluster does not settle."""
_JUDGING_SECONDS = 600.0
"""Limit for what a case does after the end of its rehearsal."""


@dataclass(frozen=True)
class CaseRun(ClusterRun):
    """One rehearsal of a case: what any run does, while the function of the case runs in a thread of its own."""

    case: Case
    jobs: TrainingJobs | None = field(default=None, kw_only=True)
    submitted: SubmittedJobs | None = field(default=None, kw_only=True)

    @cached_property
    def job(self) -> ElasticJob:
        """The elastic job, followed from outside."""
        return ElasticJob(
            lambda: {self.lab.file_system(name) for machine in self.fleet.launched() for name in machine.mount_targets}
        )

    @cached_property
    def situation(self) -> LiveSituation:
        """The state that the case waits for."""
        return LiveSituation(self.fleet, self.aws, self.job, self.jobs, self.submitted)

    @cached_property
    def stacks(self) -> dict[str, StackOutcome]:
        """The end of the stack, once it is known."""
        return {}

    @cached_property
    def live(self) -> ClusterCase:
        """The rehearsal as the function of the case sees it."""
        return ClusterCase(
            stacks=self.stacks,
            lab=self.lab,
            fleet=self.fleet,
            aws=self.aws,
            case=self.case,
            timeline=self.timeline,
            situation=self.situation,
            files=NodeFiles(self.lab.disk),
            training_jobs=self.jobs,
            submitted=self.submitted,
            second=self._read_second(),
            change_template=partial(apply_overrides, workers=None, gpus=self.case.gpus_per_node),
        )

    def _read_second(self) -> AssemblyStack | None:
        if self.case.second is None:
            return None
        return read_cluster(find_second(self.options.folder), self.options.stack)

    def gather(self) -> Evidence:
        """Do what any run does while the case injects, and judge it."""
        live, troubles = self.live, []
        thread = threading.Thread(target=lambda: troubles.append(live.carry_out()), name="case", daemon=True)
        thread.start()
        outcome = None
        try:
            evidence = super().gather()
            live.stop_waiting()
            self.stacks[evidence.stack] = evidence.outcome
            outcome = self._look(evidence)
        finally:
            live.stop_waiting()
            live.end(outcome)
            thread.join(_JUDGING_SECONDS)
        evidence.case = self._report(outcome, troubles or [f"it must end in {_JUDGING_SECONDS:g} s"])
        evidence.denials = {name: text for name, text in evidence.denials.items() if name not in self.case.denied}
        return evidence

    def examine(self, evidence: Evidence) -> None:
        """
        Wait for the elastic job and all injections, let the cluster settle, and look at it; raises as
        `ClusterRun.examine`.
        """
        limit = self.give_up - _CHECK_SECONDS
        if self.case.expect == "stopped":
            self.check(evidence)  # Before anything is injected: what ends by itself leaves nothing to look at.
            self.situation.formed.set()
            with self.timeline.phase("stop"):
                self.live.await_injections(limit - time.monotonic())
                evidence.problems += self._await_stop(limit)
            return
        self.situation.formed.set()
        if self.case.is_elastic:
            with self.timeline.phase("train"):
                self._await_job(evidence, self.last_moment - _CHECK_SECONDS)
                limit = max(limit, time.monotonic() + _CHECK_SECONDS)
        with self.timeline.phase("settle"):
            self.live.await_injections(limit - time.monotonic())
            self._settle(self.case.formed_nodes or evidence.requested, limit)
        self.live.files.compare()  # before the checks and the job, which leave files of their own
        self.check(evidence)
        if isinstance(self.case.job, Launchers):
            try_launchers(self, evidence, self.case.job.names)
        elif self.case.expect == "trained" and not self.case.is_elastic:
            self.train(evidence)
        elif self.case.expect == "counted":
            self.count(evidence)
            if self.case.proves_rights:
                self.fail_on_purpose(evidence)

    def begin_jobs(self, evidence: Evidence) -> None:
        """Wait for what is injected before the job of a stack whose jobs bring their nodes."""
        evidence.has_nodes = False
        self.situation.formed.set()
        self.live.await_injections(self.give_up - time.monotonic(), before_job=True)

    def read_training(self, evidence: Evidence, output: str) -> None:
        """Read the result of such a job from its output, where the case expects one."""
        if self.case.expect == "counted":
            evidence.count = CountReport(**read_result(output))
            self.timeline.report("training", f"a job counts {evidence.count.ranks} ranks")
        if self.case.expect == "trained":
            evidence.training = make_training_report(LAUNCHER, read_result(output))
            self.timeline.report("training", f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")

    def list_job_spans(self, evidence: Evidence) -> Sequence[Span]:
        """Return what the job did, the elastic one by its progress."""
        if not self.case.is_elastic:
            return super().list_job_spans(evidence)
        began = time.time() - self.timeline.now()
        formed = self.timeline.at(self.fleet.signalled_at or time.monotonic())
        faults = [item.epoch for item in self.live.injected if item.stops_ranks]
        return list_elastic_spans(self.job.steps(), faults, formed, began)

    def _await_stop(self, limit: float) -> list[str]:
        """Wait until no machine runs and no group asks for any; return what does not end."""
        scaling = self.aws.place.client("autoscaling")
        while True:
            left = [machine.instance_id for machine in self.fleet.machines()]
            groups = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
            left += [group["AutoScalingGroupName"] for group in groups if group["DesiredCapacity"]]
            if not left or time.monotonic() > limit:
                return [f"the cluster must stop by itself, {name} does not" for name in left]
            time.sleep(_INTERVAL_SECONDS)

    def _await_job(self, evidence: Evidence, limit: float) -> None:
        shown = 0
        while True:
            result, steps = self.job.result(), self.job.steps()
            for step in steps[shown:]:
                if step.event != "commit":
                    self.timeline.report("training", f"{step.event} at batch {step.batch} with {step.size} ranks")
            shown = len(steps)
            if result is not None:
                evidence.training = make_training_report(ELASTIC, result)
                return
            if time.monotonic() > limit:
                last = f"the last of {shown} lines of progress is {steps[-1]}" if steps else "it never began"
                evidence.problems.append(f"training must end within {self.case.minutes:g} minutes: {last}")
                return
            time.sleep(_INTERVAL_SECONDS)

    def _settle(self, nodes: int, limit: float) -> None:
        """Wait until the cluster has so many nodes, all have its generation, and nobody does anything any more."""

        def is_done() -> bool:
            return is_at_rest(self.aws.place)

        while not is_settled(self.situation.state(), self.fleet, nodes, is_done) and time.monotonic() < limit:
            time.sleep(_INTERVAL_SECONDS)

    def _report(self, outcome: Outcome, troubles: list[str]) -> CaseReport:
        case, live = self.case, self.live
        self._judge(outcome)
        findings = live.findings.recorded
        problems = [f"{f.expectation} is expected, found: {f.found}" for f in findings if not f.is_held]
        problems += [trouble for trouble in troubles if trouble]
        began = time.time() - self.timeline.now()  # progress is told by the wall clock
        steps = self.job.steps() if case.is_elastic else ()
        return CaseReport(
            name=case.name,
            title=case.title,
            faults=case.faults,
            injections=tuple(self._describe(item) for item in live.injected),
            findings=tuple({"expectation": f.expectation, "held": f.is_held, "found": f.found} for f in findings),
            failure_seconds=_leave_out_infinity(outcome.failure_seconds),
            recovery_seconds=_leave_out_infinity(outcome.recovery_seconds),
            lost_commits=_leave_out_infinity(outcome.lost_commits),
            problems=tuple(problems),
            progress=tuple(
                {"at": round(s.time - began, 2), "event": s.event, "batch": s.batch, "size": s.size} for s in steps
            ),
        )

    def _judge(self, outcome: Outcome) -> None:
        """Add what is expected of any such case: its stack fails, all nodes form, training is accurate."""
        record, expect = self.live.record, self.case.expect
        if expect == "failed":
            record("the stack is ROLLBACK_COMPLETE", outcome.stack == "ROLLBACK_COMPLETE", outcome.stack)
        if (formed := self.case.formed_nodes) is not None:
            record(f"{formed} nodes form", outcome.formed == formed, outcome.formed)
        if expect == "trained":
            is_held = outcome.accuracy >= MINIMUM_ACCURACY
            record(f"the held-out accuracy is at least {MINIMUM_ACCURACY}", is_held, outcome.accuracy)
        if expect == "counted":
            record("a job counts its ranks", outcome.ranks > 0, outcome.ranks)
        for action in self.case.denied:
            record(f"{action} is denied", action in outcome.denials, outcome.denials.get(action, "it was not"))

    def _look(self, evidence: Evidence) -> Outcome:
        hosts = () if evidence.membership is None else evidence.membership.hosts
        seconds = evidence.formation_seconds
        state_reason = "" if evidence.state is None else str(evidence.state.reason)
        return Outcome(
            stack=evidence.outcome.status,
            reason=" ".join(reason for reason in (evidence.outcome.reason, state_reason) if reason),
            requested=evidence.requested,
            formed=len(hosts),
            generation=0 if evidence.membership is None else evidence.membership.generation,
            launches=len(self.fleet.launched()),
            timeline=tuple(event.text for event in self.timeline.events),
            accuracy=0.0 if evidence.training is None else evidence.training.accuracy,
            ranks=0 if evidence.count is None else evidence.count.ranks,
            failure_seconds=self._measure_failure(evidence),
            recoveries=tuple(self._measure_recoveries(self.live.injected)),
            replacements=tuple(name for _, name, _ in hosts if name in self._find_later(evidence)),
            changed_files=self.live.files.changes,
            calls=count_node_calls(evidence.calls),
            call_bound=0 if seconds is None else bound_calls(len(hosts), seconds),
            object_reads=self.aws.calls().by_operation.get("s3.GetObject", 0),
            denials=evidence.denials,
            environment=evidence.environment or EnvironmentReport("absent"),
        )

    def _measure_failure(self, evidence: Evidence) -> float:
        causes = [item.at for item in self.live.injected[:1]]
        causes += [self.fleet.refused_at] if self.fleet.refused_at is not None else []
        failures = [event.at for event in evidence.outcome.events if event.status.endswith("_FAILED")]
        return min(failures) - min(causes) if causes and failures else math.inf

    def _measure_recoveries(self, injected: Iterable[Injected]) -> list[Recovery]:
        steps = self.job.steps() if self.case.is_elastic else ()
        recoveries = [measure_recovery(steps, item.epoch) for item in injected if item.stops_ranks]
        return [recovery for recovery in recoveries if recovery.size_before]

    def _find_later(self, evidence: Evidence) -> set[str]:
        """Find the machines that were launched after the first injection, beyond those that were asked for at first."""
        injected = self.live.injected
        begin = injected[0].at if injected else math.inf
        later = self.fleet.launched()[evidence.requested :]
        return {machine.instance_id for machine in later if self.fleet.booted_at[machine.instance_id] > begin}

    def _describe(self, item: Injected) -> dict[str, object]:
        recoveries = self._measure_recoveries([item])
        return {
            "at": round(self.timeline.at(item.at), 1),
            "when": item.when,
            "what": item.what,
            "instance_id": item.instance_id,
            "recovery_seconds": recoveries[0].seconds if recoveries else None,
            "regained_seconds": recoveries[0].regained_seconds if recoveries else None,
        }


def _leave_out_infinity(figure: float) -> float | None:
    return None if math.isinf(figure) else figure
