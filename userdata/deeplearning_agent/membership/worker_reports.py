"""Reports of the workers, kept on disk: a restart loses no report that was deleted from the queue."""

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from enum import Enum
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
PROOF_SECONDS = 60
"""Time for which a check is cached, so that repeated claims of one node do not keep the master busy."""
_ANSWER_SECONDS = 5
_PROGRAM_SECONDS = 15


@dataclass(frozen=True)
class WorkerReport:
    """Last report of a worker."""

    sequence: int = 0  # Number of its newest report; an older one that arrives late changes nothing
    member: Member | None = None  # Its description of itself; None before it joined
    ready: int = 0  # The highest generation that it acknowledged; 0 for none
    reason: Reason = NO_REASON  # Reason of its failure or departure; false while there is neither
    is_leaving: bool = False  # Whether EC2 interrupts it, so that no replacement need be requested
    turn: int = 0  # Order of joining; of two with one address the later one has it


class Proof(Enum):
    """Holder of the address that a node claims."""

    OWN = "the node itself"
    OTHER = "another node"
    NOBODY = "nobody"


class AddressCheck:
    """Check of addresses by the host key of the sshd there."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[str, tuple[Member, Proof, Deadline]] = {}
        """Instance id -> its last claim, the result, and the time until which it is cached."""

    def verify(self, member: Member) -> Proof:
        """
        Check whether a node responds at the address that it claims.

        A claim that differs from the node's last one waits until the minute is over, as without a response.

        Effects: one connection to port 22 of the address, at most once a minute for each node.
        """
        claim, proof, until = self._known.get(member.instance_id, (member, Proof.NOBODY, None))
        if until is not None and not until.is_over:
            return proof if (claim.address, claim.host_key) == (member.address, member.host_key) else Proof.NOBODY
        proof = self._scan_host_key(member)
        LOG.info("%s claims %s, where the response comes from %s", member.instance_id, member.address, proof.value)
        self._known[member.instance_id] = member, proof, self._node.limit(PROOF_SECONDS)
        return proof

    def _scan_host_key(self, member: Member) -> Proof:
        kind = member.host_key.split()[0].removeprefix("ssh-")
        argv = ["ssh-keyscan", "-T", str(_ANSWER_SECONDS), "-t", kind, member.address]
        try:
            answer = self._node.programs.run(argv, timeout_seconds=_PROGRAM_SECONDS)
        except ProgramError:
            return Proof.NOBODY
        keys = {" ".join(line.split()[1:3]) for line in answer.splitlines() if not line.startswith("#")}
        if member.host_key in keys:
            return Proof.OWN
        return Proof.OTHER if any(keys) else Proof.NOBODY


class WorkerReports:
    """Newest report of each worker."""

    def __init__(self, node: Node) -> None:
        """Read the reports that an earlier run of the agent kept on this instance."""
        self._own_address = node.identity.address
        self._networks = tuple(map(ip_network, node.identity.networks))
        self._check = AddressCheck(node)
        self._directory = node.instance_file("reports")
        self._entries: dict[str, WorkerReport] = {}
        for path in sorted(self._directory.glob("i-*.json")):
            try:
                self._entries[path.stem] = parse_record(WorkerReport, path.read_text(encoding="utf-8"), "entry")
            except (ContractError, ValueError) as error:  # noqa: PERF203 - a file each
                LOG.warning("ignored %s: %s", path, error)

    def record(self, report: NodeReport) -> None:
        """Record an authentic report on disk; a repeated or an outdated one changes nothing."""
        known = self._entry(report.instance_id)
        if report.stage is ReportStage.READY:
            self._keep(report.instance_id, replace(known, ready=max(known.ready, report.generation)))
            return
        if 0 < report.sequence <= known.sequence:
            return
        told = replace(known, sequence=max(known.sequence, report.sequence))
        if report.member is not None and not self._may_join(report.member, told):
            return
        if report.stage is ReportStage.JOINED:
            turn = known.turn or 1 + max((entry.turn for entry in self._entries.values()), default=0)
            joined = replace(told, member=report.member, turn=turn, reason=NO_REASON, is_leaving=False)
            self._keep(report.instance_id, joined)
        else:
            LOG.warning("%s %s: %s", report.instance_id, report.stage.value, report.reason)
            reason = report.reason or Reason(report.stage.value)
            is_leaving = report.stage is ReportStage.LEAVING
            self._keep(report.instance_id, replace(told, reason=reason, is_leaving=is_leaving))

    def _may_join(self, member: Member, told: WorkerReport) -> bool:
        """
        Return whether a node may use the address that it claims.

        If several nodes claim one address, the host key there identifies its owner. A node that claims another node's
        address, or one outside of the VPC, fails. Without a response it may claim again.
        """
        cause = self._find_foreign(member)
        if not cause:
            claimants = self._claimants(member)
            if member.address != self._own_address and not claimants:
                return True
            if self.owns_address(member):
                self._refute(member, claimants)
                return True
            if self._check.verify(member) is not Proof.OTHER:
                return False
            cause = f"it claims the address {member.address}, which belongs to another node"
        LOG.warning("refused %s: %s", member.instance_id, cause)
        self._keep(member.instance_id, replace(told, member=None, reason=Reason(cause), is_leaving=False))
        return False

    def _find_foreign(self, member: Member) -> str:
        """Return the reason to refuse an address outside of the cluster's network; empty for one inside."""
        address, networks = ip_address(member.address), self._networks
        if any(address in network for network in networks):
            return ""
        return f"it claims the address {address}, which is not in the VPC ({', '.join(map(str, networks))})"

    def _claimants(self, member: Member) -> list[str]:
        return [
            name
            for name, entry in self._entries.items()
            if name != member.instance_id and entry.member is not None and entry.member.address == member.address
        ]

    def _refute(self, holder: Member, claimants: Iterable[str]) -> None:
        """Forget the descriptions of nodes that claimed the address of the verified holder before."""
        for name in claimants:
            LOG.warning("%s is not at %s, which is %s", name, holder.address, holder.instance_id)
            self._keep(name, replace(self._entry(name), member=None, ready=0, turn=0))

    def owns_address(self, member: Member) -> bool:
        """
        Return whether a node responds at the address that it claims; False for the master's address.

        Effects: one connection to port 22 of the address, at most once a minute for each claim.
        """
        return member.address != self._own_address and self._check.verify(member) is Proof.OWN

    def has_lost_address(self, member: Member) -> bool:
        """
        Return whether another node responds at a member's address, so that the member is gone.

        Effects: one connection to port 22 of the address, at most once a minute.
        """
        return self._check.verify(member) is Proof.OTHER

    def member(self, instance_id: str) -> Member | None:
        """Return a worker's description of itself; None before it joined."""
        return self._entry(instance_id).member

    def reason(self, instance_id: str) -> Reason:
        """Return the reason of a worker's failure or departure; false while there is neither."""
        return self._entry(instance_id).reason

    def is_leaving(self, instance_id: str) -> bool:
        """Return whether EC2 interrupts a worker."""
        return self._entry(instance_id).is_leaving

    def is_ready(self, instance_id: str, generation: int) -> bool:
        """Return whether a worker has acknowledged a generation, or a higher one."""
        return self._entry(instance_id).ready >= generation

    def joined(self) -> tuple[Member, ...]:
        """Return the workers that joined and neither failed nor leave, in the order of joining."""
        found = sorted(self._entries.values(), key=lambda entry: entry.turn)
        return tuple(entry.member for entry in found if entry.member is not None and not entry.reason)

    def has_joined_after(self, instance_id: str, other: str) -> bool:
        """Return whether one worker joined after another; False when the first is unknown."""
        return self._entry(instance_id).turn > self._entry(other).turn

    def failed(self) -> tuple[str, ...]:
        """Return the workers that failed, without those that leave."""
        return tuple(name for name, entry in self._entries.items() if entry.reason and not entry.is_leaving)

    def forget(self, instance_id: str) -> None:
        """
        Forget a former member, except the number of its last report.

        When it comes back, its next report is newer than that.
        """
        self._keep(instance_id, WorkerReport(sequence=self._entry(instance_id).sequence))

    def forget_others(self, expected: Collection[str]) -> None:
        """Forget workers that joined and are not expected; failed ones are kept for their replacement."""
        for member in self.joined():
            if member.instance_id not in expected:
                self.forget(member.instance_id)

    def describe(self, instance_id: str) -> str:
        """Describe the last report of a worker."""
        entry = self._entry(instance_id)
        if entry.reason:
            return f"{instance_id} failed: {entry.reason}"
        if entry.member is None:
            return f"{instance_id} never reported"
        state = f"acknowledged generation {entry.ready}" if entry.ready else "joined and acknowledged no generation"
        return f"{instance_id} ({entry.member.address}) {state}"

    def describe_failures(self) -> str:
        """Return the failures that workers reported, to append to another cause; empty without any."""
        return "".join(f"; {self.describe(name)}" for name in self.failed())

    def _entry(self, instance_id: str) -> WorkerReport:
        return self._entries.get(instance_id, WorkerReport())

    def _keep(self, instance_id: str, entry: WorkerReport) -> None:
        if entry != self._entries.get(instance_id):
            self._entries[instance_id] = entry
            text = json.dumps(asdict(entry))
            write_file(self._directory / f"{instance_id}.json", text, 0o600)
