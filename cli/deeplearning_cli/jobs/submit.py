"""`deeplearning-cdk submit`: starts a job on a cluster, and follows it to its end."""

import argparse
import sys
from pathlib import Path
from typing import Any

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.definition import add_job, read_job
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.kubernetes_jobs import require_kubernetes
from deeplearning_cli.jobs.output import JobOutput, print_progress
from deeplearning_cli.jobs.platform import ENDED_STATES, JobPlatform, Queued, Refused, describe, find_job, upload_files

_KEYS = """\
keys of JOB.TOML; only name and program are required:
  name             name of the job, and of its folder with checkpoints
  program          list: the program and its arguments, run in the source folder
  launcher         horovod (the default), or another of: deeplearning run --help
  source           folder to upload, relative to the file, at most 10 MB packed
  members          nodes, the master included; default: all
  gpus_per_member  ranks on each node; default: one a GPU, or one without GPUs
  data             list: names of the stack's data that the job waits for; default: all of it
  env              table: variables of every rank
  max_seconds      time limit with all retries; default: none
  retries          further runs after a failure, each from the newest checkpoint; default: 0
"""


def add_parser(commands: Commands) -> None:
    """Add `submit`."""
    parser = commands.add_parser(
        "submit",
        help="start a job on a cluster",
        description="Upload a job's source folder and start the job: on the master through Session Manager, on EMR as\n"
        "a step of the cluster, on SageMaker as a training job, on EKS as a Job of Kubernetes. The output of\n"
        "rank 0 is shown until the job ends; Ctrl-C, or --detach, leaves the job running. A job of the same name\n"
        "resumes from its newest checkpoint. "
        "On EC2 and EMR, the command needs the AWS CLI with its Session Manager plugin.",
        epilog=f"{_KEYS}\nexit status: that of the job, 0 with --detach, 2 could not be started, 130 interrupted; "
        "the job goes on\n--json prints {platform, cluster, job} with the keys of `deeplearning-cdk jobs --json`, and "
        "the output of the job on\nstandard error",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job(parser)
    add_place(parser)
    parser.add_argument("--detach", action="store_true", help="return when the job has started or is queued")
    parser.add_argument("--fresh", action="store_true", help="start over; the checkpoints are kept under another name")
    parser.add_argument("--queue", metavar="NAME", help="on EKS, wait in this LocalQueue of Kueue")
    parser.add_argument(
        "--dry-run", action="store_true", help="on EKS, upload the source, and print the Job instead of creating it"
    )
    parser.add_argument("-o", "--output", choices=["yaml"], default="yaml", help="format of --dry-run")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Start the job, and follow it; return its exit status, 0 with --detach, or 2 if it could not be started."""
    output = JobOutput(sys.stderr if arguments.json else None)
    try:
        file = read_job(Path(arguments.job), arguments)
        platform = find_platform(open_cloud(arguments))
        if arguments.queue is not None:
            platform = require_kubernetes(platform, "--queue").choose_queue(arguments.queue)
        if arguments.dry_run:
            print(require_kubernetes(platform, "--dry-run").describe(upload_files(file, platform)), end="")
            return 0
        job = upload_files(file, platform)
        start = platform.start(job, output.print_line)
        if isinstance(start, Queued):
            print_progress(start.reason)
            start = start if arguments.detach else start.await_start()
        if isinstance(start, Refused) and arguments.json:
            return report_error(UnavailableError(f"the job did not start: {output.last_line}"), as_json=True)
        if isinstance(start, Refused):
            return start.status
        if arguments.detach and not arguments.json:
            return 0
        if not arguments.detach:
            print_progress(f"follow it again: deeplearning-cdk logs --job {job.name} --follow")
        found = find_job(platform, job.name) if arguments.detach else follow(platform, job.name, output)
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(describe(platform, job=found))
    return 0 if arguments.detach else 1 if found["status"] is None else int(found["status"])


def follow(platform: JobPlatform, name: str, output: JobOutput) -> dict[str, Any]:
    """Show the output of a job until its end, with all its retries; return it as `find_job` does."""
    while True:
        platform.follow(name, output, lines=1000)
        job = find_job(platform, name)
        if job["state"] in ENDED_STATES:
            print_progress(f"{job['run']} {job['state']}{': ' + job['cause'] if job['cause'] else ''}")
            return job
