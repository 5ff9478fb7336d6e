"""`deeplearning-cdk status`: shows a cluster once, or live until it has formed or failed."""

import argparse
import json
import sys
import time
from datetime import datetime, timezone

from cdk_rehearsal.printing import make_printable, open_terminal
from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.rendering import describe_capacity, describe_cluster, render_page, render_text
from deeplearning_view.view import ClusterView
from deeplearning_view.view_builder import make_view

_INTERVAL_SECONDS = 5.0
_LAB_INTERVAL_SECONDS = 1.0
_MOST_MISSES = 3
"""Consecutive reads that may fail while the cluster is watched."""

_JSON_KEYS = """\
--json prints one object; keys are added, never renamed:
  stack, region, stack_status, cluster   names, and CloudFormation's status
  verdict                                forming, formed, failed, stopped (on purpose, no node) or deleted
  phase, generation, formed, asked       from the state item; the master counts as a node
  since, reason, notice                  start of the verdict; cause of a smaller cluster; cause of an early end
  nodes[]                                name, role, instance_id, instance_type, address, zone, image_id, lifecycle,
                                         purchase, phase, gpu_count, launched_at, age_seconds
  problems[]                             what, cause, remedy, is_past, lines[] (at, level, message)
  warnings[], log_in[], unread[]         texts; unread lists the reads that failed
  looked_at                              time of the reads, UTC; all times are ISO 8601
  capacity                               only with workers.fallbacks: stage (asking, leaving, resting, found, none),
                                         candidate, words, position, count, launched, requested, since, until, then,
                                         attempts[] (candidate, words, launched, requested, kind, began, ended)
"""
_STATUS_END = "exit status: 0 formed, forming or stopped, 1 failed or deleted, 2 could not be read, 130 interrupted"


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "status",
        help="show a cluster's nodes and progress, and failures with their remedies",
        description="Show the stack and nodes of a cluster, their progress, failures with causes and remedies,\n"
        "and the commands to log in. It only reads, and omits data that it may not read.\n"
        "While the cluster forms, a terminal shows it live until it has formed or failed.",
        epilog=f"{_JSON_KEYS}\n{_STATUS_END}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place(parser)
    parser.add_argument("--watch", action="store_true", help="poll until it has formed or failed")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the cluster; return 0 if formed, forming or stopped, 1 if failed or deleted, 2 if it could not be read."""
    try:
        access = open_cloud(arguments)
        view = read_view(access)
        is_live = sys.stdout.isatty() and not arguments.json
        if not view.has_ended and (arguments.watch or is_live):
            view = _watch_live(access, view) if is_live else _watch(access, view)
        if arguments.json:
            print(json.dumps(view.to_document(), indent=2))
        else:
            _print_page(view)
    except (ViewError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    return 1 if view.verdict in ("failed", "deleted") else 0


def read_view(access: CloudAccess) -> ClusterView:
    """Read the cluster now."""
    return make_view(access.read(with_lines=True), datetime.now(timezone.utc))


def _watch(access: CloudAccess, view: ClusterView) -> ClusterView:
    """Poll until the formation has ended, and print changes on standard error."""
    printed: tuple[str, ...] = ()
    while not view.has_ended:
        changes = _summarize(view)
        for line in changes:
            if line not in printed:
                print(f"{view.looked_at[11:19]}  {line}", file=sys.stderr, flush=True)
        printed = changes
        time.sleep(_interval(access))
        view = _read_again(access)
    return view


def _watch_live(access: CloudAccess, view: ClusterView) -> ClusterView:
    """Show the page until the formation has ended, then clear it: the caller prints the last page."""
    from rich.console import Console, Group  # noqa: PLC0415 - only a terminal needs it
    from rich.live import Live  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.spinner import Spinner  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    spinner, console = Spinner("dots"), Console(file=open_terminal(sys.stdout), highlight=False)
    with Live(console=console, transient=True, refresh_per_second=8) as live:
        while not view.has_ended:
            done, steps = count_steps(view)
            head = make_printable(describe_cluster(view))
            spinner.update(text=Text(f"{head}; {done} of {steps} steps (Ctrl-C ends the watch)"))
            page = [Text(make_printable(line.text), style=line.style) for line in render_page(view)]
            live.update(Group(*page, ProgressBar(total=max(steps, 1), completed=done, width=60), spinner))
            time.sleep(_interval(access))
            view = _read_again(access)
    return view


def count_steps(view: ClusterView) -> tuple[int, int]:
    """Return the completed steps, and all: each node launches, logs its first line, and becomes a member."""
    here = [node for node in view.nodes if not node.is_gone]
    spoken = [node for node in here if node.phase not in ("launching", "booting")]
    members = [node for node in here if node.name]
    return min(len(here) + len(spoken) + len(members), 3 * view.asked), 3 * view.asked


def _read_again(access: CloudAccess, misses: int = 0) -> ClusterView:
    """Read again; one or two reads in a row may fail."""
    try:
        return read_view(access)
    except ViewError:
        if misses + 1 == _MOST_MISSES:
            raise
    time.sleep(_interval(access))
    return _read_again(access, misses + 1)


def _interval(access: CloudAccess) -> float:
    return _INTERVAL_SECONDS if access.lab is None else _LAB_INTERVAL_SECONDS


def _summarize(view: ClusterView) -> tuple[str, ...]:
    """Return the lines whose changes are printed, without ages."""
    nodes = [f"{node.name or node.instance_id}  {node.role}  {node.lifecycle}  {node.phase}" for node in view.nodes]
    head = f"{view.stack_status}  phase {view.phase or 'none yet'}, {view.asked} nodes asked for"
    return (head, *describe_capacity(view.capacity), *nodes)


def _print_page(view: ClusterView) -> None:
    if not sys.stdout.isatty():
        print(render_text(view))
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=open_terminal(sys.stdout), highlight=False)
    for line in render_page(view):
        console.print(Text(make_printable(line.text), style=line.style), soft_wrap=True)
