"""Notifications of what fails on EMR: steps, and clusters that end with an error."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.operations.failure_alarm import FailureAlarm

_KINDS = ("EMR Cluster State Change", "EMR Step Status Change")
_FAILED = ("FAILED", "TERMINATED_WITH_ERRORS")
"""States of a step and of a cluster (EMR management guide, "Monitoring Amazon EMR events with CloudWatch")."""
_PATHS = {"kind": "$.detail-type", "name": "$.detail.name", "state": "$.detail.state", "message": "$.detail.message"}
_TEXT = "<kind>: <name> is <state>. <message>"


class EmrAlarms(FailureAlarm):
    """
    Topic and rule of the failures of one cluster.

    A job is a step, so a failed job is reported too. A creation that fails is reported by CloudFormation, before there
    is a rule.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster_id: EMR's id of the cluster.
        topic: The user's topic; None for one of the cluster's own.
        encryption_key: Key of a topic of the cluster's own, and of the queue of events that do not reach the topic.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster_id: str,
        topic: sns.ITopic | None,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Reports failed steps and a failed end of a deep-learning cluster on EMR",
            pattern={
                "source": ["aws.emr"],
                "detail-type": list(_KINDS),
                "detail": {"clusterId": [cluster_id], "state": list(_FAILED)},
            },
            paths=_PATHS,
            text=_TEXT,
            topic=topic,
            encryption_key=encryption_key,
        )
