"""
The actions that an operation needs, on which resources, with which condition keys.

From the Service Authorization Reference, page by page. An operation that is not here is refused: a right that nobody
has looked up is neither proved nor found missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.errors import UnknownOperationError
from cdk_rehearsal.iam.ec2_resources import (
    name_ec2_resource,
    name_launch,
    name_new_interface,
    name_new_volume,
    name_tagged_resources,
    name_vpc,
)
from cdk_rehearsal.iam.estate import Estate, Parameters, Target, Targets, Values
from cdk_rehearsal.iam.sagemaker_resources import (
    list_execution_roles,
    list_new_tags,
    name_metrics,
    name_new_training_job,
    name_repository,
    name_tagged_job,
    name_training_job,
)


def _name_nothing(_parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield "*", {}


def _name_table(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a table, and the value of its partition key that the call is about, wherever in the item it stands."""
    arn = str(parameters["TableName"])
    arn = arn if arn.startswith("arn:") else estate.arn("dynamodb", f"table/{arn}")
    key = estate.find_partition_key(arn.partition("/")[2])
    items = [part for part in (parameters.get("Key"), parameters.get("Item")) if isinstance(part, Mapping)]
    leading = [next(iter(item[key].values())) for item in items if key in item]
    yield arn, {"dynamodb:LeadingKeys": tuple(str(value) for value in leading)} if leading else {}


def _name_queue(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    account, name = str(parameters["QueueUrl"]).rstrip("/").split("/")[-2:]
    own = estate.arn("sqs", name)
    yield own.replace(f":{estate.account}:", f":{account}:"), {}


def _name_queue_by_name(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("sqs", str(parameters["QueueName"])), {}


def _name_topic(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield str(parameters.get("TopicArn") or parameters["TargetArn"]), {}


def _name_group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield from _name_tagged(estate.find_group(str(parameters["AutoScalingGroupName"])))


def _name_group_of_instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield from _name_tagged(estate.find_group_of(str(parameters["InstanceId"])))


def _name_tagged(group: tuple[str, Mapping[str, str]] | None) -> Iterator[Target]:
    if group is not None:  # of one that is not there the service itself says so, whoever calls
        arn, tags = group
        yield arn, {f"{name}:ResourceTag/{key}": tags[key] for key in tags for name in ("autoscaling", "aws")}


def _name_object(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name an object, and the headers of its upload by which policies decide."""
    names = {"ACL": "acl", "ServerSideEncryption": "server-side-encryption"}
    names["SSEKMSKeyId"] = "server-side-encryption-aws-kms-key-id"
    context = {f"s3:x-amz-{key}": str(parameters[name]) for name, key in names.items() if name in parameters}
    yield f"{_format_bucket(parameters, estate)}/{parameters['Key']}", context


def _name_bucket(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a bucket, and what is listed of it."""
    names = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}
    context = {key: str(parameters[name]) for name, key in names.items() if name in parameters}
    yield _format_bucket(parameters, estate), context


def _format_bucket(parameters: Parameters, estate: Estate) -> str:
    partition = estate.arn("s3", "").split(":")[1]
    return f"arn:{partition}:s3:::{parameters['Bucket']}"


def _name_log_stream(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:{parameters['logStreamName']}"), {}


def _name_log_group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    # As refusals of CloudWatch Logs name a group; its user guide wants `:*` after a group's name in policies.
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:"), {}


def _name_event_bus(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """
    Name each bus of a batch, with the sources and detail types of all its events.

    EventBridge's user guide ("Using IAM policy conditions") leaves open whether a batch is decided as one or event by
    event. A policy for all values decides alike either way; one for a single value is refused for several.
    """
    buses: dict[str, list[Parameters]] = {}
    for entry in parameters["Entries"]:
        bus = str(entry.get("EventBusName") or "default")
        arn = bus if bus.startswith("arn:") else estate.arn("events", f"event-bus/{bus}")
        buses.setdefault(arn, []).append(entry)
    names = {"events:source": "Source", "events:detail-type": "DetailType"}
    for arn, entries in buses.items():
        yield arn, {key: tuple(dict.fromkeys(str(entry[name]) for entry in entries)) for key, name in names.items()}


def _name_instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """
    Name an instance as Systems Manager does.

    No key names the instance that the call is about; `ssm:SourceInstanceARN` is absent where an instance profile calls
    (Service Authorization Reference, "Condition keys for AWS Systems Manager").
    """
    yield estate.arn("ec2", f"instance/{parameters['InstanceId']}"), {}


def _name_parameter(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name each parameter; AWS's public ones belong to no account."""
    for name in map(str, parameters.get("Names") or [parameters["Name"]]):
        arn = estate.arn("ssm", f"parameter/{name.lstrip('/')}")
        yield arn.replace(f":{estate.account}:", "::", 1) if name.startswith("/aws/service/") else arn, {}


def _name_path(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """
    Name a path of parameters as it is asked for.

    Who may read a path reads all its levels (Systems Manager user guide, "Restricting access to Parameter Store
    parameters using IAM policies"); refusals name the path alone (aws/aws-dotnet-extensions-configuration#108).
    """
    yield estate.arn("ssm", f"parameter/{str(parameters['Path']).removeprefix('/')}"), {}


def _name_key(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    name = str(parameters.get("KeyId") or "unknown")
    yield name if name.startswith("arn:") else estate.arn("kms", f"key/{name}"), {}


def _name_mounted_file_system(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    context: dict[str, str] = {"elasticfilesystem:AccessedViaMountTarget": "true"}
    if point := parameters.get("AccessPointId"):
        context["elasticfilesystem:AccessPointArn"] = estate.arn("elasticfilesystem", f"access-point/{point}")
    yield estate.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), context


def _name_file_system(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), {}


def _name_by_arn(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield str(parameters.get("BackupArn") or parameters["ResourceArn"]), {}


def _name_vault(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("backup", f"backup-vault:{parameters['BackupVaultName']}"), {}


def _name_function(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    yield estate.arn("lambda", f"function:{parameters['FunctionName']}"), {}


def _name_passed_role(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield str(parameters["RoleArn"]), {"iam:PassedToService": str(parameters["PassedToService"])}


def _name_cluster(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name each cluster of a call, with its tags."""
    for name in parameters.get("JobFlowIds") or [parameters.get("ClusterId") or parameters["JobFlowId"]]:
        arn = estate.arn("elasticmapreduce", f"cluster/{name}")
        tags = estate.find_tags(arn)
        yield arn, {f"{prefix}:ResourceTag/{key}": tags[key] for key in tags for prefix in ("elasticmapreduce", "aws")}


def _name_job_flow(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    yield "*", {f"aws:RequestTag/{tag['Key']}": str(tag["Value"]) for tag in parameters.get("Tags", [])}


def _list_passed_roles(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """List the roles that a request for a cluster hands over: to EMR, and to the cluster's instances."""
    roles = {
        "elasticmapreduce": estate.find_role(str(parameters["ServiceRole"])),
        "ec2": estate.find_profile_role(str(parameters["JobFlowRole"])),
    }
    for service, role in roles.items():
        if role:  # of one that is not there the service itself says so, whoever calls
            yield role, {"iam:PassedToService": f"{service}.amazonaws.com"}


@dataclass(frozen=True)
class Need:
    """
    One action, `service:Action`, that a call needs on a resource: an ARN, or `*`.

    With `is_implied` the service calls it on the caller's behalf, to use a key.
    """

    action: str
    resource: str
    context: Values = field(default_factory=dict)
    is_implied: bool = False


@dataclass(frozen=True)
class _Row:
    """
    Operations of a service, which name the same resources.

    Attributes:
        key_actions: Actions of KMS that the service calls for the caller, on the key of the resource.
        action: Action that the operations need. Default: that of their own names; None: they need none.
        more: Further actions that the caller needs, with their resources. Default: none.
    """

    targets: Targets
    service: str
    operations: str
    key_actions: str = ""
    action: str | None = ""
    more: tuple[tuple[str, Targets], ...] = ()


_VOLUME_KEY_ACTIONS = "DescribeKey GenerateDataKeyWithoutPlaintext ReEncryptFrom ReEncryptTo Decrypt CreateGrant"
_ROWS = (
    _Row(_name_table, "dynamodb", "GetItem PutItem UpdateItem DeleteItem Query Scan", "Decrypt"),
    _Row(_name_table, "dynamodb", "DescribeTable CreateBackup"),
    # A right without an API of its own: the backup that AWS Backup makes by itself, with the table's key.
    _Row(_name_table, "dynamodb", "StartAwsBackupJob", "Decrypt GenerateDataKey"),
    _Row(_name_by_arn, "dynamodb", "ListTagsOfResource DescribeBackup DeleteBackup"),
    _Row(_name_nothing, "dynamodb", "ListTables"),
    _Row(_name_queue, "sqs", "SendMessage SendMessageBatch", "GenerateDataKey Decrypt", "SendMessage"),
    _Row(_name_queue, "sqs", "ReceiveMessage", "Decrypt"),
    _Row(_name_queue, "sqs", "DeleteMessage DeleteMessageBatch", action="DeleteMessage"),
    _Row(_name_queue, "sqs", "ChangeMessageVisibility GetQueueAttributes"),
    _Row(_name_queue_by_name, "sqs", "GetQueueUrl"),
    _Row(_name_topic, "sns", "Publish", "GenerateDataKey Decrypt"),
    _Row(_name_nothing, "autoscaling", "DescribeAutoScalingGroups DescribeAutoScalingInstances DescribeWarmPool"),
    _Row(_name_nothing, "autoscaling", "DescribeScalingActivities DescribeTags"),
    _Row(_name_group, "autoscaling", "SetDesiredCapacity UpdateAutoScalingGroup SuspendProcesses ResumeProcesses"),
    _Row(_name_group, "autoscaling", "DeleteWarmPool PutWarmPool"),
    _Row(_name_group_of_instance, "autoscaling", "SetInstanceHealth TerminateInstanceInAutoScalingGroup"),
    _Row(_name_object, "s3", "GetObject HeadObject", "Decrypt", "GetObject"),
    _Row(_name_object, "s3", "PutObject", "GenerateDataKey"),
    _Row(_name_object, "s3", "CreateMultipartUpload UploadPart", "Decrypt GenerateDataKey", "PutObject"),
    _Row(_name_object, "s3", "CompleteMultipartUpload", "Decrypt GenerateDataKey", "PutObject"),
    _Row(_name_object, "s3", "AbortMultipartUpload"),
    _Row(_name_bucket, "s3", "ListObjects ListObjectsV2 HeadBucket", action="ListBucket"),
    _Row(_name_bucket, "s3", "GetBucketLocation"),
    _Row(_name_log_group, "logs", "CreateLogGroup DescribeLogStreams"),
    _Row(_name_log_stream, "logs", "CreateLogStream GetLogEvents PutLogEvents"),
    _Row(_name_event_bus, "events", "PutEvents"),
    _Row(_name_instance, "ssm", "UpdateInstanceInformation"),
    _Row(_name_parameter, "ssm", "GetParameter GetParameters"),
    _Row(_name_path, "ssm", "GetParametersByPath"),
    _Row(_name_nothing, "ssmmessages", "CreateControlChannel CreateDataChannel OpenControlChannel OpenDataChannel"),
    _Row(_name_key, "kms", "Decrypt Encrypt GenerateDataKey"),
    _Row(_name_mounted_file_system, "elasticfilesystem", "DescribeMountTargets ClientMount ClientWrite"),
    _Row(_name_file_system, "elasticfilesystem", "DescribeTags Backup"),
    _Row(_name_nothing, "tag", "GetResources"),
    _Row(_name_vault, "backup", "CopyIntoBackupVault DescribeBackupVault"),
    _Row(_name_by_arn, "backup", "TagResource"),
    # No API and no action of its own: a recovery point is encrypted with the vault's key, by a grant on it.
    _Row(_name_vault, "backup", "EncryptRecoveryPoint", "DescribeKey CreateGrant", None),
    # No API and no action of its own: Lambda decrypts the environment at a cold start, as the function's role.
    _Row(_name_function, "lambda", "DecryptEnvironment", "Decrypt", None),
    _Row(_name_cluster, "elasticmapreduce", "DescribeCluster ListInstances ListInstanceGroups ListBootstrapActions"),
    _Row(_name_cluster, "elasticmapreduce", "AddJobFlowSteps ListSteps DescribeStep CancelSteps TerminateJobFlows"),
    _Row(_name_nothing, "elasticmapreduce", "ListClusters"),
    _Row(_name_job_flow, "elasticmapreduce", "RunJobFlow", more=(("iam:PassRole", _list_passed_roles),)),
    _Row(
        name_new_training_job,
        "sagemaker",
        "CreateTrainingJob",
        more=(("iam:PassRole", list_execution_roles), ("sagemaker:AddTags", list_new_tags)),
    ),
    _Row(name_training_job, "sagemaker", "DescribeTrainingJob StopTrainingJob DeleteTrainingJob"),
    _Row(name_tagged_job, "sagemaker", "AddTags ListTags"),
    _Row(_name_nothing, "sagemaker", "ListTrainingJobs"),
    # No API and no action of its own: SageMaker encrypts the volumes of instances by a grant (developer guide,
    # "CreateTrainingJob API: Execution role permissions").
    _Row(_name_nothing, "sagemaker", "EncryptVolume", "CreateGrant", None),
    _Row(_name_nothing, "ecr", "GetAuthorizationToken"),
    _Row(name_repository, "ecr", "BatchCheckLayerAvailability GetDownloadUrlForLayer BatchGetImage"),
    _Row(name_metrics, "cloudwatch", "PutMetricData"),
    _Row(name_launch, "ec2", "RunInstances"),
    # No API and no action of its own: EC2 encrypts the volumes of an instance as the one who launches it (EBS user
    # guide, "Requirements for Amazon EBS encryption").
    _Row(name_new_volume, "ec2", "EncryptVolume", _VOLUME_KEY_ACTIONS, None),
    _Row(name_new_interface, "ec2", "CreateNetworkInterface"),
    _Row(name_tagged_resources, "ec2", "CreateTags DeleteTags"),
    _Row(name_ec2_resource, "ec2", "AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress"),
    _Row(name_ec2_resource, "ec2", "DeleteNetworkInterface ModifyInstanceAttribute TerminateInstances"),
    _Row(_name_nothing, "ec2", "DescribeAccountAttributes DescribeDhcpOptions DescribeImages DescribeInstances"),
    _Row(_name_nothing, "ec2", "DescribeNetworkAcls DescribeRouteTables DescribeSecurityGroups DescribeSubnets"),
    _Row(_name_nothing, "ec2", "DescribeVolumes DescribeVolumeStatus DescribeVpcEndpoints"),
    _Row(_name_nothing, "ec2", "DescribeNetworkInterfaces DescribeVpcs"),
    _Row(name_vpc, "ec2", "DescribeVpcAttribute"),
    _Row(name_ec2_resource, "ec2", "CreateNetworkInterfacePermission DeleteNetworkInterfacePermission"),
    _Row(_name_passed_role, "iam", "PassRole"),
    # No policy can forbid it, and none needs to allow it.
    _Row(_name_nothing, "sts", "GetCallerIdentity", action=None),
)
_BY_OPERATION = {f"{row.service}.{name}": row for row in _ROWS for name in row.operations.split()}


def find_needs(operation: str, parameters: Parameters, estate: Estate) -> tuple[Need, ...]:
    """
    Return the needs of a call, `service.Operation`, the use of keys included.

    Raise UnknownOperationError where the operation is not in the table, or the call does not name its resource.
    """
    if (row := _BY_OPERATION.get(operation)) is None:
        raise UnknownOperationError(
            f"the rights that {operation} needs must be known, got a call of it; add it to iam/operations.py"
        )
    try:
        targets = tuple(row.targets(parameters, estate))
    except (KeyError, ValueError, TypeError) as error:
        raise UnknownOperationError(f"{operation} must name its resource, got no {error} in the call") from error
    action = f"{row.service}:{row.action or operation.partition('.')[2]}"
    needs = [Need(action, arn, context) for arn, context in targets if row.action is not None]
    for further, list_targets in row.more:
        needs += [Need(further, arn, context) for arn, context in list_targets(parameters, estate)]
    for arn, _ in targets if row.key_actions else ():
        if key := str(parameters.get("SSEKMSKeyId") or estate.find_key(arn)):
            key = key if key.startswith("arn:") else estate.arn("kms", f"key/{key}")
            uses = [f"kms:{name}" for name in row.key_actions.split()]
            needs += [Need(use, key, describe_key_use(row.service, use, arn, estate), is_implied=True) for use in uses]
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
