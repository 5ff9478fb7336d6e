"""The alarm of a job that fails: a rehearsal lets one fail on purpose, and reads what the topic's subscriber gets."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.jobs.job_definition import JobDefinition

FAILING_JOB = JobDefinition("fails-on-purpose", ("sh", "-c", "echo this job fails on purpose >&2; exit 3"), "tf-ps")
"""A job that fails at once; its launcher needs nothing."""
_QUEUE = "rehearsal-alarm-subscriber"
_SECONDS = 60.0
"""Longest wait for the notification of a job that has failed."""


@dataclass(frozen=True)
class AlarmSubscriber:
    """
    A queue that is subscribed to every topic to which a rule of the account sends events, as a person's mail is.

    Attributes:
        queue: URL of the queue; empty where no rule has a topic.
    """

    clients: Callable[[str], Any]
    queue: str

    @classmethod
    def subscribe(cls, clients: Callable[[str], Any]) -> "AlarmSubscriber":
        """Subscribe a new queue; the account's owner does it."""
        topics = sorted(set(_list_topics(clients)))
        if not topics:
            return cls(clients, "")
        sqs, sns = clients("sqs"), clients("sns")
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": "*",
            "Condition": {"ArnEquals": {"aws:SourceArn": topics}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        url = sqs.create_queue(QueueName=_QUEUE, Attributes={"Policy": policy})["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for topic in topics:
            sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        return cls(clients, str(url))

    def await_failure(self) -> tuple[str, str]:
        """Return the notification of `FAILING_JOB`, or else a problem as the second text."""
        if not self.queue:
            return "", "the stack must have a rule with a topic for jobs that fail, it has none"
        sqs, heard, give_up = self.clients("sqs"), list[str](), time.monotonic() + _SECONDS
        while time.monotonic() < give_up:
            received = sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            heard += [_read_text(message["Body"]) for message in received.get("Messages", [])]
            for text in heard:
                if FAILING_JOB.name in text and "fail" in text.lower().replace(FAILING_JOB.name, ""):
                    return text, ""
        got = " | ".join(heard) or "nothing"
        return "", f"the topic must notify its subscriber that job {FAILING_JOB.name} failed, got {got}"


def _list_topics(clients: Callable[[str], Any]) -> Iterator[str]:
    events = clients("events")
    for page in events.get_paginator("list_rules").paginate():
        for rule in page["Rules"]:
            targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
            yield from (target["Arn"] for target in targets if target["Arn"].split(":")[2] == "sns")


def _read_text(body: str) -> str:
    """Return the text of a notification that SNS sent to a queue."""
    return str(json.loads(body)["Message"])
