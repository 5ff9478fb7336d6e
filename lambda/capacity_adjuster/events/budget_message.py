"""
Knows a message by which AWS Budgets asks for a stop: by the topic that carries it, never by its words.

Only AWS Budgets may publish to that topic, and a budget notifies it of one thing alone, that it is used up.
"""

from collections.abc import Mapping
from typing import Any

_LONGEST_ID = 100


def read_budget_message(event: Any, topic_arn: str) -> str:
    """
    Return the id of a message of the budget's topic; empty for any other event, and nothing is raised.

    Args:
        event: What Lambda was invoked with.
        topic_arn: The topic; empty when no budget stops the cluster.
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
