"""`deeplearning health`: whether the nodes are fit, for people and for programs."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.cluster.health_table import describe_answers, draw_table, note_generation
from deeplearning_command.remote.nodes import Remote, read_facts
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.health.cluster_check import INSPECTION_SECONDS, Inquiry
from deeplearning_node.health.node_check import check_node
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

HEALTHY, UNFIT = 0, 1
DESCRIPTION = """
Ask every node of the cluster, over SSH, whether it is fit: GPU count and GPU memory (ECC), disk, shared file system,
network (NETWORK is the provider of NCCL's traffic, efa or tcp), clock, agent and membership. Run it on the master as
the login user, with --self on any node. The master asks the same once a minute; a node that is unfit twice in a row
leaves the cluster and is replaced.
"""
EPILOG = "exit status: 0 all nodes are healthy, 1 some are not or did not answer, 2 nobody could be asked"


def add_health(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "health", help="say whether the nodes are fit", description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--self", action="store_true", dest="is_self", help="look at this node only and print JSON")
    parser.set_defaults(run=run_health)


def run_health(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: Nobody can be asked.
    """
    if options.is_self:
        report = check_node(read_facts(root), programs, root)
        sys.stdout.write(f"{report.to_line()}\n")
        return HEALTHY if report.is_healthy else UNFIT
    remote = Remote.open(root, programs)
    inquiry = Inquiry(remote.user, programs, is_root=remote.is_root)
    return _ask(inquiry, remote.facts, remote.membership, is_json=options.json)


def _ask(inquiry: Inquiry, facts: NodeFacts, membership: InstalledMembership, *, is_json: bool) -> int:
    members = [member for _, member in membership.members]
    hosts = [host for host, _ in membership.members]
    found = inquiry.ask_all(members, Deadline.after(Clock(), INSPECTION_SECONDS))
    answers = [note_generation(answer, membership.generation) for answer in found]
    describe = describe_answers if is_json else draw_table
    sys.stdout.write(describe(facts.cluster, membership.generation, hosts, answers))
    return HEALTHY if all(answer.verdict == "healthy" for answer in answers) else UNFIT
