"""Carries the trials of launchers out on a formed cluster, as the login user on the master."""

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import PromiseError
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import (
    SHARED_FOLDER,
    copy_examples,
    last_lines,
    list_examples,
    read_result,
)
from deeplearning_rehearsal.launchers.trial import Attempt, Trial, Way, judge_attempt
from deeplearning_rehearsal.report.parts import LauncherReport, WayReport

_TRIAL_SECONDS = 120.0
_GRACE_SECONDS = 20.0
"""A launcher that is told to end ends its ranks on all hosts first."""


@dataclass
class TrialRun:
    """
    What trials are carried out with.

    Attributes:
        nodes: The lab.
        master: Instance id of the master.
        login_user: As whom jobs are started.
        hosts: Nodes of the cluster.
        ranks: Ranks that its hostfile offers.
        tell: Told what happens.
        reports: The launchers that were tried.
    """

    nodes: Nodes
    master: str
    login_user: str
    hosts: int
    ranks: int
    tell: Callable[[str], None]
    reports: dict[str, LauncherReport] = field(default_factory=dict)

    def prepare(self, digits: Path) -> None:
        """
        Copy the examples, and the digits that they train on, to the shared file system.

        Raises:
            PromiseError: One could not be copied.
        """
        copy_examples(self.nodes, self.master, self.login_user, list_examples(), digits)

    def carry_out(self, trial: Trial) -> None:
        """Try one launcher all its ways, and add it to the reports."""
        ways = []
        for way in trial.ways:
            self.tell(f"{trial.launcher} ({way.kind}) starts")
            attempt = self.attempt(way)
            problems = judge_attempt(attempt, self.hosts, self.ranks)
            ways.append(
                WayReport(
                    way.kind, way.command, attempt.status, round(attempt.seconds, 1), dict(attempt.result), problems
                )
            )
            self.tell(f"{trial.launcher} ({way.kind}) {'; '.join(problems) or 'trained as promised'}")
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
