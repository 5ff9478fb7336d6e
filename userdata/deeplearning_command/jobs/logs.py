"""`deeplearning logs`: output of a job's ranks, and of the agents of all nodes."""

import argparse
import re
import shlex
import sys
from pathlib import Path

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.names import AGENT_LOG
from deeplearning_jobs.runs.job_folder import JobNameError, JobsFolder, Run
from deeplearning_jobs.runs.log_follower import LogFollower
from deeplearning_node.deadline import Clock
from deeplearning_node.health.findings import clean

POLL_SECONDS = 0.5
AGENT_SECONDS = 30.0
STEP_LOG = "mnt/var/log/hadoop/steps/{}/stderr"
"""Standard error of an EMR step (EMR management guide, "View log files")."""
_STEP = re.compile(r"s-[A-Z0-9]{1,32}")
DESCRIPTION = "Show the output of a rank of a job, or with --agent the log of each node's agent."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the job, the rank and the lines."""
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="JOB or JOB/RUN; default: the newest")
    parser.add_argument("--run", type=int, dest="number", metavar="K", help="default: the newest run")
    parser.add_argument("--rank", default="", metavar="R|NAME", help="a rank, or a log's name; default: rank 0")
    parser.add_argument("--follow", action="store_true", help="continue until the run ends")
    parser.add_argument("--lines", type=int, default=40, metavar="N", help="the last N lines; default: 40")
    parser.add_argument("--agent", action="store_true", help="show the logs of all nodes' agents")
    parser.add_argument("--step", default="", metavar="ID", help="show the log of an EMR step, which starts a job")


def run(options: argparse.Namespace, context: Context) -> int:
    """Print a log; RefusedError for an unknown job, run or log."""
    if options.lines < 0:
        raise RefusedError(f"--lines must not be negative, got {options.lines}")
    if options.agent:
        return show_agents(context.remote, options.lines)
    if options.step:
        return show_step(options.step, context.root)
    try:
        found = JobsFolder(context.jobs_path).find_run(options.job, options.number)
    except JobNameError as error:
        raise RefusedError(str(error)) from error
    ends: list[bytes] = []

    def write(data: bytes) -> None:
        ends[:] = [data[-1:]]
        write_out(data)

    follower = LogFollower(find_log(found, options.rank), write, options.lines)
    follower.poll()
    if options.follow:
        follow(found, follower, context.facts.instance_id, context.clock)
    if ends not in ([], [b"\n"]):
        write_out(b"\n")  # What follows, a prompt or the end of a session, must not overwrite a progress bar.
    return 0


def find_log(run: Run, rank: str) -> Path:
    """Return the file with the output of a rank, or of another process of a run; RefusedError without one."""
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
    """Print further output until the run, or its supervisor, has ended."""
    while True:
        status = run.read_status()
        follower.poll()
        if status is None or not status.is_running_on(instance_id):
            follower.poll()
            return
        clock.wait(POLL_SECONDS)


def show_agents(remote: Remote, lines: int) -> int:
    """Print the last lines of every agent's log, under the name of its host."""
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


def show_step(step: str, root: Path) -> int:
    """Print what an EMR step has written to its standard error; nothing before it has begun."""
    if not _STEP.fullmatch(step):
        raise RefusedError(f"--step must be the id of an EMR step, such as s-2V57YI7T5NF42, got {step!r}")
    path = root / STEP_LOG.format(step)
    if path.exists():
        write_out(path.read_bytes())
    return 0


def write_out(data: bytes) -> None:
    """Write bytes to standard output at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
