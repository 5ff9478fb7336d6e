"""
Requests of CreateTrainingJob, held against botocore's service model and the rules that AWS documents beside it.

A parameter that the rehearsal does not act upon is refused by its name, and never ignored.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cdk_rehearsal.referees.service_models import judge_request

_DAY = 86_400
_LONGEST_RUN = 28 * _DAY
"""SageMaker API reference, StoppingCondition: one day is the default, 28 days are the most."""
_REQUIRED = ("AlgorithmSpecification", "ResourceConfig", "StoppingCondition")
"""Required of a job that is not serverless, which the rehearsal has not."""
_READ: Mapping[str, Collection[str]] = {
    "": {
        *("TrainingJobName", "RoleArn", "AlgorithmSpecification", "HyperParameters", "Environment", "InputDataConfig"),
        *("OutputDataConfig", "ResourceConfig", "VpcConfig", "StoppingCondition", "Tags", "EnableManagedSpotTraining"),
    },
    "AlgorithmSpecification": {
        *("TrainingImage", "AlgorithmName", "TrainingInputMode", "ContainerEntrypoint", "ContainerArguments"),
        "MetricDefinitions",
    },
    "OutputDataConfig": {"S3OutputPath", "KmsKeyId"},
    "ResourceConfig": {
        *("InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId", "KeepAlivePeriodInSeconds"),
    },
    "StoppingCondition": {"MaxRuntimeInSeconds", "MaxWaitTimeInSeconds", "MaxPendingTimeInSeconds"},
    "InputDataConfig": {
        "ChannelName",
        "DataSource",
        "InputMode",
        "ContentType",
        "CompressionType",
        "RecordWrapperType",
    },
    "DataSource": {"S3DataSource", "FileSystemDataSource"},
    "S3DataSource": {"S3DataType", "S3Uri", "S3DataDistributionType"},
}
"""Structure -> its parameters that the rehearsal acts upon."""
_ONLY: Mapping[str, Collection[str]] = {
    "TrainingInputMode": {"File", "FastFile"},
    "InputMode": {"File", "FastFile"},
    "CompressionType": {"None"},
    "RecordWrapperType": {"None"},
    "S3DataType": {"S3Prefix"},
    "S3DataDistributionType": {"FullyReplicated"},
}
"""Parameter -> its values that the rehearsal acts upon."""
_WITHOUT_EFFECT = ("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption")
"""Parameters that change nothing when they are false."""


class RequestError(Exception):
    """A refusal, with AWS's code and message."""

    def __init__(self, message: str, code: str = "ValidationException") -> None:
        super().__init__(message)
        self.code = code


def check_request(request: Mapping[str, Any]) -> None:
    """Raise RequestError, in SageMaker's words where they are public, for what SageMaker or the rehearsal refuses."""
    for name in _REQUIRED:
        if request.get(name) is None:
            raise RequestError(_word_constraint("null", name, "Member must not be null"))
    for finding in judge_request("sagemaker", "CreateTrainingJob", request, "", is_whole=True):
        raise RequestError(_word_constraint(finding.value, finding.path, finding.rule))
    _check_algorithm(request["AlgorithmSpecification"])
    _check_resources(request["ResourceConfig"])
    _check_times(request)
    _check_channels(request)
    if not request.get("VpcConfig"):
        raise RequestError("the rehearsal has no network of SageMaker's own; give VpcConfig")
    for name in _list_unread(request):
        raise RequestError(f"the rehearsal does not act upon {name} of CreateTrainingJob")


def get_mode(request: Mapping[str, Any], channel: Mapping[str, Any]) -> str:
    """Return the input mode of a channel: its own, or that of the algorithm."""
    return str(channel.get("InputMode") or request["AlgorithmSpecification"]["TrainingInputMode"])


def list_channels(request: Mapping[str, Any], source: str) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the channels with a kind of data source, `S3DataSource` or `FileSystemDataSource`, and that source."""
    channels = request.get("InputDataConfig", [])
    return [(channel, channel["DataSource"][source]) for channel in channels if source in channel["DataSource"]]


def _word_constraint(value: str, path: str, rule: str) -> str:
    """Return a refusal in the words of AWS's validation (Kenza-AI/sagify#57)."""
    parts = [part for part in path.split(".") if part]
    place = ".".join(f"{int(part) + 1}.member" if part.isdecimal() else part[0].lower() + part[1:] for part in parts)
    shown = f"Value '{value}' at '{place}'" if value else f"Value at '{place}'"
    return f"1 validation error detected: {shown} failed to satisfy constraint: {rule}"


def _check_algorithm(algorithm: Mapping[str, Any]) -> None:
    if bool(algorithm.get("TrainingImage")) == bool(algorithm.get("AlgorithmName")):
        raise RequestError("AlgorithmSpecification must have either TrainingImage or AlgorithmName, and not both")
    if algorithm.get("AlgorithmName"):
        raise RequestError("the rehearsal has no algorithms, got AlgorithmName")
    if not algorithm.get("ContainerEntrypoint"):
        raise RequestError("the rehearsal does not know the entry point of images; give ContainerEntrypoint")
    for definition in algorithm.get("MetricDefinitions", []):
        _check_pattern(definition)


def _check_pattern(definition: Mapping[str, Any]) -> None:
    try:
        re.compile(definition["Regex"])
    except re.error as error:
        raise RequestError(f"Regex of metric {definition['Name']} must be a pattern: {error}") from error


def _check_resources(resources: Mapping[str, Any]) -> None:
    if not resources.get("InstanceType"):
        raise RequestError(_word_constraint("null", "ResourceConfig.InstanceType", "Member must not be null"))
    for name in ("InstanceCount", "VolumeSizeInGB"):
        if int(resources.get(name, 0)) < 1:
            value = str(resources.get(name, "null"))
            rule = "Member must have value greater than or equal to 1"
            raise RequestError(_word_constraint(value, f"ResourceConfig.{name}", rule))


def _check_times(request: Mapping[str, Any]) -> None:
    times, keeps = request["StoppingCondition"], request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
    run, wait = int(times.get("MaxRuntimeInSeconds", _DAY)), times.get("MaxWaitTimeInSeconds")
    if run > _LONGEST_RUN:
        raise RequestError(f"MaxRuntimeInSeconds must be at most {_LONGEST_RUN} (28 days), got {run}")
    if request.get("EnableManagedSpotTraining"):
        if wait is None or int(wait) < run:
            raise RequestError(
                "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
            )
        if keeps:
            raise RequestError("KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining")
    elif wait is not None:  # Kenza-AI/sagify#111
        raise RequestError(
            "Invalid MaxWaitTimeInSeconds. It is only supported when EnableManagedSpotTraining is set to true"
        )


def _check_channels(request: Mapping[str, Any]) -> None:
    """Check channels (developer guide, "How Amazon SageMaker AI Provides Training Information")."""
    names = [channel["ChannelName"] for channel in request.get("InputDataConfig", [])]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"ChannelName must be unique in a job, got {', '.join(twice)} more than once")
    for channel in request.get("InputDataConfig", []):
        if len(channel["DataSource"]) != 1:
            raise RequestError(f"DataSource of channel {channel['ChannelName']} must have one source")
    for channel, _ in list_channels(request, "FileSystemDataSource"):
        if not request.get("VpcConfig"):
            raise RequestError("VpcConfig must be given where a channel has a FileSystemDataSource")
        if (mode := get_mode(request, channel)) != "File":
            raise RequestError(f"InputMode of a FileSystemDataSource must be File, got {mode}")


def _list_unread(request: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parameters, and the values of some, upon which the rehearsal does not act."""
    kept = {name: value for name, value in request.items() if name not in _WITHOUT_EFFECT or value}
    yield from (name for name in kept if name not in _READ[""])
    parts = [(name, request[name]) for name in _READ if isinstance(request.get(name), Mapping)]
    for channel in request.get("InputDataConfig", []):
        source = channel["DataSource"]
        parts += [("InputDataConfig", channel), ("DataSource", source)]
        parts += [("S3DataSource", source["S3DataSource"])] if "S3DataSource" in source else []
    for structure, values in parts:
        yield from (f"{structure}.{name}" for name in values if name not in _READ[structure])
        yield from (
            f"{structure}.{name} {values[name]}"
            for name in values
            if values[name] not in _ONLY.get(name, [values[name]])
        )
