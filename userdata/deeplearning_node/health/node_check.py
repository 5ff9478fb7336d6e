"""Health check of a node by itself, also before it joins."""

import time
from collections.abc import Callable
from pathlib import Path

from deeplearning_contract.names import AGENT_SERVICE
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import Finding, HealthReport, last_line
from deeplearning_node.health.gpus import GPU_SECONDS, QUERY_SECONDS, check_gpus
from deeplearning_node.health.network import check_network
from deeplearning_node.health.storage import check_disks, check_file_system
from deeplearning_node.node import Node
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError, Programs

AGENT = "agent"
MEMBERSHIP = "membership"
CLOCK = "clock"
SERVICE_SECONDS = 5
CLOCK_SECONDS = 30
"""Allowed difference: nodes' clocks usually differ by milliseconds, and AWS refuses requests five minutes off."""


def check_node(facts: NodeFacts, programs: Programs, root: Path, now: Callable[[], float] = time.time) -> HealthReport:
    """
    Run every check of a node by itself; takes a minute and a half at most.

    A member must still have the GPUs with which it joined, another node those of its instance type.

    Effects: a small file on the shared file system, for a moment.
    """
    membership, trouble = read_membership(root)
    member = membership.find(facts.instance_id)
    expected = member.gpu_count if member else facts.expected_gpu_count
    findings = (
        *check_gpus(programs, expected, GPU_SECONDS),
        check_disks(root),
        check_file_system(programs, root / facts.mount_point.lstrip("/")),
        check_network(programs, root, facts.needs.hardware.get(facts.role)),
        check_agent(programs),
        judge_membership(membership, trouble, is_member=member is not None),
    )
    return HealthReport(facts.instance_id, now(), membership.generation if member else 0, findings)


def check_health(node: Node, fewest_gpus: int | None = None) -> None:
    """Raise StageFailure with the fault for an unhealthy node, or one with fewer GPUs than it needs."""
    expected = node.settings.expected_gpu_count if fewest_gpus is None else fewest_gpus
    findings = [*check_gpus(node.programs, expected, QUERY_SECONDS, is_joining=True), check_disks(node.root)]
    faults = [finding for finding in findings if not finding.ok]
    if faults:
        cause = "; ".join(map(str, faults))
        remedy = "; ".join(dict.fromkeys(fault.remedy for fault in faults))
        raise StageFailure(f"the node is unfit to join, {cause}", remedy)


def read_membership(root: Path) -> tuple[InstalledMembership, str]:
    """Return the installed membership, or an empty one and the reason why it could not be read."""
    try:
        return InstalledMembership.read(root), ""
    except FileNotFoundError:
        return InstalledMembership(), "none is installed yet"
    except (OSError, ValueError) as error:  # ContractError is a ValueError, and so is text that is not UTF-8.
        return InstalledMembership(), f"it cannot be read: {error}"


def judge_membership(membership: InstalledMembership, trouble: str, *, is_member: bool) -> Finding:
    """Return a fault for a member without an installed membership that names it."""
    remedy = "read the agent's log on the node"
    if trouble:
        return Finding.fault(MEMBERSHIP, trouble, remedy)
    if not is_member:
        return Finding.fault(MEMBERSHIP, f"generation {membership.generation} does not name this node", remedy)
    return Finding.fit(MEMBERSHIP, f"generation {membership.generation} is installed")


def check_agent(programs: Programs) -> Finding:
    """Check in the service manager that the agent runs; needs no privileges."""
    try:
        programs.run(["systemctl", "is-active", AGENT_SERVICE], timeout_seconds=SERVICE_SECONDS)
    except ProgramError as error:
        state = str(error) if error.is_late or error.is_missing else last_line(error.output) or str(error)
        remedy = f"run: sudo systemctl restart {AGENT_SERVICE}"
        return Finding.fault(AGENT, f"{AGENT_SERVICE} is not active: {state}", remedy)
    return Finding.fit(AGENT, f"{AGENT_SERVICE} is active")


def judge_clock(at: float, sent: float, received: float) -> Finding:
    """
    Compare a node's clock with that of the checking node.

    The node read `at` between the checking node's `sent` and `received`; all are seconds since 1970.
    """
    offset = at - received if at > received else min(0.0, at - sent)
    if abs(offset) <= CLOCK_SECONDS:
        return Finding.fit(CLOCK, f"at most {CLOCK_SECONDS} s off")
    detail = f"{abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} the checking node"
    return Finding.fault(CLOCK, detail, "start its time service (chrony), or terminate the instance")
