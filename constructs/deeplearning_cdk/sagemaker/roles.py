"""
IAM role of training jobs: what SageMaker does as that role, and what the containers may do.

The actions are those of the SageMaker developer guide, "CreateTrainingJob API: Execution Role Permissions", with a VPC
and keys; resources and condition keys are those of the Service Authorization Reference. AWS's own policy for the role,
AmazonSageMakerFullAccess, has more than 500 actions.
"""

from collections.abc import Iterable, Sequence

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import allow, ec2_arn, security_group_arns
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.node_roles import attach_rights
from deeplearning_contract.jobs.submission import agent_prefix
from deeplearning_contract.jobs.training_job import LOG_GROUP

_NAMESPACE = "/aws/sagemaker/TrainingJobs"
"""CloudWatch namespace of training jobs (SageMaker developer guide, "Amazon SageMaker AI metrics")."""
_DESCRIBES = (
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
"""Calls that take no resource in IAM."""
_REMOVALS = ("ec2:DeleteNetworkInterface", "ec2:DeleteNetworkInterfacePermission")


def make_execution_role(
    scope: Construct,
    construct_id: str,
    statements: Iterable[iam.PolicyStatement],
    *,
    description: str,
    is_for_jobs: bool = True,
) -> iam.Role:
    """
    Create a role that SageMaker takes, with its permissions; one for jobs is taken for this account alone.

    AWS documents `aws:SourceAccount` for training jobs and not for notebook instances (SageMaker developer guide,
    "Cross-service confused deputy prevention"); no account can pass the role of another one.
    """
    limits = {"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}} if is_for_jobs else {}
    role = iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com", conditions=limits),
        description=description,
    )
    attach_rights(role, list(statements))
    return role


def interface_statements(subnet: ec2.ISubnet, groups: Sequence[ec2.ISecurityGroup]) -> list[iam.PolicyStatement]:
    """Return the permissions to connect an instance with a subnet, in these security groups, and to look there."""
    interfaces, place = ec2_arn("network-interface"), ec2_arn("subnet", subnet.subnet_id)
    return [
        allow(["ec2:CreateNetworkInterface"], [interfaces, place, *security_group_arns(groups)]),
        allow(["ec2:CreateNetworkInterfacePermission"], [interfaces], {"ArnEquals": {"ec2:Subnet": place}}),
        allow(_DESCRIBES, ["*"]),
    ]


def removal_statements(key: str, place: str) -> list[iam.PolicyStatement]:
    """Return the permissions to remove interfaces where the condition key `key` is an ARN."""
    return [allow(_REMOVALS, [ec2_arn("network-interface")], {"ArnEquals": {key: place}})]


def agent_statements(cluster: str, bucket: str) -> list[iam.PolicyStatement]:
    """
    Return the permission to find the programs of jobs: a channel is a prefix, which SageMaker lists.

    The keys of sources, beside them, stay unlisted: who knows none cannot read one.
    """
    arn = f"arn:{PARTITION}:s3:::{bucket}"
    return [allow(["s3:ListBucket"], [arn], {"StringLike": {"s3:prefix": f"{agent_prefix(cluster)}*"}})]


def model_statements(bucket: s3.IBucket, prefix: str, key_arn: str, *, has_volume: bool) -> list[iam.PolicyStatement]:
    """
    Return the permissions to write models, and to encrypt models and, with `has_volume`, the volumes of instances.

    S3 needs a data key for a model, and decrypts it for the parts of a large one (S3 user guide, "Uploading an object
    with server-side encryption"); nobody else uses it as the role. SageMaker requires `kms:Encrypt` for the key of the
    output (SageMaker API reference, OutputDataConfig), and grants the use of that of the volumes to EBS.
    """
    rights = [
        allow(["s3:PutObject"], [bucket.arn_for_objects(f"{prefix}*")]),
        allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn], through_s3()),
        allow(["kms:Encrypt"], [key_arn]),
    ]
    if has_volume:
        rights.append(allow(["kms:CreateGrant"], [key_arn], {"Bool": {"kms:GrantIsForAWSResource": "true"}}))
    return rights


def through_s3() -> dict[str, dict[str, str]]:
    """Return the condition that S3 uses a key for the caller."""
    return {"StringEquals": {"kms:ViaService": f"s3.{REGION}.amazonaws.com"}}


def log_statements(name_prefix: str) -> list[iam.PolicyStatement]:
    """Return the permissions to write logs and metrics of training jobs whose names have a prefix."""
    group = f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{LOG_GROUP}"
    return [
        allow(["logs:CreateLogGroup", "logs:DescribeLogStreams"], [f"{group}:*"]),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{group}:log-stream:{name_prefix}*"]),
        allow(["cloudwatch:PutMetricData"], ["*"], {"StringEquals": {"cloudwatch:namespace": _NAMESPACE}}),
    ]
