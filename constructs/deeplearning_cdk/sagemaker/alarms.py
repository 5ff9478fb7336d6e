"""Notifications of training jobs that fail."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk.operations.failure_alarm import FailureAlarm

_KIND, _FAILED = "SageMaker Training Job State Change", "Failed"
_PATHS = {
    "kind": "$.detail-type",
    "name": "$.detail.TrainingJobName",
    "state": "$.detail.TrainingJobStatus",
    "message": "$.detail.FailureReason",
}
_TEXT = "<kind>: <name> is <state>. <message>"


class TrainingJobAlarm(FailureAlarm):
    """
    Topic and rule of the training jobs of one stack that fail.

    SageMaker may send several events for one failure (developer guide, "Events that Amazon SageMaker AI sends to Amazon
    EventBridge"). A job that is stopped, or reaches its time limit, has not failed.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        name_prefix: Beginning of the names of the training jobs.
        topic: The user's topic; None for one of the stack's own.
        encryption_key: Key of a topic of the stack's own, and of the queue of events that do not reach the topic.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name_prefix: str,
        topic: sns.ITopic | None,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description="Reports training jobs on SageMaker that fail",
            pattern={
                "source": ["aws.sagemaker"],
                "detail-type": [_KIND],
                "detail": {"TrainingJobStatus": [_FAILED], "TrainingJobName": [{"prefix": name_prefix}]},
            },
            paths=_PATHS,
            text=_TEXT,
            topic=topic,
            encryption_key=encryption_key,
        )
