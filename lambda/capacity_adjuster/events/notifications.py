"""
Notifications to the adjuster: their description for its log, test notifications, and messages of budgets.

Events may be lost, repeated, late, reordered or empty, so no decision about capacity relies on one. AWS Budgets
requests a stop by publishing to a separate topic. The topic identifies that message, not its text: only AWS Budgets may
publish there, and only when a budget is used up.
"""

import json
from collections.abc import Mapping
from typing import Any

_LONGEST = 200
_LONGEST_ID = 100
_MOST_RECORDS = 10


def describe_event(event: Any) -> str:
    """Return a one-line description of any event; raises nothing."""
    if not isinstance(event, Mapping):
        return f"an unknown event: {_shorten(event)}"
    if "RequestType" in event and "ResponseURL" in event:  # The URL is a secret of the stack.
        return _shorten(f"CloudFormation: {event['RequestType']} {event.get('ResourceProperties')}")
    records = event.get("Records")
    if isinstance(records, list) and records:
        described = ", ".join(_describe_record(record) for record in records[:_MOST_RECORDS])
        return described if len(records) <= _MOST_RECORDS else f"{described} and {len(records) - _MOST_RECORDS} more"
    if event.get("source") == "aws.events" or event.get("detail-type") == "Scheduled Event":
        return "the timer"
    if isinstance(event.get("detail-type"), str):
        return _shorten(f"{event['detail-type']} {event.get('detail')}") or f"an unknown event: {_shorten(event)}"
    return f"an unknown event: {_shorten(event)}"


def is_test(event: Any) -> bool:
    """Return whether an event is the test notification of a new setup, so that no capacity has changed."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list) or not records:
        return False
    return all(_describe_record(record).startswith("autoscaling:TEST_NOTIFICATION") for record in records)


def read_budget_message(event: Any, topic_arn: str) -> str:
    """
    Return the id of a message of the budget's topic; empty for any other event, or without a topic. Raises nothing.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not topic_arn or not isinstance(records, list):
        return ""
    for record in records:
        message = record.get("Sns") if isinstance(record, Mapping) and record.get("EventSource") == "aws:sns" else None
        if isinstance(message, Mapping) and message.get("TopicArn") == topic_arn:
            name = message.get("MessageId")
            return name[:_LONGEST_ID] if isinstance(name, str) and name else topic_arn[-_LONGEST_ID:]
    return ""


def _describe_record(record: Any) -> str:
    sns = record.get("Sns") if isinstance(record, Mapping) else None
    text = sns.get("Message") if isinstance(sns, Mapping) else None
    try:
        message = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, Mapping):
        return f"an unknown record: {_shorten(record)}"
    words = [message.get(key) for key in ("Event", "AutoScalingGroupName", "EC2InstanceId", "StatusMessage")]
    return _shorten(" ".join(str(word) for word in words if word) or message)


def _shorten(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:
        text = "nested too deeply"
    return " ".join(text[:_LONGEST].split())
