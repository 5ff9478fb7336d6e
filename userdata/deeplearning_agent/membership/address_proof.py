"""Proves whose an address is: by the key with which sshd answers there."""

import logging
from enum import Enum
from typing import TYPE_CHECKING

from deeplearning_contract.membership import Member
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

if TYPE_CHECKING:
    from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
PROOF_SECONDS = 60
"""How long a proof is remembered, so that a node that claims again and again does not keep the master busy."""
_ANSWER_SECONDS = 5
_PROGRAM_SECONDS = 15


class Proof(Enum):
    """Who answers at the address that a node claims."""

    OWN = "the node itself"
    OTHER = "another node"
    NOBODY = "nobody"


class AddressCheck:
    """Asks addresses for the key of their sshd."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[str, tuple[Member, Proof, Deadline]] = {}
        """Instance id -> its last claim, who answered, and until when that is remembered."""

    def verify(self, member: Member) -> Proof:
        """
        Check whether a node answers at the address that it claims.

        A claim that differs from the node's last one waits until the minute is over, as if nobody answered.

        Effects: one connection to port 22 of the address, at most once a minute for each node.
        """
        claim, proof, until = self._known.get(member.instance_id, (member, Proof.NOBODY, None))
        if until is not None and not until.is_over:
            return proof if (claim.address, claim.host_key) == (member.address, member.host_key) else Proof.NOBODY
        proof = self._look(member)
        LOG.info("at %s, which %s claims, %s answers", member.address, member.instance_id, proof.value)
        self._known[member.instance_id] = member, proof, self._node.limit(PROOF_SECONDS)
        return proof

    def _look(self, member: Member) -> Proof:
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
