"""
Messages on the cluster's queues.

A notification has no content but "read the state record". A report contains a node's description of itself; the
queue's `SenderId` proves its sender, never its body.
"""

import json
from dataclasses import asdict, dataclass, replace
from enum import Enum

from deeplearning_contract.document import ContractError, excerpt, parse_object, read_record
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import MAX_REASON, NO_REASON, Reason

MOST_COUNTED = 2**31 - 1
"""Highest number of a generation, and of a node's report."""


@dataclass(frozen=True)
class ClusterNotification:
    """Notification that the state record of a cluster has reached a generation."""

    cluster: str
    generation: int

    def to_body(self) -> str:
        """Return the message body."""
        return json.dumps({"kind": "notification", "cluster": self.cluster, "generation": self.generation})


class ReportStage(str, Enum):
    """Stage that a node reports."""

    JOINED = "joined"
    READY = "ready"
    FAILED = "failed"
    LEAVING = "leaving"


@dataclass(frozen=True)
class NodeReport:
    """Report of a worker to the master."""

    cluster: str
    instance_id: str  # The sender; must agree with the queue's `SenderId`
    # `joined` describes the node, `ready` acknowledges a generation, `failed` and `leaving` end membership: the node
    # failed, or EC2 is about to interrupt it
    stage: ReportStage
    generation: int = 0  # Acknowledged generation; 0 in the other stages
    member: Member | None = None  # Description of the node; only in `joined`
    reason: Reason = NO_REASON  # Reason of a failure or departure; false in the other stages
    sequence: int = 0  # Number of the report, to recognize a late one; 0 when the node does not count

    def to_body(self) -> str:
        """Return the message body."""
        return json.dumps({"kind": "report", **asdict(self.clean()), "stage": self.stage.value})

    @classmethod
    def from_body(cls, body: str) -> "NodeReport":
        """Read a report from a message body; ContractError for a malformed one."""
        document = parse_object(body, "report")
        if document.get("kind") != "report":
            raise ContractError(f"report.kind must be 'report', got {excerpt(document.get('kind'))}")
        report = read_record(cls, document, "report").clean()
        member = report.member
        if (member is not None) != (report.stage is ReportStage.JOINED):
            raise ContractError(f"report.member must be present only in the stage joined, got {report.stage.value}")
        if member and member.instance_id != report.instance_id:
            raise ContractError(
                f"report.member must describe the sender {report.instance_id}, got {member.instance_id}"
            )
        for key, count in (("generation", report.generation), ("sequence", report.sequence)):
            if not 0 <= count <= MOST_COUNTED:
                raise ContractError(f"report.{key} must be from 0 to {MOST_COUNTED}, got {excerpt(count)}")
        return report

    def clean(self) -> "NodeReport":
        """
        Return the same report with each of its texts within `MAX_REASON` and without control characters.

        The texts go to logs, the state record, CloudFormation and EventBridge, and a report may contain any. A space
        replaces each control character but tab and newline, each half of a surrogate pair, and each character that is
        invisible. AWS refuses some of them: Amazon SQS API Reference, SendMessage, `MessageBody`.
        """
        short = self.reason.shorten()
        return replace(
            self,
            cluster=_clean(self.cluster[:MAX_REASON]),
            instance_id=_clean(self.instance_id[:MAX_REASON]),
            reason=Reason(_clean(short.cause), _clean(short.remedy), _clean(short.output)),
        )


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() or letter in "\t\n" else " " for letter in text)
