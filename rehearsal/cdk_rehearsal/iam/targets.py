"""Which resources a call is about, as ARNs, and the condition keys that the services set for them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol


class Estate(Protocol):
    """One account and region; its names and tags decide which resources a call is about."""

    @property
    def account(self) -> str:
        """Account id."""

    @property
    def region(self) -> str:
        """Region."""

    @property
    def url_suffix(self) -> str:
        """DNS suffix of the services."""

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""

    def find_group(self, name: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of an Auto Scaling group; None when there is none."""

    def find_group_of(self, instance_id: str) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of the group that has an instance; None when none has it."""

    def find_partition_key(self, table: str) -> str:
        """Return the name of a table's partition key; empty when there is no such table."""

    def find_key(self, arn: str) -> str:
        """Return the ARN of the customer's key that encrypts a resource; empty without one."""


Parameters = Mapping[str, Any]
Values = Mapping[str, str | tuple[str, ...]]
Target = tuple[str, Values]
"""ARN of a resource (`*` where the action takes none), and the condition keys that the service sets for it."""
Targets = Callable[[Parameters, Estate], Iterator[Target]]


def name_nothing(_parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    """Name `*`, for an action that takes no resource."""
    yield "*", {}


def name_table(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a table, and the value of its partition key that the call is about, wherever in the item it stands."""
    arn = str(parameters["TableName"])
    arn = arn if arn.startswith("arn:") else estate.arn("dynamodb", f"table/{arn}")
    key = estate.find_partition_key(arn.partition("/")[2])
    items = [part for part in (parameters.get("Key"), parameters.get("Item")) if isinstance(part, Mapping)]
    leading = [next(iter(item[key].values())) for item in items if key in item]
    yield arn, {"dynamodb:LeadingKeys": tuple(str(value) for value in leading)} if leading else {}


def name_queue(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a queue by its URL."""
    account, name = str(parameters["QueueUrl"]).rstrip("/").split("/")[-2:]
    own = estate.arn("sqs", name)
    yield own.replace(f":{estate.account}:", f":{account}:"), {}


def name_queue_by_name(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a queue of this account."""
    yield estate.arn("sqs", str(parameters["QueueName"])), {}


def name_topic(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    """Name a topic."""
    yield str(parameters.get("TopicArn") or parameters["TargetArn"]), {}


def name_group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name an Auto Scaling group and its tags."""
    yield from _name_tagged(estate.find_group(str(parameters["AutoScalingGroupName"])))


def name_group_of_instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name the Auto Scaling group that has an instance."""
    yield from _name_tagged(estate.find_group_of(str(parameters["InstanceId"])))


def _name_tagged(group: tuple[str, Mapping[str, str]] | None) -> Iterator[Target]:
    """Name a group by its tags; of one that is not there the service itself says so, whoever asks."""
    if group is not None:
        arn, tags = group
        yield (
            arn,
            {f"{prefix}:ResourceTag/{key}": value for key, value in tags.items() for prefix in ("autoscaling", "aws")},
        )


def name_object(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name an object of a bucket."""
    yield f"{_format_bucket(parameters, estate)}/{parameters['Key']}", {}


def name_bucket(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a bucket, and what is listed of it."""
    names = {"prefix": "s3:prefix", "delimiter": "s3:delimiter", "max-keys": "s3:max-keys"}
    context = {key: str(parameters[name]) for name, key in names.items() if name in parameters}
    yield _format_bucket(parameters, estate), context


def _format_bucket(parameters: Parameters, estate: Estate) -> str:
    partition = estate.arn("s3", "").split(":")[1]
    return f"arn:{partition}:s3:::{parameters['Bucket']}"


def name_log_stream(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a log stream."""
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:{parameters['logStreamName']}"), {}


def name_log_group(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a log group."""
    # As refusals of CloudWatch Logs name a group; its user guide wants `:*` after a group's name in policies.
    yield estate.arn("logs", f"log-group:{parameters['logGroupName']}:log-stream:"), {}


def name_event_bus(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name the bus of each event, with the event's source and detail type."""
    for entry in parameters["Entries"]:
        bus = str(entry.get("EventBusName") or "default")
        arn = bus if bus.startswith("arn:") else estate.arn("events", f"event-bus/{bus}")
        yield arn, {"events:source": str(entry["Source"]), "events:detail-type": str(entry["DetailType"])}


def name_instance(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """
    Name an instance as Systems Manager does.

    No key names the instance that the call is about; `ssm:SourceInstanceARN` is absent where an instance profile calls
    (Service Authorization Reference, "Condition keys for AWS Systems Manager").
    """
    yield estate.arn("ec2", f"instance/{parameters['InstanceId']}"), {}


def name_parameter(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name each parameter; AWS's public ones belong to no account."""
    for name in map(str, parameters.get("Names") or [parameters["Name"]]):
        arn = estate.arn("ssm", f"parameter/{name.lstrip('/')}")
        yield arn.replace(f":{estate.account}:", "::", 1) if name.startswith("/aws/service/") else arn, {}


def name_key(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a key."""
    name = str(parameters.get("KeyId") or "unknown")
    yield name if name.startswith("arn:") else estate.arn("kms", f"key/{name}"), {}


def name_mounted_file_system(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a file system that is used through a mount target."""
    context: dict[str, str] = {"elasticfilesystem:AccessedViaMountTarget": "true"}
    if "AccessPointArn" in parameters:
        context["elasticfilesystem:AccessPointArn"] = str(parameters["AccessPointArn"])
    yield estate.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), context


def name_file_system(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a file system that is managed, not mounted."""
    yield estate.arn("elasticfilesystem", f"file-system/{parameters['FileSystemId']}"), {}


def name_by_arn(parameters: Parameters, _estate: Estate) -> Iterator[Target]:
    """Name what the call itself names by its ARN."""
    yield str(parameters.get("BackupArn") or parameters["ResourceArn"]), {}


def name_vault(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a backup vault."""
    yield estate.arn("backup", f"backup-vault:{parameters['BackupVaultName']}"), {}


def name_function(parameters: Parameters, estate: Estate) -> Iterator[Target]:
    """Name a function."""
    yield estate.arn("lambda", f"function:{parameters['FunctionName']}"), {}
