"""Submission of jobs: the document from which `deeplearning-cdk submit` learns where and how a job starts."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import object_arn
from deeplearning_cdk.nodes.user_data import estimate_size
from deeplearning_contract.jobs.submission import (
    KubernetesSettings,
    Platform,
    SubmissionSettings,
    TrainingSettings,
    source_prefix,
    submission_parameter,
)

_DESCRIPTION = "Where deeplearning-cdk submit starts jobs"
_MOST_BYTES = 8 * 1024
"""Largest value of an advanced SSM parameter (Systems Manager user guide, "Managing parameter tiers")."""


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
        kubernetes: Jobs of EKS. Default: none, for another platform.

    Attributes:
        bucket: The bucket of the sources.

    Raises:
        ValueError: The document is too long for a parameter.
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
        kubernetes: KubernetesSettings | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.bucket = bucket
        settings = SubmissionSettings(
            platform, cluster, login_user, bucket, source_prefix(cluster), cluster_id, training, kubernetes
        )
        name, document = submission_parameter(cluster), settings.to_document()
        if training is not None or kubernetes is not None:
            make_parameter(
                self, "Document", document, subject="submission document", description=_DESCRIPTION, name=name
            )
            return
        ssm.StringParameter(
            self,
            "Document",
            parameter_name=name,
            simple_name=False,  # In a nested stack, the cluster's name is a token.
            string_value=Stack.of(self).to_json_string(document),
            description=_DESCRIPTION,
        )


def make_parameter(
    scope: Construct,
    construct_id: str,
    document: Mapping[str, Any],
    *,
    subject: str,
    description: str,
    name: str | None = None,
) -> ssm.StringParameter:
    """
    Create an SSM parameter with a document that grows with the data in S3, of the tier that its size needs.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        document: The JSON object; values may be tokens.
        subject: What the document is, in the error.
        description: The parameter's description.
        name: Its name, with `/` at its beginning. Default: CloudFormation makes one.

    Raises:
        ValueError: The document is too long.
    """
    text = Stack.of(scope).to_json_string(dict(document))
    if (size := estimate_size(Stack.of(scope).resolve(text))) > _MOST_BYTES:
        raise ValueError(
            f"{subject} must be at most {_MOST_BYTES} bytes, got about {size}; give storage.data fewer sources or "
            "shorter names"
        )
    return ssm.StringParameter(
        scope,
        construct_id,
        parameter_name=name,
        simple_name=None if name is None else False,
        string_value=text,
        tier=ssm.ParameterTier.INTELLIGENT_TIERING,
        description=description,
    )


def read_sources_statement(cluster: str, bucket: str) -> iam.PolicyStatement:
    """Return the permission to read the sources of all jobs of a cluster."""
    # A statement with an id is not merged with that of the assets, whose digests would decide the order of both.
    return iam.PolicyStatement(
        sid="ReadJobSources", actions=["s3:GetObject"], resources=[object_arn(bucket, f"{source_prefix(cluster)}*")]
    )
