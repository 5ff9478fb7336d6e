"""`deeplearning logs`: what a job's ranks wrote, and what the agents of all nodes wrote."""

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import Remote, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.names import AGENT_LOG, JOBS_FOLDER
from deeplearning_jobs.runs.job_folder import JobNameError, JobsFolder, Run
from deeplearning_jobs.runs.log_follower import LogFollower
from deeplearning_node.deadline import Clock
from deeplearning_node.health.findings import clean
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

FOLLOW_SECONDS = 0.5
AGENT_SECONDS = 30.0
DESCRIPTION = "Show what a rank of a job wrote, or with --agent what the agent of each node wrote."
EPILOG = "exit status: 0 shown, 1 not by all hosts (--agent), 2 there is no such job, run or log"


def add_logs(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser("logs", help="show what a job wrote", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="JOB or JOB/RUN; default: the newest")
    parser.add_argument("--run", type=int, dest="number", metavar="K", help="default: the newest run")
    parser.add_argument("--rank", default="", metavar="R|NAME", help="a rank, or a log's name; default: rank 0")
    parser.add_argument("--follow", action="store_true", help="go on until the run ends")
    parser.add_argument("--lines", type=int, default=40, metavar="N", help="the last N lines; default: 40")
    parser.add_argument("--agent", action="store_true", help="what the agents of all nodes wrote")
    parser.set_defaults(run=run_logs)


def run_logs(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: There is no such job, run or log.
    """
    if options.lines < 0:
        raise RefusedError(f"--lines must not be negative, got {options.lines}")
    if options.agent:
        return show_agents(Remote.open(root, programs), options.lines)
    facts = read_facts(root)
    jobs = JobsFolder(root / facts.mount_point.lstrip("/") / JOBS_FOLDER)
    try:
        run = jobs.find_run(options.job, options.number)
    except JobNameError as error:
        raise RefusedError(str(error)) from error
    follower = LogFollower(find_log(run, options.rank), write_out, options.lines)
    follower.poll()
    if options.follow:
        follow(run, follower, facts.instance_id, Clock())
    return 0


def find_log(run: Run, rank: str) -> Path:
    """
    Return the file that holds what a rank, or another process of a run, wrote.

    Raises:
        RefusedError: There is none of that name.
    """
    names = sorted(path.stem for path in run.path.glob("*.log"))
    if not rank:
        return run.find_rank_zero_log()
    for name in (f"rank-{rank}", rank):
        if name in names:
            return run.path / f"{name}.log"
    raise RefusedError(
        f"--rank must name a log of {run.name}, got {rank!r}; there are {', '.join(names) or 'none yet'}"
    )


def follow(run: Run, follower: LogFollower, instance_id: str, clock: Clock) -> None:
    """Show what is added until the run has ended, or nobody looks after it any more."""
    while True:
        status = run.read_status()
        follower.poll()
        if status is None or not status.is_running_on(instance_id):
            follower.poll()
            return
        clock.wait(FOLLOW_SECONDS)


def show_agents(remote: Remote, lines: int) -> int:
    """Show the last lines of every agent's log, under the name of its host."""
    tail = f"tail -n {lines} {shlex.quote(AGENT_LOG)}"
    text = f"if [ -r {shlex.quote(AGENT_LOG)} ]; then {tail}; else sudo -n {tail}; fi"
    results = remote.run_all(remote.hosts, text, seconds=AGENT_SECONDS)
    for result in results:
        sys.stdout.write(f"==> {result.host} <==\n")
        for line in result.output.splitlines():
            sys.stdout.write(f"{clean(line, longest=1000)}\n")
        if result.status != 0:
            sys.stdout.write(f"(no log: {clean(result.cause) or f'status {result.status}'})\n")
    return 0 if all(result.status == 0 for result in results) else 1


def write_out(data: bytes) -> None:
    """Write bytes to standard output as they are."""
    sys.stdout.flush()
    while data:
        data = data[os.write(1, data) :]
