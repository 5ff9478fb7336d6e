"""IAM permissions of training jobs: those of their role, and those of people who submit them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_contract.jobs.training_job import LOG_GROUP

SERVICE = "sagemaker.amazonaws.com"
_NAMESPACE = "/aws/sagemaker/TrainingJobs"
"""Namespace of the metrics of training jobs (developer guide, "Amazon SageMaker AI metrics in Amazon CloudWatch")."""
_DESCRIBES = (
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
)
"""Calls that take no resource in IAM."""
_REMOVALS = (
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
)


def training_statements(
    bucket: s3.IBucket,
    prefix: str,
    *,
    name_prefix: str,
    network: ClusterNetwork,
    groups: Iterable[ec2.ISecurityGroup],
    key_arn: str,
    has_volumes: bool,
) -> list[iam.PolicyStatement]:
    """
    Return the permissions that SageMaker uses for training jobs, as their role.

    Source: SageMaker developer guide, "How to use SageMaker AI execution roles", section "CreateTrainingJob API:
    Execution Role Permissions", with a VPC and a KMS key.

    Args:
        bucket: Bucket of models.
        prefix: Prefix of their keys.
        name_prefix: Beginning of the names of the jobs, and so of their log streams.
        network: Network of the containers.
        groups: Their security groups.
        key_arn: Key of models and volumes.
        has_volumes: Whether instances have volumes, which the key encrypts.
    """
    group = f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{LOG_GROUP}"
    subnet = _ec2_arn("subnet", network.worker_subnet.subnet_id)
    interfaces = _ec2_arn("network-interface", "*")
    site = [interfaces, subnet, *(_ec2_arn("security-group", each.security_group_id) for each in groups)]
    grant = [_allow(["kms:CreateGrant"], [key_arn], {"Bool": {"kms:GrantIsForAWSResource": "true"}})]
    return [
        _allow(["s3:PutObject"], [bucket.arn_for_objects(f"{prefix}*")]),
        _allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn]),
        *(grant if has_volumes else []),
        _allow(["logs:CreateLogGroup", "logs:DescribeLogStreams"], [group, f"{group}:*"]),
        _allow(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{group}:log-stream:{name_prefix}*"]),
        _allow(["cloudwatch:PutMetricData"], ["*"], {"StringEquals": {"cloudwatch:namespace": _NAMESPACE}}),
        _allow(_DESCRIBES, ["*"]),
        _allow(["ec2:CreateNetworkInterface"], site),
        _allow(_REMOVALS, [interfaces], {"ArnEquals": {"ec2:Subnet": subnet}}),
    ]


def submit_statements(
    *, name_prefix: str, role_arn: str, subnet_id: str, groups: Sequence[str], key_arn: str
) -> list[iam.PolicyStatement]:
    """
    Return the permissions to create, list, show and stop the training jobs of one stack.

    A job that is created must be in the stack's network and write models with its key. Source of the condition keys:
    Service Authorization Reference, "Actions, resources, and condition keys for Amazon SageMaker AI".

    Args:
        name_prefix: Beginning of the names of the jobs; their ARNs are in lower case.
        role_arn: Role of the jobs, which the submitter passes to SageMaker.
        subnet_id: Subnet of the containers.
        groups: Ids of their security groups.
        key_arn: Key of models.
    """
    jobs = [f"arn:{PARTITION}:sagemaker:{REGION}:{ACCOUNT_ID}:training-job/{name_prefix}*"]
    streams = f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{LOG_GROUP}"
    here: dict[str, Mapping[str, Any]] = {
        "ForAllValues:StringEquals": {
            "sagemaker:VpcSecurityGroupIds": list(groups),
            "sagemaker:VpcSubnets": [subnet_id],
        },
        # Without a value, `ForAllValues` is true.
        "Null": {"sagemaker:VpcSecurityGroupIds": "false", "sagemaker:VpcSubnets": "false"},
        "ArnEquals": {"sagemaker:OutputKmsKey": key_arn},
    }
    return [
        _allow(["sagemaker:CreateTrainingJob"], jobs, here),
        _allow(["sagemaker:AddTags", "sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"], jobs),
        _allow(["sagemaker:ListTrainingJobs"], ["*"]),
        _allow(["iam:PassRole"], [role_arn], {"StringEquals": {"iam:PassedToService": SERVICE}}),
        _allow(["logs:DescribeLogStreams"], [f"{streams}:*"]),
        _allow(["logs:GetLogEvents"], [f"{streams}:log-stream:{name_prefix}*"]),
    ]


def _ec2_arn(kind: str, name: str) -> str:
    return f"arn:{PARTITION}:ec2:{REGION}:{ACCOUNT_ID}:{kind}/{name}"


def _allow(
    actions: Sequence[str], resources: Sequence[str], conditions: Mapping[str, Mapping[str, Any]] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=list(actions), resources=list(resources), conditions=conditions)
