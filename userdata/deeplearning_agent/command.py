"""`deeplearning`, the command that users have on every node."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from deeplearning_agent.atomic_file import write_file
from deeplearning_agent.health_command import add_health
from deeplearning_agent.inquiry import COMMAND_FILE
from deeplearning_agent.node import Node
from deeplearning_agent.node_facts import NodeFacts
from deeplearning_agent.programs import Programs, system_path
from deeplearning_contract.names import AGENT_DIRECTORY

DESCRIPTION = "What a user does with a cluster, on its nodes."

# Isolated: no PYTHONPATH, user site or current folder changes what runs, and children inherit no path of ours.
_START = (
    f"import sys; sys.path.insert(0, {AGENT_DIRECTORY!r}); "
    "from deeplearning_agent.command import main; sys.exit(main(sys.argv[1:]))"
)


def install_command(node: Node) -> None:
    """
    Put the command on the node; the same node leaves the same bytes.

    Effects: /usr/local/bin/deeplearning, which runs the agent's interpreter, and the facts it needs in
    /opt/deeplearning/node.json.
    """
    NodeFacts.of(node).write(node.root)
    start = f'exec {shlex.quote(sys.executable)} -I -B -c {shlex.quote(_START)} "$@"'
    write_file(node.path(COMMAND_FILE), f"#!/bin/sh\n# Written by deeplearning-agent.\n{start}\n", 0o755)


def main(arguments: Sequence[str], root: Path = Path("/"), programs: Programs | None = None) -> int:
    """
    Run one subcommand.

    Args:
        arguments: The command line, without the program.
        root: Where the node's file tree begins; `/` but for tests.
        programs: The node's programs. Default: those of the user's `PATH` and of the system.

    Returns:
        The exit status: 0, 1 when the answer is bad news, 2 when there is no answer.
    """
    options = make_parser().parse_args(arguments)
    status: int = options.run(options, root, programs or Programs(system_path(os.environ.get("PATH", ""))))
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; each subcommand adds itself, with the function that runs it as the default of `run`."""
    parser = argparse.ArgumentParser(prog="deeplearning", description=DESCRIPTION)
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_health(subcommands)
    return parser
