"""`deeplearning health`: health of every node, as a table or JSON."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace

from deeplearning_command.context import Context
from deeplearning_command.terminal import draw_table, print_line
from deeplearning_node.deadline import Deadline
from deeplearning_node.health.cluster_check import INSPECTION_SECONDS, ClusterCheck, NodeCheck
from deeplearning_node.health.findings import Finding
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import MEMBERSHIP, check_node

COLUMNS = ("HOST", "INSTANCE", "VERDICT", "NETWORK", "FAULT", "REMEDY")
DESCRIPTION = """
Check the health of every node over SSH: GPU count and GPU memory (ECC), disk, shared file system, network (NETWORK is
the provider of NCCL's traffic, efa or tcp), clock, agent and membership. Run it on the master as the login user, or
with --self on any node. The master runs the same checks once a minute; a node that fails them twice in a row is evicted
and replaced.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the output formats."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--self", action="store_true", dest="is_self", help="check this node only and print JSON")


def run(options: argparse.Namespace, context: Context) -> int:
    """Check this node, or all nodes."""
    if options.is_self:
        report = check_node(context.facts, context.programs, context.root)
        print_line(report.to_line())
        return 0 if report.is_healthy else 1
    remote, generation = context.remote, context.remote.membership.generation
    members = [member for _, member in remote.membership.members]
    check = ClusterCheck(remote.user, context.programs, is_root=remote.is_root)
    found = check.run(members, Deadline.after(context.clock, INSPECTION_SECONDS))
    checks = {host: judge_generation(each, generation) for host, each in zip(remote.hosts, found, strict=True)}
    describe = describe_checks if options.json else draw_checks
    sys.stdout.write(describe(context.facts.cluster, generation, checks))
    return 0 if all(each.verdict == "healthy" for each in checks.values()) else 1


def judge_generation(check: NodeCheck, generation: int) -> NodeCheck:
    """Add a fault if a node's membership is not the master's; it may be about to install it."""
    if check.verdict in {"no answer", "not asked"} or check.generation in {0, generation}:
        return check
    detail = f"generation {check.generation} is installed, the master has {generation}"
    behind = Finding.fault(MEMBERSHIP, detail, "wait a minute; then read the agent's log on the node")
    others = tuple(finding for finding in check.findings if finding.name != MEMBERSHIP)
    return replace(check, findings=(*others, behind), verdict="unfit")


def draw_checks(cluster: str, generation: int, checks: Mapping[str, NodeCheck]) -> str:
    """Return a line for each node, one for each further fault, and a total."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for host, check in checks.items():
        provider = (finding.detail.partition(":")[0] for finding in check.findings if finding.name == NETWORK)
        head: tuple[str, ...] = (host, check.member.instance_id, check.verdict, next(provider, "-"))
        if not check.faults:
            rows.append((*head, "", ""))
        for fault in check.faults:
            rows.append((*head, f"{fault.name}: {fault.detail}", fault.remedy))
            head = ("", "", "", "")
    healthy = sum(check.verdict == "healthy" for check in checks.values())
    return draw_table(rows, f"{healthy} of {len(checks)} nodes of {cluster} are healthy (generation {generation})")


def describe_checks(cluster: str, generation: int, checks: Mapping[str, NodeCheck]) -> str:
    """Return the same as a JSON object, including passed checks."""
    nodes = [
        {
            "host": host,
            "instance_id": check.member.instance_id,
            "address": check.member.address,
            "verdict": check.verdict,
            "generation": check.generation,
            "findings": [asdict(finding) for finding in check.findings],
        }
        for host, check in checks.items()
    ]
    healthy = sum(check.verdict == "healthy" for check in checks.values())
    document = {"cluster": cluster, "generation": generation, "healthy": healthy, "nodes": nodes}
    return json.dumps(document, indent=2) + "\n"
