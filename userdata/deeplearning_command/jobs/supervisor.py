"""Supervisor of a run: the command itself, or with --detach a child process that outlives the session."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from signal import SIG_DFL
from typing import NoReturn

from deeplearning_command.cluster.end import end_cluster
from deeplearning_command.cluster.event import send_event
from deeplearning_command.context import Context
from deeplearning_command.jobs.stop import describe_left, end_run
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.reason import Reason
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import LaunchPlan
from deeplearning_jobs.runs.job_folder import Run, now
from deeplearning_jobs.runs.log_follower import LogFollower
from deeplearning_jobs.runs.run_status import RunStatus, Supervisor
from deeplearning_jobs.runs.supervision import RunOutcome, Supervision, explain_failure
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.signals import Interruption, StopRequest, handle_stops, hold_stops


class StepLog:
    """Log of the command's steps with the seconds since its start, on standard error and in a file."""

    def __init__(self, clock: Clock) -> None:
        """Start to count the seconds; there is no file until `keep`."""
        self._clock = clock
        self._began = clock.read()
        self._lines: list[str] = []
        self._file: Path | None = None
        self.is_shown = True

    def keep(self, file: Path) -> None:
        """Write the lines so far, and all further ones, to a file."""
        self._file = file
        self._append("".join(self._lines))

    def report(self, text: str) -> None:
        """Report a step; a closed terminal, or a full disk, does not end the job."""
        line = f"[{self._clock.read() - self._began:7.1f} s] {text}\n"
        self._lines.append(line)
        self._append(line)
        if self.is_shown:
            write_terminal(2, line.encode())

    def _append(self, text: str) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
                file.write(text)


@dataclass(frozen=True)
class PreparedRun:
    """Run that is ready to start."""

    run: Run
    plan: LaunchPlan
    context: Context
    steps: StepLog
    resumed_from: str  # Checkpoint to resume from; empty for none
    ends_cluster: bool  # Whether the cluster ends with it
    limit: Deadline | None = None  # Time limit of the job; None for none
    # Prepares and begins the next run after a failure, RefusedError if it cannot, Interruption when it is to stop; None
    # when no retry is left
    retry: "Callable[[StopRequest], PreparedRun] | None" = None

    def is_retried(self, outcome: RunOutcome) -> bool:
        """Return whether another run follows this one."""
        return outcome.state == "failed" and self.retry is not None

    def begin(self) -> None:
        """Make this process the run's supervisor; the run's status becomes `running`."""
        self.run.write_status(
            RunStatus(
                job=self.run.job,
                run=self.run.number,
                launcher=self.plan.launcher,
                state="running",
                status=None,
                started=now(),
                ended="",
                hosts=tuple(host.name for host in self.plan.hosts),
                cause="",
                resumed_from=self.resumed_from,
                supervisor=Supervisor.of_process(self.context.facts.instance_id, os.getpid()),
            )
        )


def supervise(prepared: PreparedRun) -> int:
    """
    Run the job, again after a failure while retries are left, and return the exit status of its last run.

    A signal that would end this process stops the job, also between two of its runs.
    """
    stop = StopRequest()
    with handle_stops(stop.take):
        return _supervise_runs(prepared, stop)


def _supervise_runs(prepared: PreparedRun, stop: StopRequest) -> int:
    while True:
        outcome, status = _supervise_run(prepared, stop)
        if not prepared.is_retried(outcome) or prepared.retry is None:
            return status
        try:
            following = prepared.retry(stop)
        except Interruption as interruption:
            stopped = RunOutcome.stopped_by(interruption.number)
            prepared.steps.report(f"not run again: {stopped.cause}")
            _end_status(prepared, stopped, stopped.status)
            return stopped.status
        except RefusedError as error:
            prepared.steps.report(f"not run again: {error}")
            _end_status(prepared, outcome, status)
            _report_failure(prepared, outcome, status, [f"not run again: {error}"])
            return status
        _end_status(prepared, outcome, status)
        prepared = following


def _supervise_run(prepared: PreparedRun, stop: StopRequest) -> tuple[RunOutcome, int]:
    """Run the job's processes, write the run's status, and on request end the cluster; return the job's exit status."""
    run, plan, steps = prepared.run, prepared.plan, prepared.steps
    supervision = Supervision(
        run,
        plan,
        prepared.context.remote,
        prepared.context.programs,
        lambda: _end_everywhere(prepared),
        stop=stop,
        followers=_follow(prepared),
        limit=prepared.limit,
    )
    steps.report("started")
    outcome = supervision.carry_out()
    status = _conclude(prepared, outcome)
    if prepared.ends_cluster and outcome.state != "stopped" and not prepared.is_retried(outcome):
        _end_cluster(prepared)
    steps.report(f"{outcome.state}{f' with status {status}' if status else ''}, see {run.path}")
    return outcome, status


def detach(prepared: PreparedRun, lock: int) -> int:
    """
    Start a child in its own session that supervises the run, and return 0; the run's status will contain the job's.

    While `lock` is open no other command starts a job: this process and its child have it until the run has a status.
    """
    reader, writer = os.pipe()
    with hold_stops():  # The job runs on: an interruption must not leave out how to end it.
        if os.fork() == 0:
            os.close(reader)
            _supervise_detached(prepared, lock, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as begun:
            if begun.read() != b"begun":
                raise RefusedError(f"the job's supervisor ended at once; see {prepared.run.launch_log}")
        name = prepared.run.name
        follow = f"deeplearning logs {name} --follow"
        prepared.steps.report(f"detached; follow it: {follow}; end it: deeplearning stop {name}")
    return 0


def _supervise_detached(prepared: PreparedRun, lock: int, writer: int) -> NoReturn:
    status = 1
    try:
        with handle_stops(SIG_DFL):
            os.setsid()
            prepared.steps.is_shown = False
            _leave_terminal(prepared.run.launch_log)
            prepared.begin()
            os.close(lock)
            os.write(writer, b"begun")
            os.close(writer)
            status = supervise(prepared)
    except Exception:  # noqa: BLE001 - top of the process: the error must reach the log
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def write_terminal(handle: int, data: bytes) -> None:
    """Write to a terminal or pipe until it is closed."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(handle, data) :]


def _follow(prepared: PreparedRun) -> list[LogFollower]:
    if not prepared.steps.is_shown:
        return []
    followers = [LogFollower(Path(prepared.plan.rank_zero_log), lambda data: write_terminal(1, data))]
    if LAUNCHERS[prepared.plan.launcher].is_central:
        log = prepared.run.log(prepared.plan.processes[0].name)
        followers.append(LogFollower(log, lambda data: write_terminal(2, data)))
    return followers


def _end_everywhere(prepared: PreparedRun) -> None:
    """End the remaining processes of the run, on the current hosts of the cluster."""
    try:
        left = end_run(prepared.context.open_remote(), prepared.run.name)
    except RefusedError as error:
        prepared.steps.report(f"could not end the remaining processes on the hosts: {error}")
        return
    for line in describe_left(left):
        prepared.steps.report(line)


def _conclude(prepared: PreparedRun, outcome: RunOutcome) -> int:
    run, steps = prepared.run, prepared.steps
    status, lines = outcome.status, tuple[str, ...]()
    if outcome.cause:
        steps.report(outcome.cause)
    if outcome.state == "failed":
        status, lines = explain_failure(run, prepared.plan, outcome)
        for line in lines:
            steps.report(line)
    _end_status(prepared, outcome, status, is_retried=prepared.is_retried(outcome))
    if outcome.state == "failed" and not prepared.is_retried(outcome):
        _report_failure(prepared, outcome, status, lines)
    return status


def _end_status(prepared: PreparedRun, outcome: RunOutcome, status: int, *, is_retried: bool = False) -> None:
    present = prepared.run.read_status()
    if present is not None:
        state = "retrying" if is_retried else outcome.state
        with contextlib.suppress(OSError):
            prepared.run.write_status(present.end(state, status, now(), outcome.cause))


def _report_failure(prepared: PreparedRun, outcome: RunOutcome, status: int, lines: Iterable[str]) -> None:
    """Send the event that the job has failed and is not run again, with the lines that explain it."""
    run, context = prepared.run, prepared.context
    reason = Reason(
        f"job {run.name} failed with status {status}: {outcome.cause}",
        f"read its logs with deeplearning logs {run.name}, or in {run.path}",
        "\n".join(lines),
    )
    for line in send_event(context.facts, context.membership, EventKind.JOB_FAILED, reason):
        prepared.steps.report(line)


def _end_cluster(prepared: PreparedRun) -> None:
    try:
        for line in end_cluster(prepared.context.remote, f"the job {prepared.run.name} has ended"):
            prepared.steps.report(line)
    except RefusedError as error:
        prepared.steps.report(str(error))


def _leave_terminal(log: Path) -> None:
    """Close the session's terminal and pipes: its end waits for every process that has them open."""
    with Path(os.devnull).open("rb") as nothing, log.open("ab") as kept:
        os.dup2(nothing.fileno(), 0)
        for handle in (1, 2):
            os.dup2(kept.fileno(), handle)
