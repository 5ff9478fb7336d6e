"""Notifications of jobs on EKS that fail."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.operations.failure_alarm import FailureAlarm
from deeplearning_contract.cluster_event import EventKind, name_source

_PATHS = {"kind": "$.detail-type", "cluster": "$.detail.cluster", "message": "$.detail.message"}
_TEXT = "<kind>: <cluster>. <message>"


class PodJobAlarm(FailureAlarm):
    """
    Topic and rule of the jobs of one cluster that fail.

    EKS sends no events of jobs: the pods of a failed one send its event themselves. Other pods of the account cannot,
    because the source names the cluster, and IAM limits who sends it.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: Name of the whole.
        topic: The user's topic; None for one of the cluster's own.
        encryption_key: Key of a topic of the cluster's own, and of the queue of events that do not reach the topic.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        topic: sns.ITopic | None,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Reports jobs on EKS that fail",
            pattern={"source": [name_source(cluster)], "detail-type": [EventKind.JOB_FAILED.value]},
            paths=_PATHS,
            text=_TEXT,
            topic=topic,
            encryption_key=encryption_key,
        )
