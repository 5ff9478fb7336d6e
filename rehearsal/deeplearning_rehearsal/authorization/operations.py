"""
Which actions an operation needs, on which resources, with which condition keys.

From the Service Authorization Reference, page by page. An operation that is not here is refused: a right that nobody
has looked up is neither proved nor found missing.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from deeplearning_rehearsal.authorization.errors import UnknownOperationError
from deeplearning_rehearsal.authorization.estate import Estate
from deeplearning_rehearsal.authorization.key_use import describe_key_use

Parameters = Mapping[str, Any]
Values = Mapping[str, str | tuple[str, ...]]
Target = tuple[str, Values]
"""ARN of a resource (`*` where the action takes none), and the condition keys that the service sets for it."""
Targets = Callable[[Parameters, Estate], Iterator[Target]]


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


def _nothing(_parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield "*", {}


def _table(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    name = str(parameters["TableName"])
    arn = name if name.startswith("arn:") else estate.arn("dynamodb", f"table/{name}")
    keys = [part for part in (parameters.get("Key"), parameters.get("Item")) if isinstance(part, Mapping)]
    leading = [next(iter(value.values())) for part in keys for value in list(part.values())[:1]]
    yield arn, {"dynamodb:LeadingKeys": tuple(str(value) for value in leading)} if leading else {}


def _queue(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    account, name = str(parameters["QueueUrl"]).rstrip("/").split("/")[-2:]
    own = estate.arn("sqs", name)
    yield own.replace(f":{estate.account}:", f":{account}:"), {}


def _named_queue(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("sqs", str(parameters["QueueName"])), {}


def _topic(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield str(parameters.get("TopicArn") or parameters["TargetArn"]), {}


def _group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield from _tagged(estate.find_group(str(parameters["AutoScalingGroupName"])))


def _group_of_instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield from _tagged(estate.find_group_of(str(parameters["InstanceId"])))


def _tagged(group: tuple[str, Mapping[str, str]] | None) -> Iterator[Target]:
    """Name a group by its tags; of one that is not there the service itself says so, whoever asks."""
    if group is not None:
        arn, tags = group
        yield (
            arn,
            {f"{prefix}:ResourceTag/{key}": value for key, value in tags.items() for prefix in ("autoscaling", "aws")},
        )


def _object(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield f"{_bucket_arn(parameters, estate)}/{parameters['Key']}", {}


def _bucket(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    names = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}
    context = {key: str(parameters[name]) for name, key in names.items() if name in parameters}
    yield _bucket_arn(parameters, estate), context


def _bucket_arn(parameters: Parameters, estate: Estate) -> str:
    partition = estate.arn("s3", "").split(":")[1]
    return f"arn:{partition}:s3:::{parameters['Bucket']}"


def _log_stream(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:{parameters['logStreamName']}"), {}


def _log_group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    # As refusals of CloudWatch Logs name a group; its user guide wants `:*` after a group's name in policies.
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:"), {}


def _events(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    for entry in parameters["Entries"]:
        bus = str(entry.get("EventBusName") or "default")
        arn = bus if bus.startswith("arn:") else estate.arn("events", f"event-bus/{bus}")
        yield arn, {"events:source": str(entry["Source"]), "events:detail-type": str(entry["DetailType"])}


def _instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    arn = estate.arn("ec2", f"instance/{parameters['InstanceId']}")
    yield arn, {"ssm:SourceInstanceARN": arn}


def _parameter(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    for name in parameters.get("Names") or [parameters["Name"]]:
        yield estate.arn("ssm", f"parameter/{str(name).lstrip('/')}"), {}


def _key(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    name = str(parameters.get("KeyId") or "unknown")
    yield name if name.startswith("arn:") else estate.arn("kms", f"key/{name}"), {}


def _file_system(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    context: dict[str, str] = {"elasticfilesystem:AccessedViaMountTarget": "true"}
    if "AccessPointArn" in parameters:
        context["elasticfilesystem:AccessPointArn"] = str(parameters["AccessPointArn"])
    yield estate.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), context


_RULES: Mapping[str, _Rule] = {
    "dynamodb.ListTables": _Rule(("dynamodb:ListTables",), _nothing),
    "dynamodb.GetItem": _Rule(("dynamodb:GetItem",), _table, ("kms:Decrypt",)),
    "dynamodb.PutItem": _Rule(("dynamodb:PutItem",), _table, ("kms:Decrypt",)),
    "dynamodb.UpdateItem": _Rule(("dynamodb:UpdateItem",), _table, ("kms:Decrypt",)),
    "dynamodb.DeleteItem": _Rule(("dynamodb:DeleteItem",), _table, ("kms:Decrypt",)),
    "dynamodb.Query": _Rule(("dynamodb:Query",), _table, ("kms:Decrypt",)),
    "dynamodb.Scan": _Rule(("dynamodb:Scan",), _table, ("kms:Decrypt",)),
    "sqs.SendMessage": _Rule(("sqs:SendMessage",), _queue, ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs.SendMessageBatch": _Rule(("sqs:SendMessage",), _queue, ("kms:GenerateDataKey", "kms:Decrypt")),
    "sqs.ReceiveMessage": _Rule(("sqs:ReceiveMessage",), _queue, ("kms:Decrypt",)),
    "sqs.DeleteMessage": _Rule(("sqs:DeleteMessage",), _queue),
    "sqs.DeleteMessageBatch": _Rule(("sqs:DeleteMessage",), _queue),
    "sqs.ChangeMessageVisibility": _Rule(("sqs:ChangeMessageVisibility",), _queue),
    "sqs.GetQueueAttributes": _Rule(("sqs:GetQueueAttributes",), _queue),
    "sqs.GetQueueUrl": _Rule(("sqs:GetQueueUrl",), _named_queue),
    "sns.Publish": _Rule(("sns:Publish",), _topic, ("kms:GenerateDataKey", "kms:Decrypt")),
    "autoscaling.DescribeAutoScalingGroups": _Rule(("autoscaling:DescribeAutoScalingGroups",), _nothing),
    "autoscaling.DescribeAutoScalingInstances": _Rule(("autoscaling:DescribeAutoScalingInstances",), _nothing),
    "autoscaling.DescribeScalingActivities": _Rule(("autoscaling:DescribeScalingActivities",), _nothing),
    "autoscaling.DescribeTags": _Rule(("autoscaling:DescribeTags",), _nothing),
    "autoscaling.DescribeWarmPool": _Rule(("autoscaling:DescribeWarmPool",), _nothing),
    "autoscaling.SetDesiredCapacity": _Rule(("autoscaling:SetDesiredCapacity",), _group),
    "autoscaling.UpdateAutoScalingGroup": _Rule(("autoscaling:UpdateAutoScalingGroup",), _group),
    "autoscaling.SuspendProcesses": _Rule(("autoscaling:SuspendProcesses",), _group),
    "autoscaling.ResumeProcesses": _Rule(("autoscaling:ResumeProcesses",), _group),
    "autoscaling.DeleteWarmPool": _Rule(("autoscaling:DeleteWarmPool",), _group),
    "autoscaling.PutWarmPool": _Rule(("autoscaling:PutWarmPool",), _group),
    "autoscaling.SetInstanceHealth": _Rule(("autoscaling:SetInstanceHealth",), _group_of_instance),
    "autoscaling.TerminateInstanceInAutoScalingGroup": _Rule(
        ("autoscaling:TerminateInstanceInAutoScalingGroup",), _group_of_instance
    ),
    "s3.GetObject": _Rule(("s3:GetObject",), _object, ("kms:Decrypt",)),
    "s3.HeadObject": _Rule(("s3:GetObject",), _object, ("kms:Decrypt",)),
    "s3.PutObject": _Rule(("s3:PutObject",), _object, ("kms:GenerateDataKey",)),
    "s3.ListObjects": _Rule(("s3:ListBucket",), _bucket),
    "s3.ListObjectsV2": _Rule(("s3:ListBucket",), _bucket),
    "s3.HeadBucket": _Rule(("s3:ListBucket",), _bucket),
    "s3.GetBucketLocation": _Rule(("s3:GetBucketLocation",), _bucket),
    "logs.CreateLogGroup": _Rule(("logs:CreateLogGroup",), _log_group),
    "logs.DescribeLogStreams": _Rule(("logs:DescribeLogStreams",), _log_group),
    "logs.CreateLogStream": _Rule(("logs:CreateLogStream",), _log_stream),
    "logs.PutLogEvents": _Rule(("logs:PutLogEvents",), _log_stream),
    "events.PutEvents": _Rule(("events:PutEvents",), _events),
    "ssm.UpdateInstanceInformation": _Rule(("ssm:UpdateInstanceInformation",), _instance),
    "ssm.GetParameter": _Rule(("ssm:GetParameter",), _parameter),
    "ssm.GetParameters": _Rule(("ssm:GetParameters",), _parameter),
    "ssmmessages.CreateControlChannel": _Rule(("ssmmessages:CreateControlChannel",), _nothing),
    "ssmmessages.CreateDataChannel": _Rule(("ssmmessages:CreateDataChannel",), _nothing),
    "ssmmessages.OpenControlChannel": _Rule(("ssmmessages:OpenControlChannel",), _nothing),
    "ssmmessages.OpenDataChannel": _Rule(("ssmmessages:OpenDataChannel",), _nothing),
    "kms.Decrypt": _Rule(("kms:Decrypt",), _key),
    "kms.GenerateDataKey": _Rule(("kms:GenerateDataKey",), _key),
    "elasticfilesystem.DescribeMountTargets": _Rule(("elasticfilesystem:DescribeMountTargets",), _file_system),
    "elasticfilesystem.ClientMount": _Rule(("elasticfilesystem:ClientMount",), _file_system),
    "elasticfilesystem.ClientWrite": _Rule(("elasticfilesystem:ClientWrite",), _file_system),
    # No policy can forbid it, and none needs to allow it.
    "sts.GetCallerIdentity": _Rule((), _nothing),
}


def find_needs(operation: str, parameters: Parameters, estate: Estate) -> tuple[Need, ...]:
    """
    Return what a call needs, the use of keys included.

    Args:
        operation: `service.Operation`, with the service's signing name.
        parameters: Of the call.
        estate: The account.

    Raises:
        UnknownOperationError: The operation is not in the table, or the call lacks what names its resource.
    """
    if (rule := _RULES.get(operation)) is None:
        raise UnknownOperationError(
            f"the rights that {operation} needs must be known, got a call of it; add it to authorization/operations.py"
        )
    try:
        targets = tuple(rule.targets(parameters, estate))
    except (KeyError, ValueError, TypeError) as error:
        raise UnknownOperationError(f"{operation} must name its resource, got no {error} in the call") from error
    needs = [Need(action, arn, context) for arn, context in targets for action in rule.actions]
    service = operation.partition(".")[0]
    for arn, _ in targets if rule.key_actions else ():
        if key := estate.find_key(arn):
            context = describe_key_use(service, arn, estate)
            needs += [Need(action, key, context, is_implied=True) for action in rule.key_actions]
    return tuple(needs)


def list_operations() -> tuple[str, ...]:
    """Return all operations of the table."""
    return tuple(_RULES)
