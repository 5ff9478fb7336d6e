"""
Which actions an operation needs, on which resources, with which condition keys.

From the Service Authorization Reference, page by page. An operation that is not here is refused: a right that nobody
has looked up is neither proved nor found missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.errors import UnknownOperationError
from cdk_rehearsal.iam.targets import (
    Estate,
    Parameters,
    Targets,
    Values,
    name_bucket,
    name_by_arn,
    name_event_bus,
    name_file_system,
    name_function,
    name_group,
    name_group_of_instance,
    name_instance,
    name_key,
    name_log_group,
    name_log_stream,
    name_mounted_file_system,
    name_nothing,
    name_object,
    name_parameter,
    name_queue,
    name_queue_by_name,
    name_table,
    name_topic,
    name_vault,
)


@dataclass(frozen=True)
class Need:
    """
    One action that a call needs.

    Attributes:
        action: `service:Action`.
        resource: ARN, or `*`.
        context: Condition keys that the service sets.
        is_implied: Whether the service calls it on the caller's behalf, as it uses a key.
    """

    action: str
    resource: str
    context: Values = field(default_factory=dict)
    is_implied: bool = False


@dataclass(frozen=True)
class _Rule:
    actions: tuple[str, ...]
    targets: Targets
    key_actions: tuple[str, ...] = ()


_RULES: Mapping[str, _Rule] = {
    "dynamodb.ListTables": _Rule(("dynamodb:ListTables",), name_nothing),
    "dynamodb.GetItem": _Rule(("dynamodb:GetItem",), name_table, ("kms:Decrypt",)),
    "dynamodb.PutItem": _Rule(("dynamodb:PutItem",), name_table, ("kms:Decrypt",)),
    "dynamodb.UpdateItem": _Rule(("dynamodb:UpdateItem",), name_table, ("kms:Decrypt",)),
    "dynamodb.DeleteItem": _Rule(("dynamodb:DeleteItem",), name_table, ("kms:Decrypt",)),
    "dynamodb.Query": _Rule(("dynamodb:Query",), name_table, ("kms:Decrypt",)),
    "dynamodb.DescribeTable": _Rule(("dynamodb:DescribeTable",), name_table),
    "dynamodb.ListTagsOfResource": _Rule(("dynamodb:ListTagsOfResource",), name_by_arn),
    "dynamodb.CreateBackup": _Rule(("dynamodb:CreateBackup",), name_table),
    "dynamodb.DescribeBackup": _Rule(("dynamodb:DescribeBackup",), name_by_arn),
    "dynamodb.DeleteBackup": _Rule(("dynamodb:DeleteBackup",), name_by_arn),
    # A right without an API of its own: the backup that AWS Backup makes by itself, with the table's key.
    "dynamodb.StartAwsBackupJob": _Rule(
        ("dynamodb:StartAwsBackupJob",), name_table, ("kms:Decrypt", "kms:GenerateDataKey")
    ),
    "dynamodb.Scan": _Rule(("dynamodb:Scan",), name_table, ("kms:Decrypt",)),
    "sqs.SendMessage": _Rule(("sqs:SendMessage",), name_queue, ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs.SendMessageBatch": _Rule(("sqs:SendMessage",), name_queue, ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs.ReceiveMessage": _Rule(("sqs:ReceiveMessage",), name_queue, ("kms:Decrypt",)),
    "sqs.DeleteMessage": _Rule(("sqs:DeleteMessage",), name_queue),
    "sqs.DeleteMessageBatch": _Rule(("sqs:DeleteMessage",), name_queue),
    "sqs.ChangeMessageVisibility": _Rule(("sqs:ChangeMessageVisibility",), name_queue),
    "sqs.GetQueueAttributes": _Rule(("sqs:GetQueueAttributes",), name_queue),
    "sqs.GetQueueUrl": _Rule(("sqs:GetQueueUrl",), name_queue_by_name),
    "sns.Publish": _Rule(("sns:Publish",), name_topic, ("kms:GenerateDataKey", "kms:Decrypt")),
    "autoscaling.DescribeAutoScalingGroups": _Rule(("autoscaling:DescribeAutoScalingGroups",), name_nothing),
    "autoscaling.DescribeAutoScalingInstances": _Rule(("autoscaling:DescribeAutoScalingInstances",), name_nothing),
    "autoscaling.DescribeScalingActivities": _Rule(("autoscaling:DescribeScalingActivities",), name_nothing),
    "autoscaling.DescribeTags": _Rule(("autoscaling:DescribeTags",), name_nothing),
    "autoscaling.DescribeWarmPool": _Rule(("autoscaling:DescribeWarmPool",), name_nothing),
    "autoscaling.SetDesiredCapacity": _Rule(("autoscaling:SetDesiredCapacity",), name_group),
    "autoscaling.UpdateAutoScalingGroup": _Rule(("autoscaling:UpdateAutoScalingGroup",), name_group),
    "autoscaling.SuspendProcesses": _Rule(("autoscaling:SuspendProcesses",), name_group),
    "autoscaling.ResumeProcesses": _Rule(("autoscaling:ResumeProcesses",), name_group),
    "autoscaling.DeleteWarmPool": _Rule(("autoscaling:DeleteWarmPool",), name_group),
    "autoscaling.PutWarmPool": _Rule(("autoscaling:PutWarmPool",), name_group),
    "autoscaling.SetInstanceHealth": _Rule(("autoscaling:SetInstanceHealth",), name_group_of_instance),
    "autoscaling.TerminateInstanceInAutoScalingGroup": _Rule(
        ("autoscaling:TerminateInstanceInAutoScalingGroup",), name_group_of_instance
    ),
    "s3.GetObject": _Rule(("s3:GetObject",), name_object, ("kms:Decrypt",)),
    "s3.HeadObject": _Rule(("s3:GetObject",), name_object, ("kms:Decrypt",)),
    "s3.PutObject": _Rule(("s3:PutObject",), name_object, ("kms:GenerateDataKey",)),
    "s3.CreateMultipartUpload": _Rule(("s3:PutObject",), name_object, ("kms:Decrypt", "kms:GenerateDataKey")),
    "s3.UploadPart": _Rule(("s3:PutObject",), name_object, ("kms:Decrypt", "kms:GenerateDataKey")),
    "s3.CompleteMultipartUpload": _Rule(("s3:PutObject",), name_object, ("kms:Decrypt", "kms:GenerateDataKey")),
    "s3.AbortMultipartUpload": _Rule(("s3:AbortMultipartUpload",), name_object),
    "s3.ListObjects": _Rule(("s3:ListBucket",), name_bucket),
    "s3.ListObjectsV2": _Rule(("s3:ListBucket",), name_bucket),
    "s3.HeadBucket": _Rule(("s3:ListBucket",), name_bucket),
    "s3.GetBucketLocation": _Rule(("s3:GetBucketLocation",), name_bucket),
    "logs.CreateLogGroup": _Rule(("logs:CreateLogGroup",), name_log_group),
    "logs.DescribeLogStreams": _Rule(("logs:DescribeLogStreams",), name_log_group),
    "logs.CreateLogStream": _Rule(("logs:CreateLogStream",), name_log_stream),
    "logs.PutLogEvents": _Rule(("logs:PutLogEvents",), name_log_stream),
    "events.PutEvents": _Rule(("events:PutEvents",), name_event_bus),
    "ssm.UpdateInstanceInformation": _Rule(("ssm:UpdateInstanceInformation",), name_instance),
    "ssm.GetParameter": _Rule(("ssm:GetParameter",), name_parameter),
    "ssm.GetParameters": _Rule(("ssm:GetParameters",), name_parameter),
    "ssmmessages.CreateControlChannel": _Rule(("ssmmessages:CreateControlChannel",), name_nothing),
    "ssmmessages.CreateDataChannel": _Rule(("ssmmessages:CreateDataChannel",), name_nothing),
    "ssmmessages.OpenControlChannel": _Rule(("ssmmessages:OpenControlChannel",), name_nothing),
    "ssmmessages.OpenDataChannel": _Rule(("ssmmessages:OpenDataChannel",), name_nothing),
    "kms.Decrypt": _Rule(("kms:Decrypt",), name_key),
    "kms.GenerateDataKey": _Rule(("kms:GenerateDataKey",), name_key),
    "elasticfilesystem.DescribeMountTargets": _Rule(
        ("elasticfilesystem:DescribeMountTargets",), name_mounted_file_system
    ),
    "elasticfilesystem.ClientMount": _Rule(("elasticfilesystem:ClientMount",), name_mounted_file_system),
    "elasticfilesystem.ClientWrite": _Rule(("elasticfilesystem:ClientWrite",), name_mounted_file_system),
    "elasticfilesystem.DescribeTags": _Rule(("elasticfilesystem:DescribeTags",), name_file_system),
    "elasticfilesystem.Backup": _Rule(("elasticfilesystem:Backup",), name_file_system),
    "tag.GetResources": _Rule(("tag:GetResources",), name_nothing),
    "backup.CopyIntoBackupVault": _Rule(("backup:CopyIntoBackupVault",), name_vault),
    "backup.DescribeBackupVault": _Rule(("backup:DescribeBackupVault",), name_vault),
    "backup.TagResource": _Rule(("backup:TagResource",), name_by_arn),
    # No API and no action of its own: a recovery point is encrypted with the vault's key, by a grant on it.
    "backup.EncryptRecoveryPoint": _Rule((), name_vault, ("kms:DescribeKey", "kms:CreateGrant")),
    # No API and no action of its own: Lambda decrypts the environment at a cold start, as the function's role.
    "lambda.DecryptEnvironment": _Rule((), name_function, ("kms:Decrypt",)),
    # No policy can forbid it, and none needs to allow it.
    "sts.GetCallerIdentity": _Rule((), name_nothing),
}


def find_needs(operation: str, parameters: Parameters, estate: Estate) -> tuple[Need, ...]:
    """
    Return what a call, `service.Operation`, needs, the use of keys included.

    UnknownOperationError: the operation is not in the table, or the call lacks what names its resource.
    """
    if (rule := _RULES.get(operation)) is None:
        raise UnknownOperationError(
            f"the rights that {operation} needs must be known, got a call of it; add it to iam/operations.py"
        )
    try:
        targets = tuple(rule.targets(parameters, estate))
    except (KeyError, ValueError, TypeError) as error:
        raise UnknownOperationError(f"{operation} must name its resource, got no {error} in the call") from error
    needs = [Need(action, arn, context) for arn, context in targets for action in rule.actions]
    service = operation.partition(".")[0]
    for arn, _ in targets if rule.key_actions else ():
        if key := estate.find_key(arn):
            needs += [
                Need(action, key, describe_key_use(service, action, arn, estate), is_implied=True)
                for action in rule.key_actions
            ]
    return tuple(needs)


def describe_key_use(service: str, action: str, arn: str, estate: Estate) -> Mapping[str, str | tuple[str, ...]]:
    """
    Return the condition keys of KMS for the use of the key of a resource, given by its ARN.

    The encryption contexts are those of the services' own pages about encryption at rest.
    """
    name = arn.rpartition("/")[2]
    pairs = {
        "sqs": {"aws:sqs:arn": arn},
        "sns": {"aws:sns:topicArn": arn},
        "dynamodb": {"aws:dynamodb:tableName": name, "aws:dynamodb:subscriberId": estate.account},
        "s3": {"aws:s3:arn": arn},
        "logs": {"aws:logs:arn": arn},
        "lambda": {"aws:lambda:FunctionArn": arn},
        "backup": {"aws:backup:backup-vault": arn},
    }.get(service, {})
    # Of a service that asks on a caller's behalf, KMS knows that the grant is for a resource of AWS.
    is_for_resource = {"kms:GrantIsForAWSResource": "true"} if action == "kms:CreateGrant" else {}
    return {
        "kms:ViaService": f"{service}.{estate.region}.{estate.url_suffix}",
        "kms:CallerAccount": estate.account,
        **is_for_resource,
        "kms:EncryptionContextKeys": tuple(pairs),
        **{f"kms:EncryptionContext:{key}": value for key, value in pairs.items()},
    }
