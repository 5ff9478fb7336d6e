"""`deeplearning node-facts`: what a host answers before a job starts; `deeplearning run` asks it of every host."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import read_facts
from deeplearning_jobs.hosts.probe import probe_host
from deeplearning_node.health.node_check import read_membership
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import read_status

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

DESCRIPTION = (
    "Print, as one line of JSON, what this node has and what runs on it. `deeplearning run` asks every node so."
)


def add_node_facts(subcommands: "Subcommands") -> None:
    """Add the subcommand; no list of commands shows it."""
    parser = subcommands.add_parser("node-facts", description=DESCRIPTION)
    parser.add_argument("--ports", type=int, default=0, metavar="N", help="offer N free ports")
    parser.add_argument("--search", default="", metavar="PATH", help="look for programs here too")
    parser.add_argument("wanted", nargs="*", metavar="WANTED", help="a path, or a program, that must be there")
    parser.set_defaults(run=run_node_facts)


def run_node_facts(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The agent has not prepared the node.
    """
    facts = read_facts(root)
    membership, _ = read_membership(root)
    searched = Programs(":".join(filter(None, [options.search, programs.search_path])))
    answer = probe_host(
        root, searched, facts, membership, read_status(root), port_count=options.ports, wanted=options.wanted
    )
    sys.stdout.write(answer.to_line())
    return 0
