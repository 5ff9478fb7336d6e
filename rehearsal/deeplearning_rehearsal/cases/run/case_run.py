"""One run of a fault case: what a run does, while faults are injected, and what was seen of it."""

import math
import time
from dataclasses import dataclass, field
from functools import cached_property

from deeplearning_rehearsal.cases.format.actions import ACTIONS, Actions
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.expectations import CaseObservations, NodeObservations, check_expectations
from deeplearning_rehearsal.cases.node_files import NodeFiles
from deeplearning_rehearsal.cases.recovery import ElasticJob, Recovery, measure_recovery
from deeplearning_rehearsal.cases.run.injector import Injected, Injector
from deeplearning_rehearsal.cases.run.situation import LiveSituation, is_at_rest, is_settled
from deeplearning_rehearsal.cases.verdict.observations import await_needs, await_status, look_at_needs, run_commands
from deeplearning_rehearsal.checks.results import CaseReport
from deeplearning_rehearsal.checks.training import ELASTIC, LAUNCHER, make_training_report, read_result
from deeplearning_rehearsal.cluster_run import ClusterRun, find_master
from deeplearning_rehearsal.launchers.trial_run import try_launchers
from deeplearning_rehearsal.report.assessment import Evidence, bound_calls, count_node_calls
from deeplearning_rehearsal.report.outside_view import describe_outside
from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
from deeplearning_rehearsal.training_jobs import TrainingJobs

_INTERVAL_SECONDS = 0.5
_FORMED = "formed"
_LAST_INJECTION_SECONDS = 20.0
"""After the end of training; an injection that waits for more progress then waits for ever."""
_CHECK_SECONDS = 60.0
"""Reserved for the checks of the nodes when the cluster does not settle."""


@dataclass(frozen=True)
class CaseRun(ClusterRun):
    """
    One rehearsal of a case, with what was seen of needs, commands of the master and pages of `deeplearning-cdk status`.
    """

    case: Case
    needs: list[NodeObservations] = field(default_factory=list)
    commands: dict[str, str] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
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
        """The state that triggers read."""
        return LiveSituation(self.fleet, self.aws, self.job, self.jobs, self.submitted)

    @cached_property
    def files(self) -> NodeFiles:
        """The files of nodes that are to stay the same."""
        return NodeFiles(self.lab.disk)

    @cached_property
    def injector(self) -> Injector:
        """Injects what the case says."""
        return Injector(self.case.injections, self.situation, self.actions.act)

    @cached_property
    def actions(self) -> Actions:
        """Carries out injections."""
        return Actions(self.lab, self.fleet, self.aws, self.timeline, self.files, self.jobs, self.submitted)

    def gather(self) -> Evidence:
        """Do what any run does while faults are injected, and judge the case."""
        try:
            with self.injector:
                evidence = super().gather()
        finally:
            self.actions.close()
        evidence.case = self._report(evidence)
        expected = self.case.seen.denied
        evidence.denials = {action: text for action, text in evidence.denials.items() if action not in expected}
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
                self.injector.wait(limit - time.monotonic())
                evidence.problems += self._await_stop(limit)
            return
        self.situation.formed.set()
        if self.case.is_elastic:
            with self.timeline.phase("train"):
                self._await_job(evidence, self.last_moment - _CHECK_SECONDS)
                limit = max(limit, time.monotonic() + _CHECK_SECONDS)
        with self.timeline.phase("settle"):
            left = limit - time.monotonic()
            self.injector.wait(min(left, _LAST_INJECTION_SECONDS) if self.case.is_elastic else left)
            self._settle(self.case.seen.formed or evidence.requested, limit)
        if self.case.watches_needs:
            self._await_needs(limit)
        self.files.compare()  # before the checks and the job, which leave files of their own
        self.check(evidence)
        if self.case.job == "launchers":
            try_launchers(self, evidence, self.case.launchers)
        elif self.case.expect == "trained" and not self.case.is_elastic:
            self.train(evidence)
        self._run_commands()
        if texts := self.case.seen.status_says:
            self.pages.append(await_status(lambda: describe_outside(self.aws), texts))

    def begin_jobs(self, evidence: Evidence) -> None:
        """Wait for what is injected before the job of a stack whose jobs bring their nodes."""
        evidence.has_nodes = False
        self.situation.formed.set()
        before = sum(injection.when.kind == _FORMED for injection in self.case.injections)
        while len(self.injector.injected) < before and time.monotonic() < self.give_up:
            time.sleep(_INTERVAL_SECONDS)

    def read_training(self, evidence: Evidence, output: str) -> None:
        """Read the result of such a job from its output, where the case expects one."""
        if self.case.expect == "trained":
            evidence.training = make_training_report(LAUNCHER, read_result(output))
            self.timeline.report("training", f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")

    def _run_commands(self) -> None:
        if lines := self.case.seen.commands:
            master, user = find_master(self.fleet).instance_id, self.read_settings().login_user
            with self.timeline.phase("commands"):
                self.commands.update(run_commands(self.lab, master, user, lines))

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

    def _await_needs(self, limit: float) -> None:
        nodes = [machine.instance_id for machine in self.fleet.machines()]
        with self.timeline.phase("provision"):
            await_needs(self.case, self.lab, nodes, limit)
            self.needs.append(look_at_needs(self.case, self.lab, nodes, self.read_settings().login_user))

    def _settle(self, nodes: int, limit: float) -> None:
        """Wait until the cluster has so many nodes, all have its generation, and nobody does anything any more."""
        while not is_settled(self.situation.state(), self.fleet, nodes, self._is_done) and time.monotonic() < limit:
            time.sleep(_INTERVAL_SECONDS)

    def _is_done(self) -> bool:
        """Return whether AWS has nothing to do any more, and what the case waits for has been seen."""
        seen, state = self.case.seen, self.situation.state()
        texts = [event.text for event in self.timeline.events]
        return (
            state is not None
            and state.generation >= (seen.generation_at_least or 0)
            and all(any(text in line for line in texts) for text in seen.timeline_contains)
            and is_at_rest(self.aws.place)
        )

    def _report(self, evidence: Evidence) -> CaseReport:
        case, injected = self.case, self.injector.injected
        observations = self._look(evidence, injected)
        findings = check_expectations(case.seen, observations)
        problems = [f"{f.expectation} is expected, found: {f.found}" for f in findings if not f.is_held]
        problems += [f"{item.injection} was injected, but {item.problem}" for item in injected if item.problem]
        problems += [f"{item} was never injected: {item.when.text!r} never came" for item in self.injector.missing]
        began = time.time() - self.timeline.now()  # progress is told by the wall clock
        steps = self.job.steps() if case.is_elastic else ()
        return CaseReport(
            name=case.name,
            title=case.title,
            faults=case.faults,
            injections=tuple(self._describe(item) for item in injected),
            findings=tuple({"expectation": f.expectation, "held": f.is_held, "found": f.found} for f in findings),
            failure_seconds=observations.failure_seconds,
            recovery_seconds=observations.recovery_seconds,
            lost_commits=observations.lost_commits,
            problems=tuple(problems),
            progress=tuple(
                {"at": round(s.time - began, 2), "event": s.event, "batch": s.batch, "size": s.size} for s in steps
            ),
        )

    def _look(self, evidence: Evidence, injected: list[Injected]) -> CaseObservations:
        hosts = () if evidence.membership is None else evidence.membership.hosts
        seconds = evidence.formation_seconds
        state_reason = "" if evidence.state is None else str(evidence.state.reason)
        return CaseObservations(
            stack=evidence.outcome.status,
            reason=" ".join(reason for reason in (evidence.outcome.reason, state_reason) if reason),
            requested=evidence.requested,
            formed=len(hosts),
            generation=0 if evidence.membership is None else evidence.membership.generation,
            launches=len(self.fleet.launched()),
            timeline=tuple(event.text for event in self.timeline.events),
            accuracy=None if evidence.training is None else evidence.training.accuracy,
            failure_seconds=self._measure_failure(evidence, injected),
            recoveries=tuple(self._measure_recoveries(injected)),
            replacements=tuple(name for _, name, _ in hosts if name in self._find_later(evidence, injected)),
            is_elastic=self.case.is_elastic,
            changed_files=self.files.changes,
            calls=count_node_calls(evidence.calls),
            call_bound=None if seconds is None else bound_calls(len(hosts), seconds),
            object_reads=self.aws.calls().by_operation.get("s3.GetObject", 0),
            needs=self.needs[-1] if self.needs else NodeObservations(),
            denials=evidence.denials,
            environment=evidence.environment,
            status=self.pages[-1] if self.pages else "",
            commands=self.commands,
        )

    def _measure_failure(self, evidence: Evidence, injected: list[Injected]) -> float | None:
        causes = [item.at for item in injected[:1]]
        causes += [self.fleet.refused_at] if self.fleet.refused_at is not None else []
        failures = [event.at for event in evidence.outcome.events if event.status.endswith("_FAILED")]
        return min(failures) - min(causes) if causes and failures else None

    def _measure_recoveries(self, injected: list[Injected]) -> list[Recovery]:
        steps = self.job.steps() if self.case.is_elastic else ()
        felt = [item for item in injected if ACTIONS[item.injection.do].stops_ranks]
        recoveries = [measure_recovery(steps, item.epoch) for item in felt]
        return [recovery for recovery in recoveries if recovery.size_before]

    def _find_later(self, evidence: Evidence, injected: list[Injected]) -> set[str]:
        """Find the machines that were launched after the first injection, beyond those that were asked for at first."""
        begin = injected[0].at if injected else math.inf
        later = self.fleet.launched()[evidence.requested :]
        return {machine.instance_id for machine in later if self.fleet.booted_at[machine.instance_id] > begin}

    def _describe(self, item: Injected) -> dict[str, object]:
        recoveries = self._measure_recoveries([item])
        return {
            "at": round(self.timeline.at(item.at), 1),
            "when": item.injection.when.text,
            "what": str(item.injection),
            "instance_id": item.instance_id,
            "problem": item.problem,
            "recovery_seconds": recoveries[0].seconds if recoveries else None,
        }
