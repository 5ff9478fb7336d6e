"""`deeplearning stop`: ends a job on every host, and nothing else."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_jobs.hosts.processes import GRACE_SECONDS, KILL_SECONDS, end_processes
from deeplearning_jobs.runs.job_folder import JobsFolder, now
from deeplearning_jobs.runs.run_status import RunStatus
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

STOP_SECONDS = GRACE_SECONDS + KILL_SECONDS + 25
"""What a host may take, the connection included."""
LOOK_SECONDS = 0.1
DESCRIPTION = """
End a job on every host: its processes are told to end, and killed after 10 s. Only those that belong to the job end.
"""
EPILOG = "exit status: 0 nothing of the job is left, 1 something may be, 2 there is no such job"


def add_stop(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser("stop", help="end a job on every host", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="JOB or JOB/RUN; default: the one that runs")
    parser.add_argument("--all", action="store_true", dest="is_all", help="end all jobs")
    parser.add_argument("--here", action="store_true", dest="is_here", help="end its processes on this node only")
    parser.set_defaults(run=run_stop)


def run_stop(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The nodes cannot be asked, or it is not clear which job is meant.
    """
    if options.is_here:
        if not options.job and not options.is_all:
            raise RefusedError("job must be named with --here, got none; name one or add --all")
        return stop_here(options.job, is_all=options.is_all)
    remote = Remote.open(root, programs)
    jobs = JobsFolder(root / remote.facts.mount_point.lstrip("/") / JOBS_FOLDER)
    running = find_running(remote, jobs)
    chosen = choose_runs(options.job, running, is_all=options.is_all)
    if not chosen:
        sys.stdout.write("no job is running\n")
        return 0
    statuses = [_stop(remote, jobs, name) for name in chosen]
    return max(statuses)


def stop_here(name: str, *, is_all: bool) -> int:
    """End a run's processes on this node; prints what that came to."""
    ended = end_processes(lambda mark: is_all or is_meant(name, mark), Clock())
    if ended.left:
        sys.stdout.write(f"cannot be ended: process {', '.join(map(str, ended.left))}\n")
        return 1
    killed = f", {ended.killed} of them had to be killed" if ended.killed else ""
    sys.stdout.write(f"{ended.count} processes ended{killed}\n")
    return 0


def end_run(remote: Remote, name: str, *, is_all: bool = False) -> list[HostResult]:
    """
    End what is left of a run on every host of the cluster as it is now.

    Returns:
        A result a host that did not end it.
    """
    what = ["--all"] if is_all else ["--", name]
    text = shlex.join([COMMAND_FILE, "stop", "--here", *what])
    results = remote.run_all(remote.hosts, text, seconds=STOP_SECONDS)
    return [result for result in results if result.status != 0]


def describe_left(results: Sequence[HostResult]) -> list[str]:
    """Return a line a host on which something of a job may be left."""
    said = [(result.host, clean(result.cause) or last_line(result.output)) for result in results]
    return [f"{host} may still run a part of it: {cause}" for host, cause in said]


def find_running(remote: Remote, jobs: JobsFolder) -> list[str]:
    """Return the runs that have a living supervisor here, or processes on any host."""
    here = remote.facts.instance_id
    watched = [run.name for run, status in jobs.runs_with_status() if status.is_running_on(here)]
    seen = [name for answer in survey_hosts(remote, port_count=0).answers.values() for name in answer.jobs]
    return sorted({*watched, *seen})


def choose_runs(name: str, running: Sequence[str], *, is_all: bool) -> list[str]:
    """
    Say which of the running ones are meant.

    Raises:
        RefusedError: None of that name runs, or several do and none is named.
    """
    chosen = [run for run in running if not name or is_meant(name, run)]
    if name and not chosen:
        raise RefusedError(f"job must be one that runs, got {name!r}; running: {', '.join(running) or 'none'}")
    if len(chosen) > 1 and not name and not is_all:
        raise RefusedError(f"job must be named, got none and {', '.join(running)} run; name one or add --all")
    return chosen


def is_meant(name: str, mark: str) -> bool:
    """Tell whether `<job>` or `<job>/<run>` names the run `<job>/<k>`."""
    return mark == name or mark.rpartition("/")[0] == name


def _stop(remote: Remote, jobs: JobsFolder, name: str) -> int:
    job, _, number = name.rpartition("/")
    run = jobs.job(job).run(int(number)) if number.isdigit() and job else None
    status = run.read_status() if run else None
    if status is not None and status.is_running_on(remote.facts.instance_id):
        _tell_supervisor(status)
    left = describe_left(end_run(remote, name))
    status = run.read_status() if run else None
    if run and status is not None and status.state == "running":
        run.write_status(status.end("stopped", 128 + signal.SIGTERM, now(), "stopped; nobody looked after it any more"))
    for line in left:
        sys.stderr.write(f"deeplearning stop: {line}\n")
    sys.stdout.write(f"{name} is stopped{'' if not left else ' where hosts answer'}\n")
    return 1 if left else 0


def _tell_supervisor(status: RunStatus) -> None:
    """Let the supervisor end its run, so that the run's status says what happened; it may take its time."""
    try:
        os.kill(status.supervisor.process_id, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return
    deadline = Deadline.after(Clock(), STOP_SECONDS + LOOK_SECONDS)
    while status.supervisor.is_alive_on(status.supervisor.instance_id) and not deadline.is_over:
        deadline.pause(LOOK_SECONDS)
