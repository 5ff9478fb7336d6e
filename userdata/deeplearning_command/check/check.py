"""`deeplearning check`: proves the contract on a node, or says what an image lacks."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.check.contract import check_contract
from deeplearning_command.check.image import check_image
from deeplearning_command.check.probe import Check, Probe
from deeplearning_command.check.variables import Expected, check_environment, check_ssh
from deeplearning_command.remote.nodes import Remote, find_user, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_command.terminal.text_table import align
from deeplearning_contract.names import NodeRole
from deeplearning_node.health.findings import clean
from deeplearning_node.health.node_check import read_membership
from deeplearning_node.node_facts import FACTS_FILE, NodeFacts
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

ALL_WELL, SOME_WRONG = 0, 1
DESCRIPTION = """
Prove the contract on this node: the variables in every kind of shell, with sudo, in systemd units, over SSH and with
mpirun; the hosts file, the files that list the nodes, the host keys, the loop over the hosts, the shared file system
and discover_hosts. The master tries SSH to every host as well.
"""
EPILOG = (
    "exit status: 0 everything is right, 1 something is not, 2 it could not be tried; on a machine that becomes an "
    "image: deeplearning check --image, or python3 -m deeplearning_command check --image in the agent's folder"
)


def add_check(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "check",
        help="prove the contract on this node, or say what an image lacks",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--image", action="store_true", help="say what this machine lacks to become an image of nodes")
    parser.set_defaults(run=run_check)


def run_check(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The machine is no node, or the user may not try.
    """
    checks = check_image(root, programs) if options.image else _check_node(root, programs)
    sys.stdout.write(_describe(checks) if options.json else _draw_table(checks))
    return SOME_WRONG if any(check.state == "fault" for check in checks) else ALL_WELL


def _check_node(root: Path, programs: Programs) -> list[Check]:
    if not (root / FACTS_FILE.lstrip("/")).exists():
        raise RefusedError("this machine must be a node, and the agent has prepared none here; for an image: --image")
    facts = read_facts(root)
    try:
        user = find_user(facts.login_user)
    except LookupError as error:
        raise RefusedError(f"the image must have the login user {facts.login_user}, it has not: {error}") from error
    if os.geteuid() not in {0, user.user_id}:
        raise RefusedError(f"the user must be {user.name}; run: sudo deeplearning check")
    membership, trouble = read_membership(root)
    member = membership.find(facts.instance_id)
    if member is None:
        detail = trouble or f"generation {membership.generation} does not name this node"
        return [Check("membership", "fault", detail, "wait until the cluster has formed, or read the agent's log")]
    probe = Probe(root, programs, user, is_root=os.geteuid() == 0)
    expected = Expected.of(membership, member, facts.mount_point)
    return [
        Check("membership", "ok", f"generation {membership.generation} names {len(membership.members)} nodes"),
        *check_environment(probe, expected),
        _check_ssh(facts, root, programs),
        *check_contract(probe, facts, membership),
    ]


def _check_ssh(facts: NodeFacts, root: Path, programs: Programs) -> Check:
    if facts.role != NodeRole.MASTER.value:
        return Check("ssh host cmd", "absent", "only the master's key opens nodes; run this on the master as well")
    return check_ssh(Remote.open(root, programs))


def _draw_table(checks: Sequence[Check]) -> str:
    rows = [("", "CHECK", "WHAT WAS FOUND")]
    for check in checks:
        remedy = f"; {check.remedy}" if check.remedy and check.state != "ok" else ""
        state = "FAULT" if check.state == "fault" else check.state
        rows.append((state, check.name, clean(check.detail) + remedy))
    count = {state: sum(check.state == state for check in checks) for state in ("ok", "absent", "fault")}
    total = f"{count['ok']} are right, {count['absent']} absent, {count['fault']} wrong"
    return "\n".join([*align(rows), "", total, ""])


def _describe(checks: Sequence[Check]) -> str:
    return json.dumps({"checks": [asdict(check) for check in checks]}, indent=2) + "\n"
