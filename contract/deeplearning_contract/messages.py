"""
The messages on the cluster's queues.

A doorbell carries no truth: it says "read the state item". A report carries what a node says of
itself; who sent it is proved by the queue's `SenderId`, never by its body.
"""

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum

from deeplearning_contract.document import ContractError, excerpt, parse_object, read_record
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import MAX_REASON

_REASON_FIELDS = ("reason", "cause", "remedy", "output")
MOST_COUNTED = 2**31 - 1
"""Of generations, and of the reports of one node."""


@dataclass(frozen=True)
class Doorbell:
    """Says that the state item of a cluster has reached a generation."""

    cluster: str
    generation: int

    def to_body(self) -> str:
        """Return the message body."""
        return json.dumps({"kind": "doorbell", "cluster": self.cluster, "generation": self.generation})


class ReportStage(str, Enum):
    """What a node reports."""

    JOINED = "joined"
    READY = "ready"
    FAILED = "failed"
    LEAVING = "leaving"


@dataclass(frozen=True)
class NodeReport:
    """Report of a worker to the master."""

    cluster: str
    instance_id: str  # The sender; must agree with the queue's `SenderId`
    # `joined` describes the node, `ready` acknowledges a generation, `failed` and `leaving` end membership: it is of no
    # use any more, or EC2 is about to take it away
    stage: ReportStage
    generation: int = 0  # The generation acknowledged; 0 in the other stages
    member: Member | None = None  # The node's description; only in `joined`
    reason: str = ""  # Composed reason for which the node failed or leaves; empty in the other stages
    sequence: int = 0  # Counts the node's reports, so that a late one is known; 0 when the node does not count
    cause: str = ""  # Its cause; older nodes send the reason alone
    remedy: str = ""
    output: str = ""  # The end of a program's output that belongs to it

    def to_body(self) -> str:
        """Return the message body."""
        member = self.member.to_document() if self.member else None
        return json.dumps({"kind": "report", **asdict(self.shorten()), "stage": self.stage.value, "member": member})

    @classmethod
    def from_body(cls, body: str) -> "NodeReport":
        """Read a report from a message body; ContractError for one of another shape."""
        document = parse_object(body, "report")
        if document.get("kind") != "report":
            raise ContractError(f"report.kind must be 'report', got {excerpt(document.get('kind'))}")
        report = read_record(cls, document, "report")
        member = report.member
        if (member is not None) != (report.stage is ReportStage.JOINED):
            raise ContractError(f"report.member must be there in the stage joined alone, got {report.stage.value}")
        if member and member.instance_id != report.instance_id:
            raise ContractError(
                f"report.member must describe the sender {report.instance_id}, got {member.instance_id}"
            )
        for key, count in (("generation", report.generation), ("sequence", report.sequence)):
            if not 0 <= count <= MOST_COUNTED:
                raise ContractError(f"report.{key} must be from 0 to {MOST_COUNTED}, got {excerpt(count)}")
        return report.shorten()

    def shorten(self) -> "NodeReport":
        """Return the same report with its reason within `MAX_REASON`."""
        return replace(self, **{name: getattr(self, name)[:MAX_REASON] for name in _REASON_FIELDS})
