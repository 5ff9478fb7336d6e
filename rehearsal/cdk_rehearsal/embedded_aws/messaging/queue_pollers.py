"""Event source mappings of queues: pollers that hand messages to functions, as their roles."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.functions.environment import Outcome
from cdk_rehearsal.embedded_aws.functions.runner import FunctionRunner
from cdk_rehearsal.place import Credentials, Place

_POLL_SECONDS = 1
_MOST_MESSAGES = 10
"""Of one request, as SQS limits it."""


@dataclass(frozen=True)
class QueueMapping:
    """
    A queue whose messages a function gets.

    Attributes:
        credentials: Of the function's role, with which Lambda reads the queue.
        batch_size: Most messages of an invocation.
        reports_items: Whether the function returns which messages failed.
    """

    queue_arn: str
    function_arn: str
    credentials: Credentials
    batch_size: int
    reports_items: bool


class QueuePollers:
    """
    Polls queues, and deletes the messages that a function took.

    What a function fails on is there again when its visibility ends, and goes to the queue's own dead letters (Lambda
    developer guide, "Using Lambda with Amazon SQS").
    """

    def __init__(self, place: Place, functions: FunctionRunner, observations: Observations) -> None:
        self._place = place
        self._functions = functions
        self._observations = observations
        self._closing = threading.Event()

    def start(self, mapping: QueueMapping) -> threading.Event:
        """Begin to poll a queue; setting the event ends it."""
        ended = threading.Event()
        name = f"poller-{mapping.queue_arn.rpartition(':')[2]}"
        threading.Thread(target=self._poll, args=(mapping, ended), name=name, daemon=True).start()
        return ended

    def close(self) -> None:
        """End all."""
        self._closing.set()

    def _poll(self, mapping: QueueMapping, ended: threading.Event) -> None:
        sqs = self._place.client_as("sqs", mapping.credentials)
        name = mapping.queue_arn.rpartition(":")[2]
        url = self._place.client("sqs").get_queue_url(QueueName=name)["QueueUrl"]
        request = {
            "QueueUrl": url,
            "MaxNumberOfMessages": min(_MOST_MESSAGES, mapping.batch_size),
            "WaitTimeSeconds": _POLL_SECONDS,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        while not self._closing.is_set() and not ended.is_set():
            messages = self._receive(sqs, request)
            if messages and not ended.is_set():
                self._hand_over(mapping, sqs, url, messages)

    def _receive(self, sqs: Any, request: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        try:
            return list(sqs.receive_message(**request).get("Messages", []))
        except ClientError as refusal:
            name = request["QueueUrl"].rpartition("/")[2]
            self._observations.report("refusal", name, f"Lambda cannot read {name}: {refusal}")
            self._closing.wait(_POLL_SECONDS)
        except EndpointConnectionError:  # the embedded AWS ends
            self._closing.wait(_POLL_SECONDS)
        return []

    def _hand_over(self, mapping: QueueMapping, sqs: Any, url: str, messages: Sequence[Mapping[str, Any]]) -> None:
        event = {"Records": [make_record(each, mapping.queue_arn) for each in messages]}
        outcome = self._functions.invoke(mapping.function_arn, event, "sqs")
        failed = find_failed(outcome, mapping, {each["MessageId"] for each in messages})
        for message in messages:
            if message["MessageId"] not in failed:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def make_record(message: Mapping[str, Any], queue_arn: str) -> dict[str, Any]:
    """Return a message as Lambda gives it to a function (Lambda developer guide, "Example Amazon SQS event")."""
    attributes = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: {f"{key[0].lower()}{key[1:]}": value for key, value in attribute.items()}
            for name, attribute in attributes.items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }


def find_failed(outcome: Outcome, mapping: QueueMapping, names: set[str]) -> set[str]:
    """
    Return which messages of a batch failed.

    Lambda developer guide, "Implementing partial batch responses": all where the function fails, or names one that the
    batch does not have; none where it returns nothing.
    """
    if outcome.error:
        return names
    if not mapping.reports_items or not outcome.result:
        return set()
    try:
        failures = outcome.result.get("batchItemFailures") or []
        failed = {each["itemIdentifier"] for each in failures}
    except (AttributeError, KeyError, TypeError):
        return names
    return min(failed, names)
