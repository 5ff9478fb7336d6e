"""`deeplearning jobs`: the jobs on the shared file system, and the states of their newest runs."""

import argparse
import json
import sys
from typing import Any

from deeplearning_command.context import Context
from deeplearning_command.terminal import align
from deeplearning_jobs.runs.job_folder import JobFolder, JobsFolder
from deeplearning_jobs.runs.log_follower import read_last_lines
from deeplearning_node.health.findings import last_line

READ_LINES = 20
"""Lines at the end of a log among which the last one is found that is no frame."""
DESCRIPTION = """
List the jobs of the cluster, with the state of the newest run of each and the last line of its rank 0. A run is `lost`
if its node or supervisor ended without a status.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the form of the list."""
    parser.add_argument("--json", action="store_true", help="print one JSON object: {jobs: [...]}")


def run(options: argparse.Namespace, context: Context) -> int:
    """Print the jobs."""
    jobs = [described for job in JobsFolder(context.jobs_path).jobs() if (described := describe_job(job, context))]
    if options.json:
        sys.stdout.write(json.dumps({"jobs": jobs}) + "\n")
    elif not jobs:
        sys.stdout.write("no job has been run\n")
    else:
        rows = [("JOB", "STATE", "MEMBERS", "STARTED", "LAST LINE OF RANK 0")]
        rows += [(j["run"], j["state"], str(j["members"]), j["started"], j["last_line"]) for j in jobs]
        sys.stdout.write(align(rows))
    return 0


def describe_job(job: JobFolder, context: Context) -> dict[str, Any] | None:
    """Return the newest run of a job that has a status; None if no run has."""
    for run in reversed(job.runs()):
        status = run.read_status()
        if status is None:
            continue
        is_live = status.state not in ("running", "retrying") or status.is_running_on(context.facts.instance_id)
        last = read_last_lines(run.find_rank_zero_log(), READ_LINES)
        return {
            "name": job.name,
            "run": run.name,
            "state": status.state if is_live else "lost",
            "status": status.status,
            "launcher": status.launcher,
            "members": len(status.hosts),
            "started": status.started,
            "ended": status.ended,
            "cause": status.cause,
            "resumed_from": status.resumed_from,
            "last_line": last_line("\n".join(last)),
        }
    return None
