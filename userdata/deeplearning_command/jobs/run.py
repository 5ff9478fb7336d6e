"""`deeplearning run`: checks that a job can run, starts it on every host, shows rank 0, and ends with its status."""

import argparse
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.cluster.end import confirm_end
from deeplearning_command.jobs.options import add_job_options, list_needless, make_request
from deeplearning_command.jobs.supervisor import PreparedRun, Steps, detach, supervise
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.remote.survey import PORT_COUNT, list_wanted, survey_hosts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_jobs.hosts.preflight import Preflight, describe_tcp, describe_unready, has_failed
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.checkpoints import fill_arguments, find_newest, set_aside
from deeplearning_jobs.plan.job import RESUME_VARIABLE
from deeplearning_jobs.plan.launch_plan import LaunchPlan, PlanError
from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.planner import make_plan
from deeplearning_jobs.runs.job_folder import JobFolder, JobNameError, JobsFolder, name_job
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

WAIT_SECONDS = 5.0
LOCK_FILE = "tmp/deeplearning-run-{}.lock"
DESCRIPTION = """
Run a program on every slot of the cluster: run it on the master as the login user. Before anything starts, every host
is asked whether it is fit for the job; `deeplearning plan` shows what would run. The job's output, a file a rank, and
its checkpoints lie in jobs/JOB on the shared file system. A job of the same name goes on from its newest checkpoint:
the program finds it in DEEPLEARNING_RESUME_FROM, and in place of {checkpoint} in an argument, and writes new ones to
DEEPLEARNING_CHECKPOINT_PATH. Ctrl-C ends the job on all hosts; so does the end of the login session, but with --detach.
"""
EPILOG = """
exit status: that of the job, which is the status of the rank that failed first where the launcher tells it; 2 the job
was not started; 127 its launcher could not be; 130 stopped by Ctrl-C
"""


def add_run(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser("run", help="run a job on the cluster", description=DESCRIPTION, epilog=EPILOG)
    add_job_options(parser)
    parser.add_argument("--fresh", action="store_true", help="begin anew; the checkpoints are kept under another name")
    parser.add_argument(
        "--resume-args",
        default="",
        metavar="WORDS",
        help="add these if there is a checkpoint: --resume-args='--load {checkpoint}'",
    )
    parser.add_argument(
        "--checkpoint-pattern", default="", metavar="GLOB", help="which files are checkpoints; default: all"
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait until data and environment are there; --no-wait refuses the job",
    )
    parser.add_argument("--detach", action="store_true", help="let the job outlive this session, and return at once")
    parser.add_argument("--end-cluster", action="store_true", help="end the cluster when the job has ended")
    parser.add_argument("--yes", action="store_true", help="do not ask whether the cluster may end")
    parser.set_defaults(run=run_run)


def run_run(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The job cannot be started.
    """
    remote = Remote.open(root, programs)
    if remote.is_root and remote.user.user_id != 0:
        raise RefusedError(f"the user must be {remote.user.name}, under whom jobs run, got root; leave sudo out")
    if options.end_cluster:
        confirm_end(remote, is_agreed=options.yes)
    steps = Steps(Clock())
    with hold_lock(root) as lock:
        try:
            prepared = prepare_run(options, root, remote, steps)
        except (PlanError, JobNameError) as error:
            raise RefusedError(str(error)) from error
        except OSError as error:
            raise RefusedError(f"the job's folder cannot be written: {error}") from error
        if options.detach:
            return detach(prepared, lock)
        prepared.begin()
    return supervise(prepared)


def prepare_run(options: argparse.Namespace, root: Path, remote: Remote, steps: Steps) -> PreparedRun:
    """
    Check, plan and write down a run.

    Effects: the run's folder on the shared file system.

    Raises:
        RefusedError: A host is not fit for the job.
        PlanError: What was asked for cannot be planned.
        JobNameError: The job needs a name.
        OSError: The shared file system does not take the folder.
    """
    program = tuple(options.program)
    jobs = JobsFolder(root / remote.facts.mount_point.lstrip("/") / JOBS_FOLDER)
    job = jobs.job(options.name or name_job(program))
    newest = "" if options.fresh else find_newest(job.checkpoints, options.checkpoint_pattern)
    arguments = fill_arguments(program, options.resume_args, newest)
    draft = make_request(options, remote.facts.needs, folder="", ports={})
    wanted = list_wanted(program, Path.cwd(), is_contained=bool(draft.container))
    search = ":".join(filter(None, [draft.python, os.environ.get("PATH", "")]))
    preflight = check_hosts(options, remote, steps, wanted, search)
    check_running(jobs, remote)
    run = job.next_run()
    request = make_request(
        options,
        remote.facts.needs,
        folder=str(run.path),
        ports={host: answer.ports for host, answer in preflight.answers.items()},
        variables={RESUME_VARIABLE: newest},
        program=arguments,
    )
    plan = make_plan(preflight.plan_hosts(), request)
    describe_plan(plan, newest, steps)
    if options.fresh:
        _begin_anew(job, run.number, steps)
    try:
        job.start_run(run, remote.user.name)
    except FileExistsError as error:
        raise RefusedError(f"{run.name} was begun by another command at the same time; try again") from error
    run.write_plan(plan, render_plan(plan))
    steps.keep(run.launch_log)
    steps.say(f"folder: {run.path}")
    return PreparedRun(run, plan, root, remote, steps, newest, ends_cluster=options.end_cluster)


def check_hosts(options: argparse.Namespace, remote: Remote, steps: Steps, wanted: list[str], search: str) -> Preflight:
    """
    Check that every host is fit for the job; with --wait, repeat it until every host is provisioned.

    Raises:
        RefusedError: One is not, with every reason.
    """
    clock = Clock()
    said: list[str] = []
    port_count = max(PORT_COUNT, LAUNCHERS[options.launcher].ports(options.slots or 0))
    while True:
        preflight = survey_hosts(remote, port_count=port_count, wanted=wanted, search=search)
        faults = preflight.find_faults(is_elastic=options.elastic)
        unready = preflight.find_unready(list_needless(options))
        waits = describe_unready(unready)
        if faults or (unready and (not options.wait or has_failed(unready))):
            hint = "" if has_failed(unready) else "; leave out --no-wait to wait for it"
            if ENVIRONMENT_STEP in unready:
                hint += "; add --without-environment to run in the image's own software"
            raise RefusedError(join_reasons([*faults, *(f"{line}{hint}" for line in waits)]))
        if not unready:
            break
        if waits != said:
            steps.say(f"waiting: {'; '.join(waits)}")
            said = waits
        clock.wait(WAIT_SECONDS)
    silent = f", {len(preflight.silent)} do not" if preflight.silent else ""
    steps.say(f"preflight: {len(preflight.answers)} hosts answer{silent}, generation {preflight.generation}")
    return preflight


def check_running(jobs: JobsFolder, remote: Remote) -> None:
    """
    Refuse to run beside another job.

    Raises:
        RefusedError: One has a living supervisor; a `running` that nobody looks after counts for nothing.
    """
    for run, status in jobs.runs_with_status():
        if status.is_running_on(remote.facts.instance_id):
            raise RefusedError(f"job {run.name} is running; end it first: deeplearning stop {run.name}")


def describe_plan(plan: LaunchPlan, newest: str, steps: Steps) -> None:
    """Say in a line what is about to run."""
    goes_on = f", goes on from {newest}" if newest else ""
    steps.say(f"plan: {plan.launcher}, {plan.ranks} ranks = {len(plan.hosts)} hosts x {plan.slots}{goes_on}")
    for line in describe_tcp(plan.hosts):
        steps.say(f"warning: {line}")


def join_reasons(reasons: list[str]) -> str:
    """Return one reason as it is, several in a line each."""
    return reasons[0] if len(reasons) == 1 else "".join(f"\n  - {reason}" for reason in reasons)


@contextmanager
def hold_lock(root: Path) -> Iterator[int]:
    """
    Let one `run` at a time check and begin; the kernel gives the lock back whatever becomes of this process.

    Yields:
        The handle of the lock, which a child has too and must close.

    Raises:
        RefusedError: Another one holds it.
    """
    path = root / LOCK_FILE.format(os.geteuid())
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RefusedError("another `deeplearning run` is just beginning a job; wait for it") from error
    try:
        yield handle
    finally:
        os.close(handle)


def _begin_anew(job: JobFolder, number: int, steps: Steps) -> None:
    kept = set_aside(job.checkpoints, number)
    if kept is not None:
        steps.say(f"the checkpoints so far are kept as {kept}")
