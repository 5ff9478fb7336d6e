"""Health check of all nodes over SSH, in parallel, as the login user with the master's user key."""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from deeplearning_contract.document import ContractError
from deeplearning_contract.membership import Member
from deeplearning_node.deadline import Deadline
from deeplearning_node.health.findings import Finding, HealthReport, last_line
from deeplearning_node.health.gpus import GPU_SECONDS
from deeplearning_node.health.node_check import CLOCK, judge_clock
from deeplearning_node.node import LoginUser
from deeplearning_node.node_facts import COMMAND_FILE
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.ssh import ssh_command

AT_ONCE = 32
NODE_SECONDS = GPU_SECONDS + 35
"""Longer than a node's own check when everything hangs."""
INSPECTION_SECONDS = 150
"""Time limit for the whole cluster, however large."""
LEAST_SECONDS = 1.0
SSH = "SSH"

# An unfit node ends with status 1; the caller reads its report, not its status.
_QUESTION = f"{COMMAND_FILE} health --self || true"


@dataclass(frozen=True)
class NodeCheck:
    """Health of one node."""

    member: Member  # The node
    findings: tuple[Finding, ...]  # From the node and from the checking node; empty when it was not checked
    verdict: Literal["healthy", "unfit", "no answer", "not asked"]  # Summary
    generation: int = 0  # Installed generation; 0 when it is unknown

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)


@dataclass(frozen=True)
class ClusterCheck:
    """Health check of other nodes by this one."""

    user: LoginUser  # The login user, whose key opens every node
    programs: Programs  # Programs that include `ssh`
    is_root: bool  # Whether to switch to the login user first
    now: Callable[[], float] = time.time  # Wall clock to compare the nodes' clocks with

    def run(self, members: Sequence[Member], deadline: Deadline) -> list[NodeCheck]:
        """
        Check every member, at most 32 at once; return the results in the order of the members.

        The order of the checks is random, so that a deadline does not always omit the same nodes.
        """
        order = random.sample(range(len(members)), len(members))
        with ThreadPoolExecutor(AT_ONCE, "cluster-check") as pool:
            checks = pool.map(lambda index: self.check(members[index], deadline), order)
            found = dict(zip(order, checks, strict=True))
        return [found[index] for index in range(len(members))]

    def check(self, member: Member, deadline: Deadline) -> NodeCheck:
        """Check one member; a failure of `ssh` is a fault of that member."""
        limit = min(NODE_SECONDS, deadline.remaining)
        if limit < LEAST_SECONDS:
            return NodeCheck(member, (), "not asked")
        sent = self.now()
        try:
            output = self.programs.run(self.command(member.address), timeout_seconds=limit)
            report = HealthReport.from_output(output)
        except ProgramError as error:
            if error.is_late and limit < NODE_SECONDS:  # The time was too short to judge the node.
                return NodeCheck(member, (), "not asked")
            return _fail(member, describe_end(error, limit))
        except ContractError as error:
            return _fail(member, str(error))
        if report.instance_id != member.instance_id:
            return _fail(member, f"{member.address} now belongs to {report.instance_id}")
        findings = (*(f for f in report.findings if f.name != CLOCK), judge_clock(report.at, sent, self.now()))
        is_healthy = all(finding.ok for finding in findings)
        return NodeCheck(member, findings, "healthy" if is_healthy else "unfit", report.generation)

    def command(self, address: str) -> list[str]:
        return ssh_command(self.user, address, _QUESTION, is_root=self.is_root)


def describe_end(error: ProgramError, seconds: float) -> str:
    """Return one line on the failure of `ssh`, without its long command line."""
    if error.is_late:
        return f"no response in {seconds:.0f} s"
    if error.status is None:
        return str(error)
    return last_line(error.output) or f"ssh ended with status {error.status}"


def _fail(member: Member, cause: str) -> NodeCheck:
    remedy = "check that the instance runs; if the fault persists, terminate it"
    return NodeCheck(member, (Finding.fault(SSH, cause, remedy),), "no answer")
