"""Carries the trials of launchers out on a formed cluster, as the login user on the master."""

import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import PromiseError
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import (
    PROGRAM,
    SHARED_FOLDER,
    copy_examples,
    last_lines,
    list_examples,
    read_result,
)
from deeplearning_rehearsal.launchers.efficiency import (
    FIRST_EPOCHS,
    GOAL,
    JOB_ARGUMENTS,
    PAIRS,
    SHORTEST_SECONDS,
    Pair,
    count_epochs,
    find_medians,
    order_ways,
)
from deeplearning_rehearsal.launchers.trial import Attempt, Trial, Way, judge_attempt
from deeplearning_rehearsal.launchers.trials import BARE_HOROVODRUN, run_command
from deeplearning_rehearsal.report.launcher_report import EfficiencyReport, LauncherReport, WayReport

_TRIAL_SECONDS = 120.0
_GRACE_SECONDS = 20.0
"""A launcher that is told to end ends its ranks on all hosts first."""

_LENGTHENINGS = 3
_THROUGHPUT = "samples_per_second"
_EPOCH_SAMPLES = "trained_on"
_CPU_SECONDS = "cpu_seconds"


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

    def measure_efficiency(self) -> EfficiencyReport:
        """
        Train the same job through `deeplearning run` and through bare horovodrun, in pairs.

        Raises:
            PromiseError: A job failed, or did not say how fast it was.
        """
        epochs = self._find_epochs()
        pairs = []
        for number, order in enumerate(order_ways(PAIRS), start=1):
            attempts = {
                kind: self._measure(kind, f"efficiency-{number}-{kind}", f"--epochs {epochs}") for kind in order
            }
            run, bare = attempts["run"], attempts["bare"]
            pair = Pair(
                order[0],
                *(attempt.result[_THROUGHPUT] for attempt in (run, bare)),
                *(attempt.seconds for attempt in (run, bare)),
                *(attempt.result[_CPU_SECONDS] for attempt in (run, bare)),
            )
            self.tell(f"pair {number} of {PAIRS}, {order[0]} first: efficiency {pair.efficiency:.3f}")
            pairs.append(pair)
        median, cpu_median = find_medians(pairs)
        return EfficiencyReport(
            job=f"{PROGRAM} {JOB_ARGUMENTS} with {self.ranks} ranks and {epochs} epochs",
            pairs=tuple(
                {
                    **asdict(pair),
                    "efficiency": round(pair.efficiency, 4),
                    "cpu_efficiency": round(pair.cpu_efficiency, 4),
                    "wall_ratio": round(pair.wall_ratio, 4),
                }
                for pair in pairs
            ),
            median=round(median, 4),
            cpu_median=round(cpu_median, 4),
            goal=GOAL,
            held=median >= GOAL,
        )

    def _find_epochs(self) -> int:
        """Lengthen a job until it trains long enough: a short one is slower than the same job when it is warm."""
        epochs = FIRST_EPOCHS
        for number in range(_LENGTHENINGS):
            job = self._measure("run", f"efficiency-trial-{number}", f"--epochs {epochs}")
            if job.result["seconds"] >= SHORTEST_SECONDS:
                break
            epochs = count_epochs(job.result[_THROUGHPUT], job.result[_EPOCH_SAMPLES])
        return epochs

    def _measure(self, kind: str, name: str, arguments: str) -> Attempt:
        program = f'{PROGRAM} {JOB_ARGUMENTS} --out "$EFS_MOUNT/{name}" {arguments}'.rstrip()
        command = run_command("horovod", program, name=name) if kind == "run" else f"{BARE_HOROVODRUN} {program}"
        attempt = self.attempt(Way("run" if kind == "run" else "seed", command))
        if problems := judge_attempt(attempt, self.hosts, self.ranks):
            raise PromiseError(f"{name}: {'; '.join(problems)}")
        if missing := [key for key in (_THROUGHPUT, _EPOCH_SAMPLES, _CPU_SECONDS) if not attempt.result.get(key)]:
            raise PromiseError(f"{name}: its result must have {', '.join(missing)}")
        return attempt
