"""`deeplearning health`: whether the nodes are fit, for people and for programs."""

import argparse
import os
import pwd
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_agent.deadline import Clock, Deadline
from deeplearning_agent.health import check_node
from deeplearning_agent.inquiry import Inquiry
from deeplearning_agent.inspection import INSPECTION_SECONDS
from deeplearning_agent.node import LoginUser
from deeplearning_agent.node_facts import InstalledMembership, NodeFacts
from deeplearning_agent.programs import Programs
from deeplearning_command.health_table import describe_answers, draw_table, note_generation
from deeplearning_contract.names import MASTER_HOST, NodeRole

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

HEALTHY, UNFIT, UNKNOWN = 0, 1, 2
DESCRIPTION = """
Ask every node of the cluster, over SSH, whether it is fit: GPU count and GPU memory (ECC), disk, shared file system,
clock, agent and membership. Run it on the master as the login user. The master asks the same once a minute; a node that
is unfit twice in a row leaves the cluster and is replaced.
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
    """
    try:
        facts = NodeFacts.read(root)
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        return _refuse(f"the agent has not prepared this node yet, read its log: {error}")
    if options.is_self:
        report = check_node(facts, programs, root)
        sys.stdout.write(f"{report.to_line()}\n")
        return HEALTHY if report.is_healthy else UNFIT
    if facts.role != NodeRole.MASTER.value:
        return _refuse(f"the node must be the master, got a {facts.role}; log in to {MASTER_HOST}, or add --self")
    try:
        user = find_user(facts.login_user)
        membership = InstalledMembership.read(root)
    except (OSError, ValueError, LookupError) as error:
        return _refuse(f"the cluster has not formed yet, read the agent's log: {error}")
    if os.geteuid() not in {0, user.user_id}:
        return _refuse(f"the user must be {user.name}, whose key opens the nodes; run: sudo deeplearning health")
    return _ask(Inquiry(user, programs, is_root=os.geteuid() == 0), facts, membership, is_json=options.json)


def find_user(name: str) -> LoginUser:
    """
    Look a user up.

    Raises:
        LookupError: There is none of that name.
    """
    entry = pwd.getpwnam(name)
    return LoginUser(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)


def _ask(inquiry: Inquiry, facts: NodeFacts, membership: InstalledMembership, *, is_json: bool) -> int:
    members = [member for _, member in membership.members]
    hosts = [host for host, _ in membership.members]
    found = inquiry.ask_all(members, Deadline.after(Clock(), INSPECTION_SECONDS))
    answers = [note_generation(answer, membership.generation) for answer in found]
    describe = describe_answers if is_json else draw_table
    sys.stdout.write(describe(facts.cluster, membership.generation, hosts, answers))
    return HEALTHY if all(answer.verdict == "healthy" for answer in answers) else UNFIT


def _refuse(cause: str) -> int:
    sys.stderr.write(f"deeplearning health: {cause}\n")
    return UNKNOWN
