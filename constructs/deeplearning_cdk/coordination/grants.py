"""Permissions of people and pipelines that log in to a cluster or monitor it."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import IConstruct

from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.node_permissions import object_arn
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_contract.jobs.submission import SUBMISSION_PATH, TrainingSettings, source_prefix
from deeplearning_contract.jobs.training_job import JOB_TAG, LOG_GROUP
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.setting_parts import ScriptSettings

_Permission = tuple[Sequence[str], Sequence[str], Mapping[str, Mapping[str, Any]] | None]
"""Actions, resources and conditions."""
_AWS_DOCUMENTS = ("AWS-StartInteractiveCommand", "AWS-StartSSHSession")
"""AWS's session documents with which `deeplearning-cdk ssh` runs a command or tunnels SSH."""


def grant_session(grantee: iam.IGrantable, cluster: str) -> iam.Grant:
    """
    Grant the permission to start sessions on the nodes of a cluster, and to end the grantee's own.

    Source: Systems Manager user guide, "Sample IAM policies for Session Manager", and "Additional sample IAM policies
    for Session Manager" for the access by tags. A shell uses the account's document SSM-SessionManagerRunShell.
    """
    place = f"arn:{PARTITION}:ssm:{REGION}"
    nodes = f"arn:{PARTITION}:ec2:{REGION}:{ACCOUNT_ID}:instance/*"
    own_sessions = f"arn:{PARTITION}:ssm:*:*:session/${{aws:userid}}-*"
    documents = [f"{place}::document/{name}" for name in _AWS_DOCUMENTS]
    documents.append(f"{place}:{ACCOUNT_ID}:document/SSM-SessionManagerRunShell")
    return _grant(
        grantee,
        cluster,
        (["ssm:StartSession"], [nodes], {"StringEquals": {f"ssm:resourceTag/{CLUSTER_TAG}": cluster}}),
        (["ssm:StartSession"], documents, None),
        (["ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"], [own_sessions], None),
        # The commands find the node by its tags; the call takes no resource in IAM.
        (["ec2:DescribeInstances"], ["*"], None),
    )


def grant_submit(grantee: iam.IGrantable, cluster: str, bucket: str) -> iam.Grant:
    """
    Grant the permissions of `deeplearning-cdk submit`, `jobs`, `stop` and `plan`: a session, and the upload of sources.

    The submission document is found by its path, so the documents of the region's other clusters can be read as well.
    """
    return grant_session(grantee, cluster).combine(_grant(grantee, cluster, *_list_uploads(cluster, bucket)))


def grant_training_jobs(
    grantee: iam.IGrantable,
    cluster: str,
    settings: TrainingSettings,
    bucket: str,
) -> iam.Grant:
    """
    Grant the permissions of `submit`, `jobs`, `logs`, `stop` and `plan` for training jobs of SageMaker.

    Jobs have the names, the role, the network, the key, the instance type, the file systems and the tag of the stack,
    and end after its longest run and warm pool. A submitter chooses the image and the commands, and so can use all
    rights of the role. Listing takes no resource in IAM, so the names of the account's other training jobs can be read
    as well.
    """
    place = f"{REGION}:{ACCOUNT_ID}"
    jobs = f"arn:{PARTITION}:sagemaker:{place}:training-job/{settings.name_prefix}*"
    logs = f"arn:{PARTITION}:logs:{place}:log-group:{LOG_GROUP}"
    to_sagemaker = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    of_stack = {f"aws:RequestTag/{CLUSTER_TAG}": cluster}
    tags = {"aws:TagKeys": [CLUSTER_TAG, JOB_TAG]}
    calls = ["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"]
    return _grant(
        grantee,
        cluster,
        *_list_uploads(cluster, bucket),
        _read_agent(settings.agent),
        (["sagemaker:CreateTrainingJob"], [jobs], _limit_jobs(settings, of_stack, tags)),
        (["sagemaker:AddTags"], [jobs], {"StringEquals": of_stack, "ForAllValues:StringEquals": tags}),
        (calls, [jobs], None),
        (["sagemaker:ListTrainingJobs"], ["*"], None),
        (["iam:PassRole"], [settings.role_arn], to_sagemaker),
        (["logs:DescribeLogStreams"], [f"{logs}:*"], None),
        (["logs:GetLogEvents"], [f"{logs}:log-stream:{settings.name_prefix}*"], None),
    )


def _limit_jobs(
    settings: TrainingSettings, of_stack: Mapping[str, str], tags: Mapping[str, Sequence[str]]
) -> Mapping[str, Mapping[str, Any]]:
    """
    Return the conditions of a new training job.

    `ForAllValues` matches a call without the key, so keys that every job needs must be present too. Those of file
    systems have the values of every channel that has one.

    Sources: Service Authorization Reference of SageMaker AI, CreateTrainingJob; SageMaker developer guide, "Restrict
    training to a specific VPC", "Use SageMaker AI managed warm pools" (KeepAlivePeriod), "Access a training container
    through AWS Systems Manager for remote debugging", and "Identity-based policy examples" for file systems.
    """
    needed = {
        "InstanceTypes": [settings.instance_type],
        "VpcSubnets": list(settings.subnets),
        "VpcSecurityGroupIds": list(settings.security_groups),
    }
    systems = [settings.shared, *([settings.lustre] if settings.lustre else [])]
    linked = [source.name for source in settings.data if source.target == "lustre"]
    folders = [f"{settings.lustre.path}/{name}" for name in linked] if settings.lustre else []
    allowed = {
        "FileSystemId": [system.file_system_id for system in systems],
        "FileSystemType": [system.kind for system in systems],
        "FileSystemAccessMode": ["rw", *(["ro"] if settings.lustre else [])],
        "FileSystemDirectoryPath": [settings.shared.path, *folders],
    }
    return {
        "ForAllValues:StringEquals": {
            **{f"sagemaker:{key}": values for key, values in {**needed, **allowed}.items()},
            **tags,
        },
        "Null": {f"sagemaker:{key}": "false" for key in needed},
        "ArnEquals": {"sagemaker:OutputKmsKey": settings.key_arn},
        "StringEquals": of_stack,
        "NumericLessThanEquals": {"sagemaker:MaxRuntimeInSeconds": str(settings.max_seconds)},
        "NumericLessThanEqualsIfExists": {"sagemaker:KeepAlivePeriod": str(settings.keep_alive_seconds)},
        "BoolIfExists": {"sagemaker:EnableRemoteDebug": "false"},
    }


def grant_uploads(grantee: iam.IGrantable, cluster: str, bucket: str, agent: ScriptSettings) -> iam.Grant:
    """
    Grant the permissions to find the submission document, to upload sources and to copy the zip of programs.

    Jobs on EKS need no more of IAM.
    """
    return _grant(grantee, cluster, *_list_uploads(cluster, bucket), _read_agent(agent))


def _read_agent(agent: ScriptSettings) -> _Permission:
    """Return the permission to copy the zip of programs, an asset, to where jobs read it."""
    return ["s3:GetObject"], [object_arn(agent.bucket, agent.key)], None


def _list_uploads(cluster: str, bucket: str) -> list[_Permission]:
    documents = f"arn:{PARTITION}:ssm:{REGION}:{ACCOUNT_ID}:parameter{SUBMISSION_PATH}"
    return [
        (["ssm:GetParametersByPath"], [documents], None),
        (["s3:PutObject"], [object_arn(bucket, f"{source_prefix(cluster)}*")], None),
    ]


def grant_steps(grantee: iam.IGrantable, cluster: str, cluster_id: str) -> iam.Grant:
    """Grant the permission to add, read and cancel the steps of a cluster on EMR."""
    actions = [f"elasticmapreduce:{call}" for call in ("AddJobFlowSteps", "CancelSteps", "DescribeStep", "ListSteps")]
    return _grant(
        grantee,
        cluster,
        (actions, [f"arn:{PARTITION}:elasticmapreduce:{REGION}:{ACCOUNT_ID}:cluster/{cluster_id}"], None),
    )


def grant_read_status(
    grantee: iam.IGrantable,
    cluster: str,
    *,
    coordination: Coordination,
    adjuster: lambda_.IFunction,
    log_groups: Sequence[logs.ILogGroup],
    key: kms.IKey,
) -> iam.Grant:
    """
    Grant the permissions of `deeplearning-cdk status` and `logs` with the stack's name.

    DynamoDB decrypts the table, and Lambda the settings of the adjuster, with the caller's permission for the key.
    Among those settings is the presigned URL that completes the stack's creation.
    """
    services = [f"{service}.{REGION}.amazonaws.com" for service in ("dynamodb", "lambda")]
    return _grant(
        grantee,
        cluster,
        (
            [f"cloudformation:{call}" for call in ("DescribeStackEvents", "DescribeStacks", "ListStackResources")],
            [Stack.of(coordination).stack_id],
            None,
        ),
        # These calls take no resource in IAM.
        (
            [
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeScalingActivities",
                "ec2:DescribeInstances",
                "ec2:DescribeLaunchTemplateVersions",
            ],
            ["*"],
            None,
        ),
        (["lambda:GetFunctionConfiguration"], [adjuster.function_arn], None),
        (["dynamodb:GetItem"], [coordination.state_table.table_arn], None),
        (["logs:FilterLogEvents"], [group.log_group_arn for group in log_groups], None),
        (["kms:Decrypt"], [key.key_arn], {"StringEquals": {"kms:ViaService": services}}),
    )


def _grant(grantee: iam.IGrantable, cluster: str, *permissions: _Permission) -> iam.Grant:
    """
    Grant permissions by a managed policy of the grantee for the cluster, with its wildcards acknowledged.

    The policy has no other statements, so the acknowledgement covers none of the user's.
    """
    holder = _find_holder(grantee, f"{cluster}-access")
    grants = [
        iam.Grant.add_to_principal(
            grantee=holder, actions=list(actions), resource_arns=list(resources), conditions=conditions
        )
        for actions, resources, conditions in permissions
    ]
    wildcards = [each for _, resources, _ in permissions for each in resources if "*" in each]
    if wildcards:
        for policy in _find_policies(holder):
            acknowledge(policy, "wildcard-resources", findings=wildcards)
    return reduce(lambda all_, each: all_.combine(each), grants)


def _find_holder(grantee: iam.IGrantable, policy_id: str) -> iam.IGrantable:
    """Return the managed policy of a role, user or group; any other grantee, such as an imported role, itself."""
    principal: Any = grantee.grant_principal
    if not isinstance(principal, iam.Role | iam.User | iam.Group):
        return grantee
    found = cast("iam.ManagedPolicy | None", principal.node.try_find_child(policy_id))
    return found or iam.ManagedPolicy(
        principal,
        policy_id,
        roles=[principal] if isinstance(principal, iam.Role) else None,
        users=[principal] if isinstance(principal, iam.User) else None,
        groups=[principal] if isinstance(principal, iam.Group) else None,
    )


def _find_policies(holder: iam.IGrantable) -> list[IConstruct]:
    if isinstance(holder, iam.Policy | iam.ManagedPolicy):
        return [holder]
    principal: Any = holder.grant_principal
    children = principal.node.children if hasattr(principal, "node") else []
    # aws-cdk-lib 2.275.0, aws-iam: ids of the policies of imported roles and users, and of imported groups.
    names = ("Policy", "DefaultPolicy")
    return [each for each in children if isinstance(each, iam.Policy) and each.node.id.startswith(names)]
