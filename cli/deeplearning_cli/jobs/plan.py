"""`deeplearning-cdk plan`: prints the command lines and the places of a job, without a start."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.definition import add_job, read_job
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.output import JobOutput
from deeplearning_cli.jobs.platform import describe, upload_files
from deeplearning_contract.document import ContractError, parse_object


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="show the plan of a job, with reasons",
        description="Print what `submit` would run, on the cluster's nodes as they are now: the command lines, the "
        "place of each rank, and the reason for each part. It uploads the source folder and starts nothing.",
        epilog="exit status: 0 planned, 1 planned but the job would be refused now, 2 it cannot be planned; "
        "--json prints {platform, cluster, plan} with the keys of `deeplearning plan --json`; "
        "example: deeplearning-cdk plan job.toml",
    )
    add_job(parser)
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    lines: list[str] = []
    try:
        file = read_job(Path(arguments.job), arguments)
        platform = find_platform(open_cloud(arguments))
        job = upload_files(file, platform)
        if not arguments.json:
            return platform.plan(job, JobOutput().print_line, as_json=False)
        status = platform.plan(job, lines.append, as_json=True)
        print(describe(platform, plan=read_plan(lines)))
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    return status


def read_plan(lines: Sequence[str]) -> dict[str, Any]:
    """Return the plan of the master's output, which has its warnings too; UnavailableError without one."""
    try:
        begin = lines.index("{")
        return parse_object("\n".join(lines[begin : lines.index("}", begin) + 1]), "the plan")
    except (ValueError, ContractError) as error:
        raise UnavailableError(f"the master must print a plan, got: {'; '.join(lines[-3:])}") from error
