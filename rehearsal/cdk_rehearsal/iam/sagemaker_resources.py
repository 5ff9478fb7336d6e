"""
Resources that calls of SageMaker name, and those that it names for a training job.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon SageMaker AI".
"""

from collections.abc import Iterator

from cdk_rehearsal.iam.account import Account, Parameters, Target, Values


def targets_of_new_training_job(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a training job that does not exist yet, with what policies know of its request."""
    yield _name_arn(parameters, account), {**_describe_tags(parameters), **_describe_request(parameters)}


def targets_of_training_job(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a training job by its name, with its tags."""
    yield _tag_target(_name_arn(parameters, account), account)


def targets_of_tagged_job(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name what gets tags by its ARN, with those that it has and gets."""
    arn, tags = _tag_target(str(parameters["ResourceArn"]), account)
    yield arn, {**tags, **_describe_tags(parameters)}


def list_new_tags(parameters: Parameters, account: Account) -> Iterator[Target]:
    """
    Name a new training job that gets tags.

    Who creates a resource with tags needs `sagemaker:AddTags` too (developer guide, "Provide permissions for tagging
    SageMaker AI resources").
    """
    if parameters.get("Tags"):
        yield _name_arn(parameters, account), _describe_tags(parameters)


def list_execution_roles(parameters: Parameters, account: Account) -> Iterator[Target]:
    """List the role that a request hands over to SageMaker."""
    if role := account.find_role(str(parameters["RoleArn"])):  # of one that is not there the service itself says so
        yield role, {"iam:PassedToService": "sagemaker.amazonaws.com"}


def targets_of_metrics(parameters: Parameters, _account: Account) -> Iterator[Target]:
    """Name the namespace of metrics."""
    yield "*", {"cloudwatch:namespace": str(parameters["Namespace"])}


def _name_arn(parameters: Parameters, account: Account) -> str:
    """Return the ARN of a training job, which is in lower case."""
    return account.arn("sagemaker", f"training-job/{str(parameters['TrainingJobName']).lower()}")


def _tag_target(arn: str, account: Account) -> Target:
    tags = account.find_tags(arn)
    return arn, {f"{prefix}:ResourceTag/{key}": tags[key] for key in tags for prefix in ("aws", "sagemaker")}


def _describe_tags(parameters: Parameters) -> Values:
    tags = {str(tag["Key"]): str(tag["Value"]) for tag in parameters.get("Tags") or []}
    return {**{f"aws:RequestTag/{key}": tags[key] for key in tags}, **({"aws:TagKeys": tuple(tags)} if tags else {})}


def _describe_request(parameters: Parameters) -> Values:
    """Return the condition keys of a request; one whose parameter is left out is absent."""
    resources, vpc = parameters.get("ResourceConfig") or {}, parameters.get("VpcConfig") or {}
    sources = [channel.get("DataSource", {}) for channel in parameters.get("InputDataConfig") or []]
    systems = [source["FileSystemDataSource"] for source in sources if "FileSystemDataSource" in source]
    values: dict[str, str | tuple[str, ...] | None] = {
        "InstanceTypes": (resources["InstanceType"],) if "InstanceType" in resources else None,
        "VolumeKmsKey": resources.get("VolumeKmsKeyId"),
        "KeepAlivePeriod": resources.get("KeepAlivePeriodInSeconds"),
        "OutputKmsKey": (parameters.get("OutputDataConfig") or {}).get("KmsKeyId"),
        "MaxRuntimeInSeconds": (parameters.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
        "NetworkIsolation": str(bool(parameters.get("EnableNetworkIsolation"))).lower(),
        "InterContainerTrafficEncryption": str(bool(parameters.get("EnableInterContainerTrafficEncryption"))).lower(),
        "VpcSubnets": tuple(vpc["Subnets"]) if vpc else None,
        "VpcSecurityGroupIds": tuple(vpc["SecurityGroupIds"]) if vpc else None,
        "EnableRemoteDebug": _read_flag(parameters, "RemoteDebugConfig", "EnableRemoteDebug"),
        **{
            f"FileSystem{name}": tuple(dict.fromkeys(system[key] for system in systems)) or None
            for name, key in _FILE_SYSTEM_KEYS.items()
        },
    }
    found = {f"sagemaker:{name}": value for name, value in values.items() if value is not None}
    return {name: value if isinstance(value, tuple) else str(value) for name, value in found.items()}


_FILE_SYSTEM_KEYS = {
    "Id": "FileSystemId",
    "Type": "FileSystemType",
    "AccessMode": "FileSystemAccessMode",
    "DirectoryPath": "DirectoryPath",
}


def _read_flag(parameters: Parameters, structure: str, name: str) -> str | None:
    value = (parameters.get(structure) or {}).get(name)
    return None if value is None else str(value).lower()
