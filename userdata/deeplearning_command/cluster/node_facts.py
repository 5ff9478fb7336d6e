"""`deeplearning node-facts`: facts of one host; other commands run it on every host before a job starts."""

import argparse
import sys

from deeplearning_command.context import Context
from deeplearning_jobs.hosts.probe import probe_host
from deeplearning_node.health.node_check import read_membership
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import read_status

DESCRIPTION = (
    "Print the facts of this node and its jobs as one line of JSON. `deeplearning run` runs this on every node."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the ports and the programs to find."""
    parser.add_argument("--ports", type=int, default=0, metavar="N", help="offer N free ports")
    parser.add_argument("--search", default="", metavar="PATH", help="search for programs here too")
    parser.add_argument("wanted", nargs="*", metavar="WANTED", help="a path, or a program, that must exist")


def run(options: argparse.Namespace, context: Context) -> int:
    """Print the facts."""
    facts, root = context.facts, context.root
    membership, _ = read_membership(root)
    searched = Programs(":".join(filter(None, [options.search, context.programs.search_path])))
    found = probe_host(
        root, searched, facts, membership, read_status(root), port_count=options.ports, wanted=options.wanted
    )
    sys.stdout.write(found.to_line())
    return 0
