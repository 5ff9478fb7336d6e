"""`deeplearning-cdk logs`: shows the logs of nodes and adjuster, or the output of a job."""

import argparse
import re
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.output import JobOutput
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.log_lines import LEVELS, Line
from deeplearning_view.selection import find_node
from deeplearning_view.view_builder import make_view

_NAME_WIDTH = 22
_SEVERAL = ("all", "adjuster")
_TIME = re.compile(r"(\d{1,6})([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "logs",
        help="show the logs of nodes and adjuster, or the output of a job",
        description="Show the logs of nodes and adjuster, merged by time; log groups outlive a rollback of the stack. "
        "With --job, show the output of a job from the shared file system, through a session on the master; on "
        "SageMaker from its log group, and on EKS that of the first pod, through the API server.",
        epilog="exit status: 0 shown, 2 could not be read, 130 interrupted; "
        "example: deeplearning-cdk logs --node master --since 2h --follow",
    )
    add_place(parser)
    parser.add_argument(
        "--node",
        default="all",
        metavar="NAME",
        help="a host name, master, an instance id, adjuster, or all (default: %(default)s)",
    )
    parser.add_argument(
        "--since",
        type=read_time,
        default="1h",
        metavar="TIME",
        help="age of the oldest line, such as 90s, 30m, 1h, 2d (default: 1h)",
    )
    parser.add_argument("--follow", action="store_true", help="keep printing new lines; with --job, until its end")
    parser.add_argument("--job", metavar="JOB", help="show the last lines of this job's newest run instead")
    parser.add_argument("--rank", metavar="R", help="with --job, the rank (default: 0)")
    parser.add_argument(
        "--level",
        type=str.upper,
        choices=LEVELS,
        default="INFO",
        help="the lowest level shown, in upper or lower case (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print the lines unchanged")
    parser.set_defaults(run=run)


def read_time(text: str) -> float:
    """Parse a length of time such as `90s`, `30m`, `1h` or `2d`, and return it in seconds."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a number with s, m, h or d, got {text!r}; write e.g. 1h")
    return float(int(found[1]) * _UNIT_SECONDS[found[2]])


def run(arguments: argparse.Namespace) -> int:
    """Print the lines; 0 shown, 2 could not be read."""
    try:
        access = open_cloud(arguments)
        if arguments.job is not None:
            platform = find_platform(access)
            return platform.follow(arguments.job, JobOutput(), rank=arguments.rank, to_end=arguments.follow)
        from deeplearning_view.log_search import LogSearch, choose_sources  # noqa: PLC0415 - imports botocore

        responses = access.read()
        nodes = make_view(responses, datetime.now(timezone.utc)).nodes
        node = None if arguments.node in _SEVERAL else find_node(nodes, arguments.node)
        instance_id, role = (node.instance_id, node.role) if node else ("", "")
        sources = choose_sources(responses, arguments.node, instance_id, role)
        search = LogSearch(access.clients, sources, arguments.level)
        names = {entry.instance_id: entry.name for entry in nodes if entry.name}
        since = time.time() - arguments.since
        for lines in search.follow(since) if arguments.follow else [search.read(since)]:
            _print_lines(lines, names, is_raw=arguments.json)
    except (ViewError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    return 0


def _print_lines(lines: Iterable[Line], names: Mapping[str, str], *, is_raw: bool) -> None:
    for line in lines:
        print(line.raw if is_raw else format_line(line, names))
    sys.stdout.flush()


def format_line(line: Line, names: Mapping[str, str]) -> str:
    """Return a readable line; `names` maps instance ids of members to host names."""
    name = names.get(line.node, line.node)
    remedy = line.reason.remedy
    text = line.message if not remedy or remedy in line.message else f"{line.message}; {remedy}"
    return (
        f"{line.at:%Y-%m-%d %H:%M:%S}.{line.at.microsecond // 1000:03d}Z  {name:<{_NAME_WIDTH}}  {line.level:<8} {text}"
    )
