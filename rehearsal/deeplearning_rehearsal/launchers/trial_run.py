"""Carries out trials of launchers on a cluster that has formed, as the login user on the master."""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.names import WORKER_GPU_COUNT_VARIABLE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.provision_watch import ProvisionWatch, name_steps
from deeplearning_rehearsal.checks.results import LauncherReport, WayReport
from deeplearning_rehearsal.checks.training import (
    MINIMUM_ACCURACY,
    SHARED_FOLDER,
    copy_examples,
    find_missing_figures,
    last_lines,
    list_examples,
    make_training_report,
    read_result,
)
from deeplearning_rehearsal.cluster_run import ClusterRun, find_master
from deeplearning_rehearsal.launchers.trials import Trial, Way, choose_trials
from deeplearning_rehearsal.report.assessment import Evidence

_LANE = "training"
_PROVISION_SECONDS = 1800.0
_TRIAL_SECONDS = 120.0
_GRACE_SECONDS = 20.0
"""A launcher that is told to end ends its ranks on all hosts first."""


def try_launchers(run: ClusterRun, evidence: Evidence, names: Sequence[str] = ()) -> None:
    """
    Wait for what jobs need, and try launchers; with no names all that need no environment of their own.

    The first that trains counts as the rehearsal's training. Raises RehearsalError if a node lacks what jobs need.
    """
    settings = run.read_settings()
    await_provisioning(run, settings.needs)
    slots = sum(max(1, int(node.contract.get(WORKER_GPU_COUNT_VARIABLE, "0"))) for node in evidence.nodes)
    trials = TrialRun(
        run.lab,
        find_master(run.fleet).instance_id,
        settings.login_user,
        hosts=len(evidence.nodes),
        ranks=slots,
        report=lambda text: run.timeline.report(_LANE, text),
        reports=evidence.launchers,
    )
    with run.timeline.phase("launchers"):
        trials.prepare(run.find_digits())
        for trial in choose_trials(names):
            trials.carry_out(trial)
    name, report = next(iter(evidence.launchers.items()))
    first = report.ways[0]
    if not first.problems:
        evidence.training = make_training_report(name, first.result)


def await_provisioning(run: ClusterRun, needs: JobNeeds) -> None:
    """Wait until every node has its data and its environment; raises PromiseError if one does not get them."""
    with run.timeline.phase("provision"):
        watch = ProvisionWatch(run.lab.read_file, name_steps(needs))
        nodes = [machine.instance_id for machine in run.fleet.machines()]
        watch.wait(nodes, min(run.last_moment, time.monotonic() + _PROVISION_SECONDS))


@dataclass(frozen=True)
class Attempt:
    """
    The outcome of one way: the exit status (None where the job was given up), the job's own result, and its last lines.
    """

    way: Way
    status: int | None
    result: Mapping[str, Any]
    seconds: float
    last_lines: str


def judge_attempt(attempt: Attempt, hosts: int, ranks: int) -> tuple[str, ...]:
    """Return which promises an attempt breaks, given the nodes and the ranks that must have taken part."""
    if attempt.status != 0:
        ended = "was given up" if attempt.status is None else f"ended with status {attempt.status}"
        return (f"it {ended}: {attempt.last_lines}",)
    if attempt.way.kind == "look":
        return ()
    result = attempt.result
    if missing := find_missing_figures(result):
        return (f"its result must have {', '.join(missing)}, it wrote: {attempt.last_lines}",)
    problems = []
    if result["accuracy"] < MINIMUM_ACCURACY:
        problems.append(f"held-out accuracy must be at least {MINIMUM_ACCURACY}, got {result['accuracy']}")
    if result["ranks"] != ranks:
        problems.append(f"it must have {ranks} ranks, got {result['ranks']}")
    if len(set(result["hosts"])) != hosts:
        problems.append(f"it must run on {hosts} hosts, got {sorted(set(result['hosts']))}")
    return tuple(problems)


@dataclass
class TrialRun:
    """
    Carries out trials on a master, whose hostfile offers so many ranks on so many hosts; `report` takes lines of
    progress.
    """

    nodes: Nodes
    master: str
    login_user: str
    hosts: int
    ranks: int
    report: Callable[[str], None]
    reports: dict[str, LauncherReport] = field(default_factory=dict)

    def prepare(self, digits: Path) -> None:
        """Copy the examples and their digits to the shared file system; raises PromiseError if it fails."""
        copy_examples(self.nodes, self.master, self.login_user, list_examples(), digits)

    def carry_out(self, trial: Trial) -> None:
        """Try one launcher all its ways, and add it to the reports."""
        ways = []
        for way in trial.ways:
            self.report(f"{trial.launcher} ({way.kind}) starts")
            attempt = self.attempt(way)
            problems = judge_attempt(attempt, self.hosts, self.ranks)
            ways.append(
                WayReport(
                    way.kind, way.command, attempt.status, round(attempt.seconds, 1), dict(attempt.result), problems
                )
            )
            self.report(f"{trial.launcher} ({way.kind}) {'; '.join(problems) or 'trained as promised'}")
        self.reports[trial.launcher] = LauncherReport(tuple(ways), all(not way.problems for way in ways))

    def attempt(self, way: Way) -> Attempt:
        """Start a job one way, wait for its end, and read its own result."""
        begin = time.monotonic()
        # The node's own timeout ends all that the command has started here; one from outside would leave it running.
        ended = f"timeout --kill-after={_GRACE_SECONDS:g} {_TRIAL_SECONDS:g} bash -c {shlex.quote(way.command)}"
        answer = self.nodes.run(
            self.master,
            ["bash", "-c", f'cd "{SHARED_FOLDER}" && {ended}'],
            user=self.login_user,
            login_shell=True,
            timeout=_TRIAL_SECONDS + 2 * _GRACE_SECONDS,
        )
        seconds = time.monotonic() - begin
        result: dict[str, Any] = {}
        if answer.returncode == 0:
            with suppress(PromiseError):  # that there is none is judged
                result = read_result(answer.stdout)
        status = None if seconds >= _TRIAL_SECONDS else answer.returncode
        return Attempt(way, status, result, seconds, last_lines(answer.stdout + answer.stderr))
