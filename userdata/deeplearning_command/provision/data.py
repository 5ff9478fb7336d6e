"""`deeplearning data`: the data that jobs read, how far it is, and staging it again."""

import argparse
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplearning_command.provision.data_presets import show_known_data
from deeplearning_command.provision.data_table import describe_progress, describe_sources, draw_sources
from deeplearning_command.provision.provision import check_user
from deeplearning_command.remote.nodes import HostResult, Remote, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.data_sets import DATA_SETS
from deeplearning_contract.document import ContractError, field, parse_object
from deeplearning_node.deadline import Clock
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import Step, data_step, is_ready, is_settled, read_status
from deeplearning_provision.status import Status

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

READY, UNREADY = 0, 1
PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 30
LINE_SECONDS = 10.0
"""Between two lines of progress where nobody can rewrite a line."""
DESCRIPTION = """
Show each source of data that the cluster's props name: where jobs find it, how far it is, and why it is not there. A
source with target efs is staged by the master for all nodes, one with target local by each node for itself.
"""
EPILOG = "exit status: 0 all data is there, 1 some is not, 2 nobody can tell"


def add_data(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "data", help="show the data that jobs read, or stage it again", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON instead of a table")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--all", action="store_true", dest="is_all", help="ask every node; on the master only")
    action.add_argument("--wait", action="store_true", help="end only when nothing changes any more")
    action.add_argument(
        "--stage",
        action="store_true",
        help="look at S3 again and bring what is missing or changed, also what was refused before",
    )
    action.add_argument(
        "--preset",
        choices=tuple(DATA_SETS),
        help="print where a known data set lies and what of it is missing, as JSON",
    )
    parser.add_argument("--at", default="", metavar="DIR", help="with --preset: look there, not where it is staged")
    parser.set_defaults(run=run_data)


def run_data(options: argparse.Namespace, root: Path, programs: Programs, clock: Clock | None = None) -> int:
    """
    Run the subcommand.

    Args:
        options: Of the command line.
        root: Where the node's file tree begins.
        programs: The node's programs.
        clock: Measures pauses. Default: real time.

    Returns:
        The exit status.

    Raises:
        RefusedError: The node is not prepared, the user may not do it, or it is being done already.
    """
    if options.preset:
        return show_known_data(options.preset, options.at, root)
    facts, clock = read_facts(root), clock or Clock()
    if options.is_all:
        return _show_all(Remote.open(root, programs), is_json=options.json)
    if options.stage:
        _stage(facts, root, programs, clock)
    elif options.wait:
        _wait(root, clock)
    steps = _read_data_steps(facts, root)
    sources = describe_sources(facts, steps)
    if options.json:
        sys.stdout.write(f"{json.dumps({'instance_id': facts.instance_id, 'sources': sources})}\n")
    else:
        sys.stdout.write(draw_sources([("", sources)]))
    return READY if is_ready(steps) else UNREADY


def _read_data_steps(facts: NodeFacts, root: Path) -> Mapping[str, Step]:
    steps = read_status(root)
    return {data_step(source.name): steps[data_step(source.name)] for source in facts.needs.data}


def _wait(root: Path, clock: Clock) -> None:
    progress = Progress(clock)
    while True:
        steps = _read_data_steps(read_facts(root), root)
        for name, step in steps.items():
            progress.tell(name, step)
        if is_settled(steps):
            return progress.finish()
        clock.wait(PAUSE_SECONDS)


def _stage(facts: NodeFacts, root: Path, programs: Programs, clock: Clock) -> None:
    check_user(facts)
    progress = Progress(clock)
    # Imported here: it brings botocore.
    data = importlib.import_module("deeplearning_provision.data.sources")
    try:
        data.stage_all(facts, Status(root, clock, progress.tell), root, programs, clock, is_forced=True)
    except BlockingIOError as error:
        raise RefusedError("staging is under way already; follow it with: deeplearning data --wait") from error
    finally:
        progress.finish()


class Progress:
    """Shows on standard error how far the sources are: one line that is rewritten, or a line now and then."""

    def __init__(self, clock: Clock) -> None:
        """Begin with nothing."""
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._shown: dict[str, tuple[str, float]] = {}
        self._is_open = False

    def tell(self, name: str, step: Step) -> None:
        """Show a step, if it is news."""
        now = self._clock.read()
        state, at = self._shown.get(name, ("", float("-inf")))
        found = f"{step.state} {step.detail}"
        if found == state and (step.total == 0 or now - at < (1.0 if self._is_terminal else LINE_SECONDS)):
            return
        self._shown[name] = (found, now)
        text = f"{name.partition(':')[2]}: {describe_progress(step)} {step.detail}".replace("\n", " ")
        is_moving = self._is_terminal and found == state
        sys.stderr.write(f"\r\033[K{text}" if is_moving else f"{self._end_line()}{text}\n")
        sys.stderr.flush()
        self._is_open = is_moving

    def finish(self) -> None:
        """End the line that is being rewritten."""
        sys.stderr.write(self._end_line())
        self._is_open = False

    def _end_line(self) -> str:
        return "\n" if self._is_open else ""


def _show_all(remote: Remote, *, is_json: bool) -> int:
    results = remote.run_all(remote.hosts, f"{COMMAND_FILE} data --json || true", seconds=ANSWER_SECONDS)
    answers = [(result.host, _read_answer(result)) for result in results]
    if is_json:
        nodes = [{"host": host, **({"cause": found} if isinstance(found, str) else {"sources": found})}
                 for host, found in answers]  # fmt: skip
        sys.stdout.write(f"{json.dumps({'cluster': remote.facts.cluster, 'nodes': nodes})}\n")
    else:
        sys.stdout.write(draw_sources(answers))
    is_good = all(
        not isinstance(found, str) and all(source.get("state") == "done" for source in found) for _, found in answers
    )
    return READY if is_good else UNREADY


def _read_answer(result: HostResult) -> "list[dict[str, Any]] | str":
    """Return what a node said of its sources, or why it said nothing."""
    if result.status is None:
        return result.cause
    lines = result.output.splitlines() or [""]
    try:
        return list(field(parse_object(lines[-1], "its answer"), "sources", list, "answer"))
    except ContractError:
        return lines[-1] or f"its command ended with status {result.status}"
