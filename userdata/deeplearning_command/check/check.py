"""`deeplearning check`: checks of a node against the contract, and of a machine for an image."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from deeplearning_command.check.contract import Check, check_contract, check_environment, check_ssh, list_expected
from deeplearning_command.check.image import check_image
from deeplearning_command.context import Context
from deeplearning_command.terminal import RefusedError, draw_table
from deeplearning_contract.names import NodeRole
from deeplearning_node.health.findings import clean
from deeplearning_node.health.node_check import read_membership
from deeplearning_node.node_facts import FACTS_FILE

DESCRIPTION = """
Check the contract on this node: the variables in every kind of shell, with sudo, in systemd units, over SSH and with
mpirun; the hosts file, the files that list the nodes, the host keys, the loop over the hosts, the shared file system
and discover_hosts. The master also tests SSH to every host. On a machine for an image run
deeplearning check --image, or python3 -m deeplearning_command check --image in the agent's folder.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the output format, and the kind of machine."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--image", action="store_true", help="list what this machine lacks as an image of nodes")


def run(options: argparse.Namespace, context: Context) -> int:
    """Check the node, or the image; RefusedError on a machine that is no node, or for another user."""
    checks = check_image(context.root, context.programs) if options.image else _check_node(context)
    sys.stdout.write(_describe(checks) if options.json else _draw_checks(checks))
    return 1 if any(check.state == "fault" for check in checks) else 0


def _check_node(context: Context) -> list[Check]:
    if not context.path(FACTS_FILE).exists():
        raise RefusedError("this machine must be a node that the agent has prepared; to check an image, add --image")
    facts, user = context.facts, context.user
    if not context.is_root and not context.is_login_user:
        raise RefusedError(f"the user must be {user.name}; run: sudo deeplearning check")
    membership, trouble = read_membership(context.root)
    member = membership.find(facts.instance_id)
    if member is None:
        detail = trouble or f"generation {membership.generation} does not name this node"
        return [Check("membership", "fault", detail, "wait until the cluster has formed, or read the agent's log")]
    if facts.role == NodeRole.MASTER.value:
        over_ssh = check_ssh(context.remote)
    else:
        over_ssh = Check("ssh host cmd", "absent", "only the master can log in to nodes; run it there as well")
    return [
        Check("membership", "ok", f"generation {membership.generation} names {len(membership.members)} nodes"),
        *check_environment(context, list_expected(membership, member, facts.mount_point)),
        over_ssh,
        *check_contract(context, membership),
    ]


def _draw_checks(checks: Sequence[Check]) -> str:
    rows = [("", "CHECK", "RESULT")]
    for check in checks:
        remedy = f"; {check.remedy}" if check.remedy and check.state != "ok" else ""
        state = "FAULT" if check.state == "fault" else check.state
        rows.append((state, check.name, clean(check.detail) + remedy))
    count = {state: sum(check.state == state for check in checks) for state in ("ok", "absent", "fault")}
    total = f"{count['ok']} passed, {count['absent']} absent, {count['fault']} failed"
    return draw_table(rows, total)


def _describe(checks: Sequence[Check]) -> str:
    return json.dumps({"checks": [asdict(check) for check in checks]}, indent=2) + "\n"
