"""`deeplearning stop`: end of a job on every host, and of no other process."""

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_command.terminal import RefusedError, print_line
from deeplearning_jobs.hosts.processes import GRACE_SECONDS, KILL_SECONDS, end_processes
from deeplearning_jobs.runs.job_folder import JobsFolder, now
from deeplearning_jobs.runs.run_status import RunStatus
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.node_facts import COMMAND_FILE

STOP_SECONDS = GRACE_SECONDS + KILL_SECONDS + 25
"""Time limit of one host, including the connection."""
POLL_SECONDS = 0.1
DESCRIPTION = """
End a job on every host: its processes get SIGTERM, and SIGKILL after 10 s. Other processes are not affected.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the job."""
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="JOB or JOB/RUN; default: the running one")
    parser.add_argument("--all", action="store_true", dest="is_all", help="end all jobs")
    parser.add_argument("--here", action="store_true", dest="is_here", help="end only its processes on this node")


def run(options: argparse.Namespace, context: Context) -> int:
    """End the job; RefusedError if the job is ambiguous."""
    if options.is_here:
        if not options.job and not options.is_all:
            raise RefusedError("job must be named with --here, got none; name one or add --all")
        return stop_here(options.job, is_all=options.is_all)
    remote, jobs = context.remote, JobsFolder(context.jobs_path)
    chosen = choose_runs(options.job, find_running(remote, jobs), is_all=options.is_all)
    if not chosen:
        print_line("no job is running")
    return max([_stop(remote, jobs, name) for name in chosen], default=0)


def stop_here(name: str, *, is_all: bool) -> int:
    """End a run's processes on this node, and print their number."""
    ended = end_processes(lambda mark: is_all or is_meant(name, mark), Clock())
    if ended.left:
        print_line(f"could not end process {', '.join(map(str, ended.left))}")
        return 1
    killed = f", {ended.killed} of them had to be killed" if ended.killed else ""
    print_line(f"{ended.count} processes ended{killed}")
    return 0


def end_run(remote: Remote, name: str) -> list[HostResult]:
    """End the remaining processes of a run on every host; return the results of failures."""
    text = shlex.join([COMMAND_FILE, "stop", "--here", "--", name])
    results = remote.run_all(remote.hosts, text, seconds=STOP_SECONDS)
    return [result for result in results if result.status != 0]


def describe_left(results: Sequence[HostResult]) -> list[str]:
    """Return a line for each host that may still have processes of a job."""
    causes = [(result.host, clean(result.cause) or last_line(result.output)) for result in results]
    return [f"{host} may still run part of it: {cause}" for host, cause in causes]


def find_running(remote: Remote, jobs: JobsFolder) -> list[str]:
    """Return the runs with a live supervisor here, or processes on any host."""
    here = remote.facts.instance_id
    watched = [run.name for run, status in jobs.runs_with_status() if status.is_running_on(here)]
    seen = [name for answer in survey_hosts(remote).answers.values() for name in answer.jobs]
    return sorted({*watched, *seen})


def choose_runs(name: str, running: Sequence[str], *, is_all: bool) -> list[str]:
    """Return the running runs of a name; RefusedError for no match, or for several without a name."""
    chosen = [run for run in running if not name or is_meant(name, run)]
    if name and not chosen:
        raise RefusedError(f"job must be a running one, got {name!r}; running: {', '.join(running) or 'none'}")
    if len(chosen) > 1 and not name and not is_all:
        raise RefusedError(f"job must be named, got none and {', '.join(running)} run; name one or add --all")
    return chosen


def is_meant(name: str, mark: str) -> bool:
    """Return whether `<job>` or `<job>/<run>` names the run `<job>/<k>`."""
    return mark == name or mark.rpartition("/")[0] == name


def _stop(remote: Remote, jobs: JobsFolder, name: str) -> int:
    job, _, number = name.rpartition("/")
    run = jobs.job(job).run(int(number)) if number.isdigit() and job else None
    status = run.read_status() if run else None
    if status is not None and status.is_running_on(remote.facts.instance_id):
        _stop_supervisor(status)
    left = describe_left(end_run(remote, name))
    status = run.read_status() if run else None
    if run and status is not None and status.state in ("running", "retrying"):
        run.write_status(status.end("stopped", 128 + signal.SIGTERM, now(), "stopped; its supervisor had ended"))
    for line in left:
        sys.stderr.write(f"deeplearning stop: {line}\n")
    print_line(f"{name} is stopped{' on hosts that respond' if left else ''}")
    return 1 if left else 0


def _stop_supervisor(status: RunStatus) -> None:
    """Signal the supervisor to end its run and write the status; return when it has, or after the limit."""
    try:
        os.kill(status.supervisor.process_id, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return
    deadline = Deadline.after(Clock(), STOP_SECONDS + POLL_SECONDS)
    while status.supervisor.is_alive_on(status.supervisor.instance_id) and not deadline.is_over:
        deadline.pause(POLL_SECONDS)
