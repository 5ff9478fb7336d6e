"""`deeplearning-cdk plan`: prints the command lines and the places of a job, without a start."""

import argparse
from pathlib import Path

from cdk_rehearsal.error_report import report_error
from cdk_rehearsal.errors import UnavailableError
from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.jobs.definition import add_job, read_job
from deeplearning_cli.jobs.finding import find_cluster
from deeplearning_cli.jobs.output import print_line
from deeplearning_cli.jobs.submit import upload_source


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="show the plan of a job, with reasons",
        description="Print what `submit` would run, on the cluster's nodes as they are now: the command lines, the "
        "place of each rank, and the reason for each part. It uploads the source folder and starts nothing.",
        epilog="exit status: 0 planned, 1 planned but the job would be refused now, 2 it cannot be planned; "
        "example: deeplearning-cdk plan job.toml",
    )
    add_job(parser)
    add_place(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    try:
        file = read_job(Path(arguments.job), arguments)
        cluster = find_cluster(open_cloud(arguments))
        return cluster.plan(upload_source(file, cluster), print_line)
    except UnavailableError as error:
        return report_error(error)
