"""Puts `deeplearning`, the command that users have, on the node."""

import shlex
import sys

from deeplearning_contract.names import AGENT_DIRECTORY
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE, NodeFacts

# Isolated: no PYTHONPATH, user site or current folder changes what runs, and children inherit no path of ours.
_START = (
    f"import sys; sys.path.insert(0, {AGENT_DIRECTORY!r}); "
    "from deeplearning_command.main import main; sys.exit(main(sys.argv[1:]))"
)


def install_command(node: Node) -> None:
    """
    Install /usr/local/bin/deeplearning, which runs the agent's interpreter, and the facts that it needs.

    The same node leaves the same bytes.
    """
    NodeFacts.of(node).write(node.root)
    start = f'exec {shlex.quote(sys.executable)} -I -B -c {shlex.quote(_START)} "$@"'
    write_file(node.path(COMMAND_FILE), f"#!/bin/sh\n# Written by deeplearning-agent.\n{start}\n", 0o755)
