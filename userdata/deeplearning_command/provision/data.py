"""`deeplearning data`: data for jobs, the progress of its staging, and another staging."""

import argparse
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeplearning_command.context import Context
from deeplearning_command.provision.progress import Progress, describe_progress, estimate_seconds
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.terminal import RefusedError, align, print_line
from deeplearning_contract.document import field, read_record
from deeplearning_contract.names import DATA_DIRECTORY, DATA_SETS
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.provision_status import ENVIRONMENT_STEP, Step, data_step, is_ready, is_settled, read_status
from deeplearning_provision.status import Status

POLL_SECONDS = 2.0
ANSWER_SECONDS = 30
COLUMNS = ("SOURCE", "TARGET", "STATE", "PROGRESS", "DETAIL")
_INNER = "data"
"""Folder that contains everything in archives of deeplearning-cfn."""
DESCRIPTION = """
Show each source of data of the cluster's props: its path for jobs, its progress, and the cause of a failure. The master
stages a source with target efs for all nodes; each node stages a source with target local for itself.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the action and the output format."""
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead of a table")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--all", action="store_true", dest="is_all", help="show every node; only on the master")
    action.add_argument("--wait", action="store_true", help="wait until no source changes any more")
    action.add_argument(
        "--stage",
        action="store_true",
        help="read S3 again and stage missing or changed data, and also refused data",
    )
    action.add_argument(
        "--preset",
        choices=tuple(DATA_SETS),
        help="print the folder and the missing parts of a known data set as JSON",
    )
    parser.add_argument("--at", default="", metavar="DIR", help="with --preset: check this folder instead")


def run(options: argparse.Namespace, context: Context) -> int:
    """Show the data, after staging it or waiting for it if requested."""
    if options.preset:
        return show_preset(options.preset, Path(options.at or context.path(f"{DATA_DIRECTORY}/{options.preset}")))
    facts = context.facts
    if options.is_all:
        return show_all(context.remote, is_json=options.json)
    if options.stage:
        stage(context)
    elif options.wait:
        wait(context)
    steps = read_data_steps(context.root)
    sources = describe_sources(facts, steps)
    if options.json:
        print_line(json.dumps({"instance_id": facts.instance_id, "sources": sources}))
    else:
        sys.stdout.write(draw_sources({"": sources}))
    return 0 if is_ready(steps) else 1


def show_preset(name: str, staged: Path) -> int:
    """Print as JSON the folder of a known data set, its parts (name -> path), and the names of missing ones."""
    parts = DATA_SETS[name]
    folder = max((staged, staged / _INNER), key=lambda place: sum((place / path).exists() for path in parts.values()))
    missing = [part for part, path in parts.items() if not (folder / path).exists()]
    paths = {part: str(folder / path) for part, path in parts.items()}
    print_line(json.dumps({"folder": str(folder), "parts": paths, "missing": missing}))
    return 1 if missing else 0


def read_data_steps(root: Path) -> Mapping[str, Step]:
    """Return the step of each source."""
    return {name: step for name, step in read_status(root).items() if name != ENVIRONMENT_STEP}


def wait(context: Context) -> None:
    """Poll this node's status, and report progress, until no step changes any more."""
    progress = Progress(context.clock, describe_step)
    while True:
        steps = read_data_steps(context.root)
        for name, step in steps.items():
            progress.report(name, step)
        if is_settled(steps):
            return progress.finish()
        context.clock.wait(POLL_SECONDS)


def stage(context: Context) -> None:
    """Stage the sources in this process, including refused ones."""
    context.require_login_user()
    progress = Progress(context.clock, describe_step)
    sources = importlib.import_module("deeplearning_provision.data.sources")  # It loads botocore.
    status = Status(context.root, context.clock, progress.report)
    try:
        sources.stage_all(context.facts, status, context.root, context.programs, context.clock, is_forced=True)
    except BlockingIOError as error:
        raise RefusedError("another process is staging; follow it with: deeplearning data --wait") from error
    finally:
        progress.finish()


def describe_step(name: str, step: Step) -> str:
    """Return a step in one line."""
    return f"{name.partition(':')[2]}: {describe_progress(step)} {step.detail}"


def show_all(remote: Remote, *, is_json: bool) -> int:
    """Show the sources of every node."""
    nodes = remote.ask(["data", "--json"], read_sources, seconds=ANSWER_SECONDS)
    if is_json:
        found = [
            {"host": host, "cause" if isinstance(sources, str) else "sources": sources}
            for host, sources in nodes.items()
        ]
        print_line(json.dumps({"cluster": remote.facts.cluster, "nodes": found}))
    else:
        sys.stdout.write(draw_sources(nodes))
    is_good = all(
        not isinstance(sources, str) and all(source.get("state") == "done" for source in sources)
        for sources in nodes.values()
    )
    return 0 if is_good else 1


def read_sources(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sources that a node printed."""
    return field(document, "sources", list, "answer")


def describe_sources(facts: NodeFacts, steps: Mapping[str, Step]) -> list[dict[str, Any]]:
    """Return an object for each source, with the path where jobs find it, and its step."""
    found = []
    for source in facts.needs.data:
        step = steps[data_step(source.name)]
        found.append(
            {
                "name": source.name,
                "target": source.target,
                "uri": f"s3://{source.bucket}/{source.key}",
                "path": f"{DATA_DIRECTORY}/{source.name}" + (".s3" if source.target == "stream" else ""),
                **step.to_document(),
                "seconds_left": estimate_seconds(step),
            }
        )
    return found


def draw_sources(nodes: Mapping[str, list[dict[str, Any]] | str]) -> str:
    """Return a line for each source of each host, or the reason for no response; a single node has an empty name."""
    has_hosts = any(nodes)
    rows: list[tuple[str, ...]] = [("HOST", *COLUMNS) if has_hosts else COLUMNS]
    for host, sources in nodes.items():
        head = (host,) if has_hosts else ()
        if isinstance(sources, str):
            rows.append((*head, "", "", "no answer", "", sources))
            continue
        for source in sources:
            step = read_record(Step, source, "source")
            detail = step.detail + (f"; at {source['path']}" if step.state == "done" else "")
            rows.append(
                (*head, str(source["name"]), str(source["target"]), step.state, describe_progress(step), detail)
            )
    return align(rows) if len(rows) > 1 else "the cluster's props name no data\n"
