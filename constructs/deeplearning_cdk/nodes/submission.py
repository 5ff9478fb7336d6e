"""Submission of jobs: the document from which `deeplearning-cdk submit` learns where and how a job starts."""

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import object_arn
from deeplearning_contract.jobs.submission import (
    Platform,
    SubmissionSettings,
    TrainingSettings,
    source_prefix,
    submission_parameter,
)


class JobSubmission(Construct):
    """
    Submission document of a cluster, an SSM parameter, and the place of packed source folders.

    Sources go below a prefix of the bucket of the stack's assets: a bucket of the cluster's own would stay when the
    stack is deleted.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name.
        login_user: User of the nodes under whom jobs run.
        bucket: Bucket of the stack's assets.
        platform: Service that runs the cluster. Default: EC2.
        cluster_id: EMR's id of the cluster. Default: none, for another platform.
        training: Training jobs of SageMaker. Default: none, for another platform.

    Attributes:
        bucket: The bucket of the sources.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        cluster: str,
        *,
        login_user: str,
        bucket: str,
        platform: Platform = "ec2",
        cluster_id: str = "",
        training: TrainingSettings | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.bucket = bucket
        settings = SubmissionSettings(
            platform, cluster, login_user, bucket, source_prefix(cluster), cluster_id, training
        )
        ssm.StringParameter(
            self,
            "Document",
            parameter_name=submission_parameter(cluster),
            simple_name=False,  # In a nested stack, the cluster's name is a token.
            string_value=Stack.of(self).to_json_string(settings.to_document()),
            tier=ssm.ParameterTier.INTELLIGENT_TIERING if training else None,  # It may be larger than 4 KiB.
            description="Where deeplearning-cdk submit starts jobs",
        )


def read_sources_statement(cluster: str, bucket: str) -> iam.PolicyStatement:
    """Return the permission to read the sources of all jobs of a cluster."""
    # A statement with an id is not merged with that of the assets, whose digests would decide the order of both.
    return iam.PolicyStatement(
        sid="ReadJobSources", actions=["s3:GetObject"], resources=[object_arn(bucket, f"{source_prefix(cluster)}*")]
    )
