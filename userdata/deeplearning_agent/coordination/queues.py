"""
SQS queues: notifications for the workers, and authenticated reports for the master.

A long poll costs one call in 20 s. Notifications stay visible on the broadcast queue after they were read, so
a poll that returns at once is followed by a pause, up to those 20 s.
"""

import json
import logging
from typing import Any

from deeplearning_contract.document import ContractError, field, parse_object
from deeplearning_contract.messages import NodeReport
from deeplearning_node.aws_clients import AwsClients, AwsError
from deeplearning_node.deadline import Deadline

LOG = logging.getLogger(__name__)
POLL_SECONDS = 20
"""Longest long poll of SQS."""
BATCH = 10
"""Most messages that SQS returns or deletes in one call."""


class NotificationQueue:
    """Queue of notifications for one cluster."""

    def __init__(
        self, clients: AwsClients, url: str, cluster: str, *, is_shared: bool, poll_seconds: int = POLL_SECONDS
    ) -> None:
        """
        Bind the queue; nothing is called yet.

        Messages of a shared queue are not deleted. `poll_seconds` is the length of a long poll, and the least time from
        the start of one to the start of the next.
        """
        self._clients = clients
        self._url = url
        self._cluster = cluster
        self._is_shared = is_shared
        self._poll_seconds = poll_seconds
        self._poll_end: Deadline | None = None

    def wait(self, known_generation: int, deadline: Deadline) -> bool:
        """Wait for a notification of a higher generation; return False at the deadline."""
        while not deadline.is_over:
            if self._poll_end is not None:
                deadline.pause(self._poll_end.remaining)
            self._poll_end = Deadline.after(deadline.clock, self._poll_seconds)
            messages = self._receive(round(min(self._poll_seconds, deadline.remaining)))
            if any(notification_generation(message["Body"], self._cluster) > known_generation for message in messages):
                return True
        return False

    def _receive(self, wait_seconds: int) -> list[dict[str, Any]]:
        answer = self._clients.sqs.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=wait_seconds
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        if messages and not self._is_shared:
            delete_messages(self._clients, self._url, messages)
        return messages


def send_report(clients: AwsClients, url: str, report: NodeReport) -> None:
    clients.sqs.send_message(QueueUrl=url, MessageBody=report.to_body())


class ReportQueue:
    """Queue on which workers report to the master."""

    def __init__(
        self, clients: AwsClients, url: str, cluster: str, sender: str, poll_seconds: int = POLL_SECONDS
    ) -> None:
        """Bind the queue; `sender` is the IAM unique id of the workers' role."""
        self._clients = clients
        self._url = url
        self._cluster = cluster
        self._sender = sender
        self._poll_seconds = poll_seconds
        self._read: list[dict[str, Any]] = []
        self.has_more = False
        """True after a full batch: more messages may be waiting."""

    def receive(self, deadline: Deadline) -> tuple[NodeReport, ...]:
        """
        Receive up to ten reports, waiting for the first until the deadline or the end of one long poll.

        Messages that are malformed, foreign or of another cluster are logged. `delete_read` deletes them with the
        others, so that none returns for ever.
        """
        wait_seconds = min(self._poll_seconds, round(deadline.remaining))
        messages = self._clients.sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=BATCH,
            WaitTimeSeconds=wait_seconds,
            MessageSystemAttributeNames=["SenderId"],
        ).get("Messages", [])
        self.has_more = len(messages) == BATCH
        self._read.extend(messages)
        reports = (self._believe(message) for message in messages)
        return tuple(report for report in reports if report is not None)

    def delete_read(self, *, is_partial_batch_kept: bool = False) -> None:
        """Delete the received messages, in tens, after the reports are on disk; a partial batch may wait."""
        while len(self._read) >= BATCH or (self._read and not is_partial_batch_kept):
            batch, self._read = self._read[:BATCH], self._read[BATCH:]
            delete_messages(self._clients, self._url, batch)

    def _believe(self, message: dict[str, Any]) -> NodeReport | None:
        sender = message.get("Attributes", {}).get("SenderId", "")
        try:
            report = NodeReport.from_body(message["Body"])
        except ContractError as error:
            LOG.warning("dropped a malformed report of %s: %s", sender, error)
            return None
        if report.cluster != self._cluster or not is_sent_by(self._sender, report, sender):
            LOG.warning("dropped a report about %s that %s sent", report.instance_id, sender)
            return None
        return report


def is_sent_by(role_id: str, report: NodeReport, sender_id: str) -> bool:
    """
    Return whether a report comes from the instance that it names.

    SQS sets `SenderId`; for an instance's role it is the role's unique id, a colon and the instance id.
    """
    return bool(role_id) and sender_id == f"{role_id}:{report.instance_id}"


def notification_generation(body: str, cluster: str) -> int:
    """Return the generation of a notification; -1 for a message that is no notification of the cluster."""
    try:
        document = parse_object(body, "notification")
        if document.get("kind") == "notification" and document.get("cluster") == cluster:
            return field(document, "generation", int, "notification")
    except ContractError as error:
        LOG.warning("ignored a malformed notification: %s", error)
    return -1


def delete_messages(clients: AwsClients, url: str, messages: list[dict[str, Any]]) -> None:
    """Delete up to ten messages in one call; a message that stays is received again, which does no harm."""
    entries = [{"Id": str(index), "ReceiptHandle": m["ReceiptHandle"]} for index, m in enumerate(messages)]
    try:
        answer = clients.sqs.delete_message_batch(QueueUrl=url, Entries=entries)
    except AwsError as error:
        LOG.warning("could not delete from %s: %s", url, error)
        return
    if answer.get("Failed"):
        LOG.warning("could not delete from %s: %s", url, json.dumps(answer["Failed"], default=str))
