"""Notifications of jobs that fail on a service that runs them: EMR or SageMaker."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.coordination.messages import allow_publishers, make_rule, make_topic
from deeplearning_cdk.security.acknowledged_rules import acknowledge


class JobAlarms(Construct):
    """
    Topic and rule of failures that a service reports as events.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        description: Description of the rule.
        pattern: Pattern of the events.
        paths: Name of a value -> its path in the event.
        text: Text of the notification, with `<name>` for a value.
        topic: The user's topic; None for one of the cluster's own.
        encryption_key: Key of a topic of the cluster's own, and of the queue of events that do not reach the topic.

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
