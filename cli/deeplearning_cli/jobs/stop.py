"""`deeplearning-cdk stop`: ends a job on every node, and no other."""

import argparse

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.output import JobOutput
from deeplearning_cli.jobs.platform import describe


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "stop",
        help="end a job on every node",
        description="End a job on every node. Its processes get SIGTERM, and SIGKILL after 10 s, or 2 minutes on EKS; "
        "other jobs are not affected. Submit the job again to resume from its newest checkpoint.",
        epilog="exit status: 0 no process of the job is left, 1 some may be, 2 there is no such job, or the cluster "
        "could not be reached; --json prints {platform, cluster, job, status, lines[]}; "
        "example: deeplearning-cdk stop mask-rcnn",
    )
    parser.add_argument("job", metavar="JOB", help="name of the job")
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """End the job."""
    lines: list[str] = []
    try:
        platform = find_platform(open_cloud(arguments))
        status = platform.stop(arguments.job, lines.append if arguments.json else JobOutput().print_line)
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(describe(platform, job=arguments.job, status=status, lines=lines))
    return status
