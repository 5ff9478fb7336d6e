"""
Supervision of one run: starts the processes of its plan, leaves none behind, and reports the first failure.

A process on the master is a child of this process, and so is the `ssh` of a process on another host. No child shares
the terminal: an interrupt reaches only this process, which ends the others in order.
"""

import contextlib
import os
import re
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.job import JOB_VARIABLE, RANK_VARIABLE
from deeplearning_jobs.plan.launch_plan import LaunchPlan, Process
from deeplearning_jobs.runs.job_folder import Run
from deeplearning_jobs.runs.log_follower import LogFollower, read_last_lines
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.signals import StopRequest

if TYPE_CHECKING:
    import subprocess

POLL_SECONDS = 0.1
LEAVE_SECONDS = 3.0
"""Time for a child to end after the process that it waits for; then it is ended itself."""
END_SECONDS = 10.0
"""Time for the job to succeed after one of its servers failed."""
MOST_UNBEGUN = 6
"""Connections to one host that are not established yet; sshd refuses some beyond ten (MaxStartups)."""
SHOWN_LINES = 20
LONGEST_LINE = 400
READ_LINES = 2000
"""Lines to read of a log; the report of the first failure is near the end."""
LOST = 255
CANNOT_START = 127
TIMED_OUT = 124
"""Exit status of a job at its time limit, as of timeout(1)."""
BEGINS, ENDED = "begins on", "ended with status"
REMEDIES = {
    r"Tensor is required to be contiguous": (
        "Horovod takes no tensors in another memory format, such as a model in channels_last: keep the parameters "
        "contiguous and convert only the input, or use DistributedDataParallel and --launcher torchrun"
    ),
    r"Tensor type torch\.\S+ is not supported": (
        "Horovod reduces float16, float32, float64, int32 and int64: for bfloat16 keep the parameters in float32 and "
        "use autocast, or use float16, or DistributedDataParallel and --launcher torchrun"
    ),
}
"""Refusals of Horovod 0.28.1 (horovod/torch/mpi_ops.py, mpi_ops_v2.cc), and what the user can do."""


class Shells(Protocol):
    """Access to the hosts."""

    def command(self, host: str, shell_text: str) -> list[str]:
        """Return the command line that runs a text in the shell of a host."""


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run; `cause` is empty for a success, `failed` is the process that failed first."""

    state: Literal["succeeded", "failed", "stopped"]
    status: int
    cause: str = ""
    failed: Process | None = None

    @classmethod
    def stopped_by(cls, number: int) -> "RunOutcome":
        """Return the outcome of a run that a signal stops."""
        return cls("stopped", 128 + number, f"stopped by {signal.Signals(number).name}")


@dataclass(frozen=True)
class _Child:
    process: Process
    popen: "subprocess.Popen[bytes]"
    log: Path
    is_remote: bool

    @property
    def has_begun(self) -> bool:
        """True once the host's shell runs it; before the connection is established, the log is empty."""
        return not self.is_remote or self.log.stat().st_size > 0

    @property
    def status(self) -> int | None:
        """Exit status as a shell reports it; None while it runs."""
        status = self.popen.poll()
        return 128 - status if status is not None and status < 0 else status


class Supervision:
    """Supervision of one run, in the process that starts it."""

    def __init__(
        self,
        run: Run,
        plan: LaunchPlan,
        shells: Shells,
        programs: Programs,
        end_everywhere: Callable[[], None],
        *,
        stop: StopRequest,
        clock: Clock | None = None,
        followers: Iterable[LogFollower] = (),
        limit: Deadline | None = None,
    ) -> None:
        """
        Bind the run; starts nothing. Default: the machine's clock, no logs to show during the run, and no time limit.

        `end_everywhere` ends the run's processes on every host, and returns when they are gone. `stop` is read at every
        poll. `followers` begin with the log of rank 0.
        """
        self._run = run
        self._plan = plan
        self._shells = shells
        self._programs = programs
        self._end_everywhere = end_everywhere
        self._clock = clock or Clock()
        self._followers = tuple(followers)
        self._limit = limit
        self._children: list[_Child] = []
        self._stop = stop
        self._server_deadline: Deadline | None = None

    def carry_out(self) -> RunOutcome:
        """Run the plan to its end, with a log a process in the folder; leaves no process on the hosts."""
        waiting = list(self._plan.processes)
        try:
            while True:
                waiting = self._start_due(waiting)
                outcome = self._judge(has_waiting=bool(waiting))
                if outcome is not None:
                    return outcome
                self._show()
                self._clock.wait(POLL_SECONDS)
        except ProgramError as error:
            return RunOutcome("failed", CANNOT_START, str(error))
        finally:
            self._end()

    def _judge(self, *, has_waiting: bool) -> RunOutcome | None:
        """Return the outcome; None while the run continues."""
        if self._stop.number:
            return RunOutcome.stopped_by(self._stop.number)
        if self._limit is not None and self._limit.is_over:
            return RunOutcome("stopped", TIMED_OUT, "stopped: the time limit of the job is over")
        failed = self._list_failed()
        if failed:
            first, status = failed[0], failed[0].status or 0
            return RunOutcome("failed", status, describe_end(first.process, status, first.log), first.process)
        if has_waiting or any(child.status is None for child in self._children if child.process.is_essential):
            return None
        return RunOutcome("succeeded", 0)

    def _list_failed(self) -> list[_Child]:
        """
        Return the children whose failure fails the job.

        Workers wait for ever for a failed parameter server, so its failure counts too; but not while the job may be
        ending, which servers notice sooner than this process.
        """
        failed = [child for child in self._children if child.status]
        essential = [child for child in failed if child.process.is_essential]
        if essential or not failed:
            return essential
        self._server_deadline = self._server_deadline or Deadline.after(self._clock, END_SECONDS)
        return failed if self._server_deadline.is_over else []

    def _start_due(self, waiting: list[Process]) -> list[Process]:
        """Start the processes that may start now; return the rest."""
        unbegun = Counter(
            child.process.host for child in self._children if child.status is None and not child.has_begun
        )
        rest = []
        for process in waiting:
            if unbegun[process.host] >= MOST_UNBEGUN:
                rest.append(process)
                continue
            self._children.append(self._start(process))
            unbegun[process.host] += self._children[-1].is_remote
        return rest

    def _start(self, process: Process) -> _Child:
        variables = {**process.environment, JOB_VARIABLE: self._run.name}
        process = replace(process, environment=variables)
        is_remote = not LAUNCHERS[self._plan.launcher].is_central
        argv = process.argv
        programs, environment = self._programs, {**os.environ, **variables}
        if is_remote:
            text = make_shell_text(process, Path.cwd(), self._run.path)
            argv, environment = tuple(self._shells.command(process.host, text)), dict(os.environ)
        elif "PATH" in variables:
            programs = Programs(variables["PATH"])
        log = self._run.log(process.name)
        with log.open("ab") as output:
            popen = programs.start(argv, environment=environment, output=output.fileno())
        return _Child(process, popen, log, is_remote)

    def _show(self) -> None:
        # A launcher's errors after a stop do not help the user: show only rank 0.
        for follower in self._followers[: 1 if self._stop.number else None]:
            follower.poll()

    def _end(self) -> None:
        self._end_everywhere()
        # Signal 0 only tests. A group is signalled even after its first process has ended: some processes that a
        # launcher starts lack the run's mark.
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            for child in self._children:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.popen.pid, number)
            deadline = Deadline.after(self._clock, LEAVE_SECONDS)
            while any(child.status is None for child in self._children) and not deadline.is_over:
                deadline.pause(POLL_SECONDS)
        self._show()
        for follower in self._followers:
            follower.close()


def make_shell_text(process: Process, folder: Path, other_folder: Path) -> str:
    """Return the shell text that runs a process: in `folder` where its host has it, else in `other_folder`."""
    variables = [f"{name}={value}" for name, value in process.environment.items()]
    command = shlex.join(["env", *variables, *process.argv])
    return "\n".join(
        (
            f"echo {shlex.quote(f'{process.name} {BEGINS} {process.host}')}",
            f"cd {shlex.quote(str(folder))} 2>/dev/null || cd {shlex.quote(str(other_folder))} || exit",
            command,
            "status=$?",
            f'echo {shlex.quote(f"{process.name} {ENDED}")} "$status"',
            'exit "$status"',
        )
    )


def describe_end(process: Process, status: int, log: Path) -> str:
    """Describe the end of a process. `ssh` itself ends with 255 when it loses the host, without a remote status."""
    if status == LOST and ENDED not in log.read_text(encoding="utf-8", errors="replace"):
        return f"the connection to {process.host}, where {process.name} runs, was lost or refused"
    return f"{process.name} on {process.host} {ENDED} {status}"


def explain_failure(run: Run, plan: LaunchPlan, outcome: RunOutcome) -> tuple[int, tuple[str, ...]]:
    """Return status and lines to show of the first failure: of the rank, or of the launcher where it names none."""
    process = outcome.failed
    if process is None:
        return outcome.status, ()
    own_log = run.log(process.name)
    found = _find_rank(plan, "\n".join(read_last_lines(own_log, READ_LINES)))
    if found is None:
        rank_name = process.environment.get(RANK_VARIABLE)
        log = run.path / (f"{process.name}.log" if rank_name is None else f"rank-{rank_name}.log")
        return outcome.status, _list_last_lines(process.host, log, own_log)
    rank, code = found
    status = 128 - code if code < 0 else code
    host = plan.hosts[min(rank // plan.slots, len(plan.hosts) - 1)].name
    head = f"rank {rank} on {host} failed first, with status {status}"
    return status, (head, *_list_last_lines(host, run.path / f"rank-{rank}.log", own_log))


def _find_rank(plan: LaunchPlan, said: str) -> tuple[int, int] | None:
    starter = LAUNCHERS[plan.launcher].starter
    match = starter.first_failure.search(said) if starter else None
    if match is None or not int(match["code"]):
        return None
    return int(match["rank"]), int(match["code"])


def _list_last_lines(host: str, log: Path, otherwise: Path) -> tuple[str, ...]:
    """Return the last lines of a rank's log, or of the log of its starter where the rank wrote none; with a remedy."""
    for file in (log, otherwise):
        last = read_last_lines(file, READ_LINES)
        if last:
            head = f"the last lines of {file} ({host}):"
            said = "\n".join(last)
            remedies = (f"remedy: {remedy}" for pattern, remedy in REMEDIES.items() if re.search(pattern, said))
            return (head, *(f"    {_clean(line)}" for line in last[-SHOWN_LINES:]), *remedies)
    return ()


def _clean(line: str) -> str:
    """Return a line without control characters: it goes to a terminal. Indentation is kept."""
    return "".join(letter if letter.isprintable() else " " for letter in line)[:LONGEST_LINE].rstrip()
