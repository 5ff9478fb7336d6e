"""`deeplearning run`: checks a job, starts it on every host, prints rank 0, and returns its status."""

import argparse
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from deeplearning_command.cluster.end import confirm_end
from deeplearning_command.context import Context
from deeplearning_command.jobs.options import add_job_options, draft_job, list_needless, read_job, survey_job
from deeplearning_command.jobs.supervisor import PreparedRun, StepLog, detach, supervise
from deeplearning_command.terminal import RefusedError, on_change
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_jobs.hosts.preflight import Preflight, describe_tcp, describe_unready, has_failed
from deeplearning_jobs.plan.checkpoints import set_aside
from deeplearning_jobs.plan.launch_plan import JobRequest, PlanError
from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.planner import make_plan
from deeplearning_jobs.runs.job_folder import JobsFolder
from deeplearning_node.deadline import Deadline
from deeplearning_node.provision_status import ENVIRONMENT_STEP
from deeplearning_node.signals import StopRequest

POLL_SECONDS = 5.0
RETRY_SECONDS = 1800.0
"""Time for the cluster to be ready for the next run after a failure; a lost node is replaced in it."""
LOCK_FILE = "tmp/deeplearning-run-{}.lock"
DESCRIPTION = """
Run a program on every slot of the cluster. Run it on the master as the login user. Every host is checked for the job
first; `deeplearning plan` prints the plan. The job's output, a file a rank, and its checkpoints are in jobs/JOB on the
shared file system. A job of the same name resumes from its newest checkpoint: the path is in DEEPLEARNING_RESUME_FROM,
and replaces {checkpoint} in an argument; the program writes new ones to DEEPLEARNING_CHECKPOINT_PATH. Ctrl-C ends the
job on all hosts, and so does the end of the login session, except with --detach.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the job, its checkpoints and its end."""
    add_job_options(parser)
    parser.add_argument("--fresh", action="store_true", help="start over; the checkpoints are kept under another name")
    parser.add_argument(
        "--resume-args",
        default="",
        metavar="WORDS",
        help="add these if there is a checkpoint: --resume-args='--load {checkpoint}'",
    )
    parser.add_argument(
        "--checkpoint-pattern", default="", metavar="GLOB", help="pattern of the checkpoints; default: all files"
    )
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        dest="waits",
        default=True,
        help="wait for data and environment; --no-wait refuses the job instead",
    )
    parser.add_argument("--detach", action="store_true", help="return at once; the job continues after this session")
    parser.add_argument(
        "--retries",
        type=int,
        default=0,
        metavar="N",
        help="run a failed job again up to N times, each time from its newest checkpoint; default: 0",
    )
    parser.add_argument(
        "--max-seconds", type=int, default=0, metavar="N", help="stop the job after N seconds; default: no limit"
    )
    parser.add_argument(
        "--end-cluster", action="store_true", dest="ends_cluster", help="end the cluster when the job has ended"
    )
    parser.add_argument("--yes", action="store_true", help="skip the confirmation of --end-cluster")


def run(options: argparse.Namespace, context: Context) -> int:
    """Run the job and return its status; RefusedError if it cannot start."""
    job, remote = read_job(options), context.remote
    if remote.is_root and remote.user.user_id != 0:
        raise RefusedError(f"the user must be {remote.user.name}, under whom jobs run, got root; leave sudo out")
    if job.ends_cluster:
        confirm_end(remote, is_agreed=options.yes)
    return run_job(job, context, detaches=options.detach)


def run_job(job: JobDefinition, context: Context, *, detaches: bool) -> int:
    """Run a job and return its status, or 0 once it runs detached; RefusedError if it cannot start."""
    with hold_lock(context.root) as lock:
        prepared = prepare_run(job, context, StepLog(context.clock))
        if detaches:
            return detach(prepared, lock)
        prepared.begin()
    return supervise(prepared)


def prepare_run(job: JobDefinition, context: Context, steps: StepLog, limit: Deadline | None = None) -> PreparedRun:
    """
    Check and plan a run, and write its folder on the shared file system; RefusedError if it cannot start.

    The time limit of the job begins now, unless an earlier run of the job has begun it as `limit`.
    """
    try:
        return _prepare_run(job, context, steps, limit)
    except PlanError as error:
        raise RefusedError(str(error)) from error
    except OSError as error:
        raise RefusedError(f"could not write the job's folder: {error}") from error


def _prepare_run(job: JobDefinition, context: Context, steps: StepLog, limit: Deadline | None) -> PreparedRun:
    folder, newest, request = draft_job(job, context)
    preflight = check_hosts(job, context, request, steps)
    check_running(context)
    run = folder.next_run()
    ports = {host: answer.ports for host, answer in preflight.answers.items()}
    plan = make_plan(preflight.plan_hosts(), replace(request, folder=str(run.path), ports=ports))
    resumes = f", resumes from {newest}" if newest else ""
    steps.report(f"plan: {plan.launcher}, {plan.ranks} ranks = {len(plan.hosts)} hosts x {plan.slots}{resumes}")
    for line in describe_tcp(plan.hosts):
        steps.report(f"warning: {line}")
    if job.fresh and (kept := set_aside(folder.checkpoints, run.number)):
        steps.report(f"the earlier checkpoints are kept as {kept}")
    try:
        folder.start_run(run, context.user.name)
    except FileExistsError as error:
        raise RefusedError(f"{run.name} was started by another command at the same time; retry") from error
    run.write_plan(plan, render_plan(plan))
    steps.keep(run.launch_log)
    steps.report(f"folder: {run.path}")
    if limit is None and job.max_seconds:
        limit = Deadline.after(context.clock, job.max_seconds)
    retry = (lambda stop: begin_again(job, context, steps, limit, stop)) if job.retries else None
    return PreparedRun(run, plan, context, steps, newest, job.ends_cluster, limit, retry)


def begin_again(
    job: JobDefinition, context: Context, steps: StepLog, limit: Deadline | None, stop: StopRequest
) -> PreparedRun:
    """Begin the next run of a failed job once the cluster is ready; RefusedError late, Interruption to stop."""
    deadline = Deadline.after(context.clock, RETRY_SECONDS)
    if limit is not None:
        deadline = deadline.at_most(limit.remaining)
    report = on_change(steps.report)
    following = replace(job, fresh=False, retries=job.retries - 1)
    while True:
        present = Context(context.root, context.programs, context.clock)  # The membership may have changed.
        try:
            with hold_lock(context.root):
                with stop.interrupts():
                    prepared = prepare_run(following, present, steps, limit)
                prepared.begin()
        except RefusedError as error:
            if deadline.is_over:
                raise
            report(f"waiting to run again: {error}")
        else:
            return prepared
        with stop.interrupts():
            context.clock.wait(POLL_SECONDS)


def check_hosts(job: JobDefinition, context: Context, request: JobRequest, steps: StepLog) -> Preflight:
    """Refuse a job if a host is not ready for it, with every reason; with --wait, poll until all are provisioned."""
    report = on_change(steps.report)
    while True:
        preflight = survey_job(job, request, context.remote)
        faults = preflight.find_faults(is_elastic=job.elastic)
        unready = preflight.find_unready(list_needless(job, context.facts.needs))
        missing = describe_unready(unready)
        if faults or (unready and (not job.waits or has_failed(unready))):
            hint = "" if has_failed(unready) else "; omit --no-wait to wait for it"
            if ENVIRONMENT_STEP in unready:
                hint += "; add --without-environment to run in the image's own software"
            raise RefusedError(join_reasons([*faults, *(f"{line}{hint}" for line in missing)]))
        if not unready:
            silent = f", {len(preflight.silent)} do not" if preflight.silent else ""
            report(f"preflight: {len(preflight.answers)} hosts respond{silent}, generation {preflight.generation}")
            return preflight
        report(f"waiting: {'; '.join(missing)}")
        context.clock.wait(POLL_SECONDS)


def check_running(context: Context) -> None:
    """Refuse to run beside a job with a live supervisor; the status `running` alone does not count."""
    for run, status in JobsFolder(context.jobs_path).runs_with_status():
        is_own = status.supervisor.process_id == os.getpid()
        if status.is_running_on(context.facts.instance_id) and not is_own:
            raise RefusedError(f"job {run.name} is running; end it first: deeplearning stop {run.name}")


def join_reasons(reasons: list[str]) -> str:
    """Return a single reason unchanged, several with one line each."""
    return reasons[0] if len(reasons) == 1 else "".join(f"\n  - {reason}" for reason in reasons)


@contextmanager
def hold_lock(root: Path) -> Iterator[int]:
    """
    Hold the lock of the command that checks and starts a job; RefusedError while another command has it.

    Yields the handle of the lock, which a child inherits and must close; the kernel releases it with the process.
    """
    path = root / LOCK_FILE.format(os.geteuid())
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RefusedError("another `deeplearning run` is starting a job; wait for it") from error
    try:
        yield handle
    finally:
        os.close(handle)
