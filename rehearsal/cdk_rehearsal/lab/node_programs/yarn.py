"""Stands in for yarn: lists the nodes that run, which on EMR are core nodes, and refuses the rest."""

import sys
from collections.abc import Sequence

from .emr_controller import CHANNEL, Controller

QUESTION = ("node", "-list")
_ROW = "%16s\t%15s\t%17s\t%28s\n"
"""Of NodeCLI in Hadoop's source."""
_NODE_MANAGER, _WEB = 8041, 8042
"""Ports of a NodeManager on EMR."""


def main(arguments: Sequence[str]) -> int:
    """Answer a call; return the exit status."""
    if tuple(arguments) != QUESTION:
        sys.stderr.write(f"yarn: this stand-in answers {' '.join(QUESTION)} only, got {' '.join(arguments)}\n")
        return 1
    sys.stdout.write(render(Controller(CHANNEL.read_text().strip()).ask("nodes")))
    return 0


def render(names: Sequence[str]) -> str:
    """Return the list of nodes as YARN prints it."""
    rows = [(f"{name}:{_NODE_MANAGER}", "RUNNING", f"{name}:{_WEB}", "0") for name in names]
    head = ("Node-Id", "Node-State", "Node-Http-Address", "Number-of-Running-Containers")
    return f"Total Nodes:{len(rows)}\n" + "".join(_ROW % row for row in (head, *rows))
