"""
The actions that an operation needs, on which resources, with which condition keys.

From the Service Authorization Reference, page by page. An operation that is not here was not looked up, and is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.errors import UnknownOperationError
from cdk_rehearsal.iam.account import Account, Parameters, Target, Targets, Values
from cdk_rehearsal.iam.cluster_resources import (
    list_passed_roles,
    targets_of_cluster_part,
    targets_of_eks_cluster,
    targets_of_emr_cluster,
    targets_of_job_flow,
    targets_of_repository,
)
from cdk_rehearsal.iam.ec2_resources import (
    targets_of_ec2_resource,
    targets_of_group,
    targets_of_group_of_instance,
    targets_of_launch,
    targets_of_managed_instance,
    targets_of_new_interface,
    targets_of_new_volume,
    targets_of_tagged_resources,
    targets_of_vpc,
)
from cdk_rehearsal.iam.s3_resources import (
    COPY_RIGHTS,
    list_deleted_versions,
    targets_of_bucket,
    targets_of_object,
    targets_of_objects,
)
from cdk_rehearsal.iam.sagemaker_resources import (
    list_execution_roles,
    list_new_tags,
    targets_of_metrics,
    targets_of_new_training_job,
    targets_of_tagged_job,
    targets_of_training_job,
)


def _no_targets(_parameters: Parameters, _account: Account) -> Iterator[Target]:
    yield "*", {}


def _targets_of_table(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a table, and the value of its partition key that the call is about, wherever in the item it stands."""
    arn = str(parameters["TableName"])
    arn = arn if arn.startswith("arn:") else account.arn("dynamodb", f"table/{arn}")
    key = account.find_partition_key(arn.partition("/")[2])
    items = [part for part in (parameters.get("Key"), parameters.get("Item")) if isinstance(part, Mapping)]
    leading = [next(iter(item[key].values())) for item in items if key in item]
    yield arn, {"dynamodb:LeadingKeys": tuple(str(value) for value in leading)} if leading else {}


def _targets_of_queue(parameters: Parameters, account: Account) -> Iterator[Target]:
    owner, name = str(parameters["QueueUrl"]).rstrip("/").split("/")[-2:]
    own = account.arn("sqs", name)
    yield own.replace(f":{account.account_id}:", f":{owner}:"), {}


def _targets_of_queue_by_name(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield account.arn("sqs", str(parameters["QueueName"])), {}


def _targets_of_log_stream(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield account.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:{parameters['logStreamName']}"), {}


def _targets_of_log_group(parameters: Parameters, account: Account) -> Iterator[Target]:
    # As refusals of CloudWatch Logs name a group; its user guide wants `:*` after a group's name in policies.
    yield account.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:"), {}


def _targets_of_event_bus(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name each bus of a batch, with the sources and detail types of all its events.

    EventBridge's user guide ("Using IAM policy conditions") leaves open whether a batch is decided as one or event by
    event. A policy for all values decides alike either way; one for a single value is refused for several.
    """
    buses: dict[str, list[Parameters]] = {}
    for entry in parameters["Entries"]:
        bus = str(entry.get("EventBusName") or "default")
        arn = bus if bus.startswith("arn:") else account.arn("events", f"event-bus/{bus}")
        buses.setdefault(arn, []).append(entry)
    names = {"events:source": "Source", "events:detail-type": "DetailType"}
    for arn, entries in buses.items():
        yield arn, {key: tuple(dict.fromkeys(str(entry[name]) for entry in entries)) for key, name in names.items()}


def _targets_of_parameter(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name each parameter; AWS's public ones belong to no account."""
    for name in map(str, parameters.get("Names") or [parameters["Name"]]):
        arn = account.arn("ssm", f"parameter/{name.lstrip('/')}")
        yield arn.replace(f":{account.account_id}:", "::", 1) if name.startswith("/aws/service/") else arn, {}


def _targets_of_path(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name a path of parameters as it is asked for.

    Who may read a path reads all its levels (Systems Manager user guide, "Restricting access to Parameter Store
    parameters using IAM policies"); refusals name the path alone (aws/aws-dotnet-extensions-configuration#108).
    """
    yield account.arn("ssm", f"parameter/{str(parameters['Path']).removeprefix('/')}"), {}


def _targets_of_key(parameters: Parameters, account: Account) -> Iterator[Target]:
    name = str(parameters.get("KeyId") or "unknown")
    yield name if name.startswith("arn:") else account.arn("kms", f"key/{name}"), {}


def _targets_of_mounted_file_system(parameters: Parameters, account: Account) -> Iterator[Target]:
    context: dict[str, str] = {"elasticfilesystem:AccessedViaMountTarget": "true"}
    if point := parameters.get("AccessPointId"):
        context["elasticfilesystem:AccessPointArn"] = account.arn("elasticfilesystem", f"access-point/{point}")
    yield account.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), context


def _targets_of_file_system(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield account.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), {}


def _target_by_arn(parameters: Parameters, _account: Account) -> Iterator[Target]:
    names = ("BackupArn", "ResourceArn", "TargetGroupArn", "TopicArn")
    yield str(next((parameters[name] for name in names if parameters.get(name)), "") or parameters["TargetArn"]), {}


def _targets_of_stack(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a stack; a caller that passes its name leaves the id in the ARN open."""
    name = str(parameters["StackName"])
    yield name if name.startswith("arn:") else account.arn("cloudformation", f"stack/{name}/*"), {}


def _targets_of_vault(parameters: Parameters, account: Account) -> Iterator[Target]:
    yield account.arn("backup", f"backup-vault:{parameters['BackupVaultName']}"), {}


def _targets_of_function(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a function, by its name or ARN, with the qualifier that either has or the call has beside it."""
    name = str(parameters["FunctionName"])
    arn = name if name.startswith("arn:") else account.arn("lambda", f"function:{name.rpartition('function:')[2]}")
    yield f"{arn}:{parameters['Qualifier']}" if "Qualifier" in parameters else arn, {}


def _targets_of_passed_role(parameters: Parameters, _account: Account) -> Iterator[Target]:
    yield str(parameters["RoleArn"]), {"iam:PassedToService": str(parameters["PassedToService"])}


@dataclass(frozen=True)
class RequiredAction:
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
        more: Further actions that the caller needs, with their resources, and the actions of KMS on the keys of these.
            Default: none.
    """

    targets: Targets
    service: str
    operations: str
    key_actions: str = ""
    action: str | None = ""
    more: tuple[tuple[str, Targets, str], ...] = ()


_VOLUME_KEY_ACTIONS = "DescribeKey GenerateDataKeyWithoutPlaintext ReEncryptFrom ReEncryptTo Decrypt CreateGrant"
_ROWS = (
    _Row(_targets_of_table, "dynamodb", "GetItem PutItem UpdateItem DeleteItem Query Scan", "Decrypt"),
    _Row(_targets_of_table, "dynamodb", "DescribeTable CreateBackup"),
    # A right without an API of its own: the backup that AWS Backup makes by itself, with the table's key.
    _Row(_targets_of_table, "dynamodb", "StartAwsBackupJob", "Decrypt GenerateDataKey"),
    _Row(_target_by_arn, "dynamodb", "ListTagsOfResource DescribeBackup DeleteBackup"),
    _Row(_no_targets, "dynamodb", "ListTables"),
    _Row(_targets_of_queue, "sqs", "SendMessage SendMessageBatch", "GenerateDataKey Decrypt", "SendMessage"),
    _Row(_targets_of_queue, "sqs", "ReceiveMessage", "Decrypt"),
    _Row(_targets_of_queue, "sqs", "DeleteMessage DeleteMessageBatch", action="DeleteMessage"),
    _Row(_targets_of_queue, "sqs", "ChangeMessageVisibility GetQueueAttributes"),
    _Row(_targets_of_queue_by_name, "sqs", "GetQueueUrl"),
    _Row(_target_by_arn, "sns", "Publish", "GenerateDataKey Decrypt"),
    _Row(_no_targets, "autoscaling", "DescribeAutoScalingGroups DescribeAutoScalingInstances DescribeWarmPool"),
    _Row(_no_targets, "autoscaling", "DescribeScalingActivities DescribeTags"),
    _Row(targets_of_group, "autoscaling", "SetDesiredCapacity UpdateAutoScalingGroup SuspendProcesses ResumeProcesses"),
    _Row(targets_of_group, "autoscaling", "DeleteWarmPool PutWarmPool"),
    _Row(targets_of_group_of_instance, "autoscaling", "SetInstanceHealth TerminateInstanceInAutoScalingGroup"),
    _Row(targets_of_object, "s3", "GetObject HeadObject", "Decrypt", "GetObject"),
    _Row(targets_of_object, "s3", "PutObject", "GenerateDataKey"),
    _Row(targets_of_object, "s3", "CopyObject", "GenerateDataKey", "PutObject", more=COPY_RIGHTS),
    _Row(targets_of_object, "s3", "CreateMultipartUpload UploadPart", "Decrypt GenerateDataKey", "PutObject"),
    _Row(targets_of_object, "s3", "CompleteMultipartUpload", "Decrypt GenerateDataKey", "PutObject"),
    _Row(targets_of_object, "s3", "AbortMultipartUpload DeleteObject"),
    _Row(targets_of_bucket, "s3", "ListObjects ListObjectsV2 HeadBucket", action="ListBucket"),
    _Row(targets_of_bucket, "s3", "ListObjectVersions", action="ListBucketVersions"),
    _Row(targets_of_bucket, "s3", "GetBucketLocation GetBucketPolicy GetBucketTagging PutBucketPolicy DeleteBucket"),
    _Row(
        targets_of_bucket,
        "s3",
        "GetBucketNotification GetBucketNotificationConfiguration",
        action="GetBucketNotification",
    ),
    _Row(
        targets_of_bucket,
        "s3",
        "PutBucketNotification PutBucketNotificationConfiguration",
        action="PutBucketNotification",
    ),
    _Row(
        targets_of_objects,
        "s3",
        "DeleteObjects",
        action="DeleteObject",
        more=(("s3:DeleteObjectVersion", list_deleted_versions, ""),),
    ),
    _Row(_targets_of_log_group, "logs", "CreateLogGroup DeleteLogGroup DescribeLogStreams"),
    _Row(_targets_of_log_group, "logs", "PutRetentionPolicy DeleteRetentionPolicy"),
    _Row(_targets_of_log_stream, "logs", "CreateLogStream GetLogEvents PutLogEvents"),
    _Row(_targets_of_event_bus, "events", "PutEvents"),
    _Row(targets_of_managed_instance, "ssm", "UpdateInstanceInformation"),
    _Row(_targets_of_parameter, "ssm", "GetParameter GetParameters"),
    _Row(_targets_of_path, "ssm", "GetParametersByPath"),
    _Row(_no_targets, "ssmmessages", "CreateControlChannel CreateDataChannel OpenControlChannel OpenDataChannel"),
    _Row(_targets_of_key, "kms", "Decrypt DescribeKey Encrypt GenerateDataKey"),
    _Row(_targets_of_mounted_file_system, "elasticfilesystem", "DescribeMountTargets ClientMount ClientWrite"),
    _Row(_targets_of_file_system, "elasticfilesystem", "DescribeTags Backup"),
    _Row(_no_targets, "tag", "GetResources"),
    _Row(_targets_of_vault, "backup", "CopyIntoBackupVault DescribeBackupVault"),
    _Row(_target_by_arn, "backup", "TagResource"),
    # No API and no action of its own: a recovery point is encrypted with the vault's key, by a grant on it.
    _Row(_targets_of_vault, "backup", "EncryptRecoveryPoint", "DescribeKey CreateGrant", None),
    # No API and no action of its own: Lambda decrypts the environment at a cold start, as the function's role.
    _Row(_targets_of_function, "lambda", "DecryptEnvironment", "Decrypt", None),
    _Row(_targets_of_function, "lambda", "Invoke", action="InvokeFunction"),
    _Row(_targets_of_function, "lambda", "GetFunction GetFunctionConfiguration"),
    _Row(
        targets_of_emr_cluster,
        "elasticmapreduce",
        "DescribeCluster ListInstances ListInstanceGroups ListBootstrapActions",
    ),
    _Row(
        targets_of_emr_cluster,
        "elasticmapreduce",
        "AddJobFlowSteps ListSteps DescribeStep CancelSteps TerminateJobFlows",
    ),
    _Row(_no_targets, "elasticmapreduce", "ListClusters"),
    _Row(targets_of_job_flow, "elasticmapreduce", "RunJobFlow", more=(("iam:PassRole", list_passed_roles, ""),)),
    _Row(
        targets_of_new_training_job,
        "sagemaker",
        "CreateTrainingJob",
        more=(("iam:PassRole", list_execution_roles, ""), ("sagemaker:AddTags", list_new_tags, "")),
    ),
    _Row(targets_of_training_job, "sagemaker", "DescribeTrainingJob StopTrainingJob DeleteTrainingJob"),
    _Row(targets_of_tagged_job, "sagemaker", "AddTags ListTags"),
    _Row(_no_targets, "sagemaker", "ListTrainingJobs"),
    # No API and no action of its own: SageMaker encrypts the volumes of instances by a grant (developer guide,
    # "CreateTrainingJob API: Execution role permissions").
    _Row(_no_targets, "sagemaker", "EncryptVolume", "CreateGrant", None),
    _Row(
        _no_targets,
        "elasticloadbalancing",
        "DescribeListeners DescribeLoadBalancers DescribeRules DescribeTargetGroups",
    ),
    _Row(_no_targets, "elasticloadbalancing", "DescribeTargetHealth"),
    _Row(_target_by_arn, "elasticloadbalancing", "RegisterTargets DeregisterTargets"),
    _Row(_no_targets, "ecr", "GetAuthorizationToken"),
    _Row(targets_of_repository, "ecr", "BatchCheckLayerAvailability GetDownloadUrlForLayer BatchGetImage"),
    _Row(targets_of_metrics, "cloudwatch", "PutMetricData"),
    _Row(_no_targets, "cloudwatch", "GetMetricStatistics"),
    _Row(_targets_of_stack, "cloudformation", "DescribeStacks"),
    _Row(_no_targets, "servicequotas", "GetServiceQuota ListAWSDefaultServiceQuotas ListServiceQuotas"),
    _Row(targets_of_launch, "ec2", "RunInstances"),
    # No API and no action of its own: EC2 encrypts the volumes of an instance as the one who launches it (EBS user
    # guide, "Requirements for Amazon EBS encryption").
    _Row(targets_of_new_volume, "ec2", "EncryptVolume", _VOLUME_KEY_ACTIONS, None),
    _Row(targets_of_new_interface, "ec2", "CreateNetworkInterface"),
    _Row(targets_of_tagged_resources, "ec2", "CreateTags DeleteTags"),
    _Row(targets_of_ec2_resource, "ec2", "AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress"),
    _Row(targets_of_ec2_resource, "ec2", "RevokeSecurityGroupIngress RevokeSecurityGroupEgress"),
    _Row(targets_of_ec2_resource, "ec2", "DeleteNetworkInterface ModifyInstanceAttribute TerminateInstances"),
    _Row(_no_targets, "ec2", "DescribeAccountAttributes DescribeDhcpOptions DescribeInstances GetSpotPlacementScores"),
    _Row(_no_targets, "ec2", "DescribeNetworkAcls DescribeRouteTables DescribeSecurityGroups DescribeSubnets"),
    _Row(_no_targets, "ec2", "DescribeKeyPairs DescribeVolumes DescribeVolumeStatus DescribeVpcEndpoints DescribeVpcs"),
    _Row(_no_targets, "ec2", "DescribeCapacityReservations DescribeInstanceTypeOfferings DescribeNetworkInterfaces"),
    _Row(_no_targets, "ec2", "DescribeCapacityBlockOfferings DescribeImages GetCapacityManagerSupportabilityScores"),
    _Row(targets_of_vpc, "ec2", "DescribeVpcAttribute"),
    _Row(targets_of_ec2_resource, "ec2", "CreateNetworkInterfacePermission DeleteNetworkInterfacePermission"),
    _Row(_targets_of_passed_role, "iam", "PassRole"),
    _Row(_no_targets, "eks", "ListClusters"),
    _Row(targets_of_eks_cluster, "eks", "DescribeCluster ListNodegroups ListAddons ListAccessEntries"),
    _Row(targets_of_eks_cluster, "eks", "ListPodIdentityAssociations"),
    _Row(targets_of_cluster_part, "eks", "DescribeNodegroup UpdateNodegroupConfig DescribeAddon DescribeAccessEntry"),
    _Row(targets_of_cluster_part, "eks", "ListAssociatedAccessPolicies DescribePodIdentityAssociation"),
    _Row(targets_of_eks_cluster, "eks-auth", "AssumeRoleForPodIdentity"),
    _Row(_no_targets, "ec2", "DescribeAvailabilityZones DescribeInstanceTopology DescribeInstanceTypes DescribeTags"),
    _Row(targets_of_ec2_resource, "ec2", "AssignPrivateIpAddresses UnassignPrivateIpAddresses"),
    _Row(
        targets_of_ec2_resource, "ec2", "AttachNetworkInterface DetachNetworkInterface ModifyNetworkInterfaceAttribute"
    ),
    # No policy can forbid it, and none needs to allow it.
    _Row(_no_targets, "sts", "GetCallerIdentity", action=None),
)
PREFIXES = {"monitoring": "cloudwatch"}
"""Signing name -> prefix of actions, where they differ."""
_BY_OPERATION = {f"{row.service}.{name}": row for row in _ROWS for name in row.operations.split()}


def find_needs(operation: str, parameters: Parameters, account: Account) -> tuple[RequiredAction, ...]:
    """
    Return the needs of a call, `service.Operation`, the use of keys included.

    Raise UnknownOperationError where the operation is not in the table, or the call does not name its resource.
    """
    service, _, name = operation.partition(".")
    if (row := _BY_OPERATION.get(f"{PREFIXES.get(service, service)}.{name}")) is None:
        raise UnknownOperationError(
            f"the rights that {operation} needs must be known, got a call of it; add it to iam/operations.py"
        )
    try:
        targets = tuple(row.targets(parameters, account))
        further = [(more, tuple(list_more(parameters, account)), uses) for more, list_more, uses in row.more]
    except (KeyError, ValueError, TypeError) as error:
        raise UnknownOperationError(f"{operation} must name its resource, got no {error} in the call") from error
    action = f"{row.service}:{row.action or name}"
    needs = [RequiredAction(action, arn, context) for arn, context in targets if row.action is not None]
    key_uses = [(arn, str(parameters.get("SSEKMSKeyId") or ""), row.key_actions) for arn, _ in targets]
    for more, found, key_actions in further:
        needs += [RequiredAction(more, arn, context) for arn, context in found]
        key_uses += [(arn, "", key_actions) for arn, _ in found]
    for arn, named, key_actions in key_uses:
        if key := (named or account.find_key(arn)) if key_actions else "":
            key = key if key.startswith("arn:") else account.arn("kms", f"key/{key}")
            uses = [f"kms:{name}" for name in key_actions.split()]
            needs += [
                RequiredAction(use, key, describe_key_use(row.service, use, arn, account), is_implied=True)
                for use in uses
            ]
    return tuple(needs)


def describe_key_use(service: str, action: str, arn: str, account: Account) -> Mapping[str, str | tuple[str, ...]]:
    """
    Return the condition keys of KMS for the use of the key of a resource, given by its ARN.

    The encryption contexts are those of the services' own pages about encryption at rest.
    """
    name = arn.rpartition("/")[2]
    pairs = {
        "sqs": {"aws:sqs:arn": arn},
        "sns": {"aws:sns:topicArn": arn},
        "dynamodb": {"aws:dynamodb:tableName": name, "aws:dynamodb:subscriberId": account.account_id},
        "s3": {"aws:s3:arn": arn},
        "logs": {"aws:logs:arn": arn},
        "lambda": {"aws:lambda:FunctionArn": arn},
        "backup": {"aws:backup:backup-vault": arn},
    }.get(service, {})
    # Of a service that asks on a caller's behalf, KMS knows that the grant is for a resource of AWS.
    is_for_resource = {"kms:GrantIsForAWSResource": "true"} if action == "kms:CreateGrant" else {}
    return {
        "kms:ViaService": f"{service}.{account.region}.{account.url_suffix}",
        "kms:CallerAccount": account.account_id,
        **is_for_resource,
        "kms:EncryptionContextKeys": tuple(pairs),
        **{f"kms:EncryptionContext:{key}": value for key, value in pairs.items()},
    }
