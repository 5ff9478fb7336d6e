"""Notifications of what fails on a managed platform: a topic, and a rule for the platform's own events."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.coordination.messages import allow_publishers, make_rule, make_topic
from deeplearning_cdk.security.acknowledged_rules import acknowledge


class FailureAlarm(Construct):
    """
    Topic and rule of the failures of one cluster, and the queue of events that do not reach the topic.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        description: What the rule reports.
        pattern: Pattern of the events.
        paths: Name -> path of a value in an event.
        text: Text of the notification, with the names in angle brackets.
        topic: The user's topic; None for one of the cluster's own.
        encryption_key: Key of a topic of the cluster's own, and of the queue.

    Attributes:
        topic: The topic.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        description: str,
        pattern: Mapping[str, Any],
        paths: Mapping[str, str],
        text: str,
        topic: sns.ITopic | None,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        self.topic: sns.ITopic = topic or make_topic(self, "Topic", encryption_key=encryption_key)
        allow_publishers(self, self.topic)
        dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.KMS,
            encryption_master_key=encryption_key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge(dead_letters, "queue-without-redrive")
        make_rule(
            self,
            description=description,
            pattern=pattern,
            paths=paths,
            text=text,
            topic=self.topic,
            dead_letters=dead_letters,
        )
