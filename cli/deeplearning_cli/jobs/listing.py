"""`deeplearning-cdk jobs`: lists the jobs of a cluster."""

import argparse
from datetime import datetime, timezone
from typing import Any

from cdk_rehearsal.printing import make_printable
from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.platform import describe

_HEAD = ("job", "platform", "state", "members", "age", "last line of rank 0")
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_LONGEST_LINE = 100


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "jobs",
        help="list the jobs of a cluster, and their states",
        description="List the jobs of a cluster with the state of the newest run of each: running, retrying, "
        "succeeded, failed, stopped, or lost if its node ended with it; on EMR and EKS also queued, and on SageMaker "
        "queued, stopping or interrupted.",
        epilog="exit status: 0 listed, 2 could not be read; --json prints {platform, cluster, jobs[]} with the keys of "
        "`deeplearning jobs --json`; example: deeplearning-cdk jobs",
    )
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the jobs."""
    try:
        platform = find_platform(open_cloud(arguments))
        jobs = platform.list_jobs()
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(describe(platform, jobs=jobs))
    elif not jobs:
        print("no job has been submitted; start one: deeplearning-cdk submit job.toml")
    else:
        print(format_jobs(jobs, platform.settings.platform, datetime.now(timezone.utc)))
    return 0


def format_jobs(jobs: list[dict[str, Any]], platform: str, now: datetime) -> str:
    """Return the table."""
    rows = [_HEAD]
    for job in jobs:
        age = format_age((now - datetime.fromisoformat(job["started"])).total_seconds())
        line = make_printable(job["last_line"][:_LONGEST_LINE])
        rows.append((make_printable(job["run"]), platform, job["state"], str(job["members"]), age, line))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def format_age(seconds: float) -> str:
    """Return an age such as `90s`, `12m`, `5h` or `3d`."""
    return next((f"{int(seconds // size)}{unit}" for size, unit in _UNITS if seconds >= 2 * size), f"{int(seconds)}s")
