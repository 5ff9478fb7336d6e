"""`deeplearning-cdk logs`: shows what nodes and adjuster logged."""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from cdk_rehearsal.error_report import report_error
from cdk_rehearsal.errors import UnavailableError
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_view.aws_responses import LookError
from deeplearning_view.log_lines import Line
from deeplearning_view.node_choice import find_node
from deeplearning_view.view_builder import make_view

_NAME_WIDTH = 22
_SEVERAL = ("all", "adjuster")


def show_logs(arguments: argparse.Namespace) -> int:
    """Print the lines; 0 shown, 2 could not be read."""
    try:
        access = open_cloud(arguments)
        from deeplearning_view.aws_reader import read_answers  # noqa: PLC0415 - imports botocore
        from deeplearning_view.log_search import LogSearch, choose_sources  # noqa: PLC0415

        answers = read_answers(access.clients, access.region, access.stack, with_lines=False)
        nodes = make_view(answers, datetime.now(timezone.utc)).nodes
        node = None if arguments.node in _SEVERAL else find_node(nodes, arguments.node)
        instance_id, role = (node.instance_id, node.role) if node else ("", "")
        sources = choose_sources(answers, arguments.node, instance_id, role)
        search = LogSearch(access.clients, sources, arguments.level)
        names = {entry.instance_id: entry.name for entry in nodes if entry.name}
        since = time.time() - arguments.since
        for lines in search.follow(since) if arguments.follow else [search.read(since)]:
            _print_lines(lines, names, is_raw=arguments.json)
    except (LookError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    return 0


def _print_lines(lines: Iterable[Line], names: Mapping[str, str], *, is_raw: bool) -> None:
    for line in lines:
        print(line.raw if is_raw else format_line(line, names))
    sys.stdout.flush()


def format_line(line: Line, names: Mapping[str, str]) -> str:
    """
    Return a line for people.

    Args:
        line: The line.
        names: Instance id -> host name, of members.
    """
    name = names.get(line.node, line.node)
    said = line.message if not line.remedy or line.remedy in line.message else f"{line.message}; {line.remedy}"
    return (
        f"{line.at:%Y-%m-%d %H:%M:%S}.{line.at.microsecond // 1000:03d}Z  {name:<{_NAME_WIDTH}}  {line.level:<8} {said}"
    )
