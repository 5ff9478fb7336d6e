"""`deeplearning node-facts`: the facts of one host before a job starts; other commands ask every host for them."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_contract.document import read_record
from deeplearning_jobs.hosts.preflight import HostFacts, Preflight
from deeplearning_jobs.hosts.probe import probe_host
from deeplearning_node.health.gpus import GPU_SECONDS
from deeplearning_node.health.node_check import read_membership
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import read_status

SURVEY_SECONDS = GPU_SECONDS + 25.0
"""More than a host takes whose driver hangs."""
DESCRIPTION = (
    "Print, as one line of JSON, what this node has and what runs on it. `deeplearning run` asks every node so."
)
read_facts = partial(read_record, HostFacts, what="answer")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the ports and the programs to look for."""
    parser.add_argument("--ports", type=int, default=0, metavar="N", help="offer N free ports")
    parser.add_argument("--search", default="", metavar="PATH", help="look for programs here too")
    parser.add_argument("wanted", nargs="*", metavar="WANTED", help="a path, or a program, that must be there")


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


def survey_hosts(remote: Remote, *, port_count: int = 0, wanted: Sequence[str] = (), search: str = "") -> Preflight:
    """Ask every host for its facts, for free ports, and for `wanted` paths and programs, which `search` holds too."""
    question = ["node-facts", "--ports", str(port_count), "--search", search, "--", *wanted]
    found = remote.ask(question, read_facts, seconds=SURVEY_SECONDS)
    return Preflight(
        generation=remote.membership.generation,
        expected={host: member.instance_id for host, member in remote.membership.members},
        answers={host: answer for host, answer in found.items() if not isinstance(answer, str)},
        silent={host: cause for host, cause in found.items() if isinstance(cause, str)},
    )
