"""A health check of all nodes of a cluster over SSH, many at once, as the login user with the master's user key."""

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
"""More than a node takes to look at itself when everything hangs."""
INSPECTION_SECONDS = 150
"""For the whole cluster, however large."""
LEAST_SECONDS = 1.0
SSH = "SSH"

# An unfit node ends with status 1: its report, not its status, is the answer.
_QUESTION = f"{COMMAND_FILE} health --self || true"


@dataclass(frozen=True)
class NodeCheck:
    """The health of one node."""

    member: Member  # The node that was asked
    findings: tuple[Finding, ...]  # Its own, and those of the asking node about it; empty when it was not asked
    verdict: Literal["healthy", "unfit", "no answer", "not asked"]  # In one word or two
    generation: int = 0  # Of the membership that it has installed; 0 when it is not known

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.ok)


@dataclass(frozen=True)
class ClusterCheck:
    """A health check, as one node asks for it."""

    user: LoginUser  # The login user, whose key opens every node
    programs: Programs  # The programs among which `ssh` is
    is_root: bool  # Whether to become the login user first
    now: Callable[[], float] = time.time  # The wall clock with which the nodes' clocks are compared

    def run(self, members: Sequence[Member], deadline: Deadline) -> list[NodeCheck]:
        """
        Check every member, at most 32 at once; return them in the order given.

        They are asked in no fixed order, so that at the end of the time it is not always the same ones who are not.
        """
        order = random.sample(range(len(members)), len(members))
        with ThreadPoolExecutor(AT_ONCE, "cluster-check") as pool:
            checks = pool.map(lambda index: self.check(members[index], deadline), order)
            found = dict(zip(order, checks, strict=True))
        return [found[index] for index in range(len(members))]

    def check(self, member: Member, deadline: Deadline) -> NodeCheck:
        """Check one member; an `ssh` that fails becomes its fault."""
        limit = min(NODE_SECONDS, deadline.remaining)
        if limit < LEAST_SECONDS:
            return NodeCheck(member, (), "not asked")
        sent = self.now()
        try:
            output = self.programs.run(self.command(member.address), timeout_seconds=limit)
            report = HealthReport.from_output(output)
        except ProgramError as error:
            if error.is_late and limit < NODE_SECONDS:  # Too short a time says nothing of the node.
                return NodeCheck(member, (), "not asked")
            return _fail(member, describe_end(error, limit))
        except ContractError as error:
            return _fail(member, str(error))
        if report.instance_id != member.instance_id:
            return _fail(member, f"{report.instance_id} answers at {member.address}")
        findings = (*(f for f in report.findings if f.name != CLOCK), judge_clock(report.at, sent, self.now()))
        is_healthy = all(finding.ok for finding in findings)
        return NodeCheck(member, findings, "healthy" if is_healthy else "unfit", report.generation)

    def command(self, address: str) -> list[str]:
        return ssh_command(self.user, address, _QUESTION, is_root=self.is_root)


def describe_end(error: ProgramError, seconds: float) -> str:
    """Return in one line how `ssh` ended without an answer; its command line would hide the cause."""
    if error.is_late:
        return f"no answer in {seconds:.0f} s"
    if error.status is None:
        return str(error)
    return last_line(error.output) or f"ssh ended with status {error.status}"


def _fail(member: Member, cause: str) -> NodeCheck:
    remedy = "see whether the instance runs; if it stays so, terminate it"
    return NodeCheck(member, (Finding.fault(SSH, cause, remedy),), "no answer")
