"""Requests of CreateTrainingJob, held against botocore's service model and the rules that AWS documents beside it."""

from collections.abc import Mapping
from typing import Any

from botocore.session import get_session
from botocore.validate import ParamValidator

from cdk_rehearsal.referees.service_models import judge_request

_OPERATION = "CreateTrainingJob"
_DAY = 86_400
_MOST_SECONDS = 28 * _DAY
_READ = frozenset(
    {
        *("TrainingJobName", "HyperParameters", "AlgorithmSpecification", "RoleArn", "InputDataConfig", "Tags"),
        *("OutputDataConfig", "ResourceConfig", "VpcConfig", "StoppingCondition", "EnableManagedSpotTraining"),
        *("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "Environment"),
    }
)
"""Parameters that the rehearsal acts upon; it refuses another one, and never ignores it."""
_READ_RESOURCES = frozenset(
    {"InstanceType", "InstanceCount", "VolumeSizeInGB", "VolumeKmsKeyId", "KeepAlivePeriodInSeconds"}
)
_READ_LIMITS = frozenset({"MaxRuntimeInSeconds", "MaxWaitTimeInSeconds", "MaxPendingTimeInSeconds"})
_MOST_PARAMETER_CHARACTERS = 256


def check_request(request: Mapping[str, Any]) -> None:
    """
    Raise ValueError for a request that SageMaker refuses, or on which the rehearsal does not act.

    Source: SageMaker API reference, CreateTrainingJob and its data types.
    """
    _require_read("CreateTrainingJob", request, _READ)
    _check_model(request)
    _require_read("ResourceConfig", request["ResourceConfig"], _READ_RESOURCES)
    _require_read("StoppingCondition", request.get("StoppingCondition", {}), _READ_LIMITS)
    algorithm, resources = request["AlgorithmSpecification"], request["ResourceConfig"]
    if bool(algorithm.get("TrainingImage")) == bool(algorithm.get("AlgorithmName")):
        raise ValueError("AlgorithmSpecification must have either TrainingImage or AlgorithmName, and not both")
    if int(resources.get("InstanceCount", 0)) < 1:
        raise ValueError(f"ResourceConfig.InstanceCount must be at least 1, got {resources.get('InstanceCount', 0)}")
    _check_times(request)
    _check_channels(request)


def _require_read(what: str, given: Mapping[str, Any], read: frozenset[str]) -> None:
    if unread := sorted(set(given) - read):
        raise ValueError(f"the rehearsal does not act upon {', '.join(unread)} of {what}")


def _check_model(request: Mapping[str, Any]) -> None:
    shape = get_session().get_service_model("sagemaker").operation_model(_OPERATION).input_shape
    if report := ParamValidator().validate(request, shape).generate_report():
        raise ValueError(report)
    for finding in judge_request("sagemaker", _OPERATION, request, _OPERATION):
        path = ".".join(f"{part[:1].lower()}{part[1:]}" for part in finding.path.split(".")[1:])
        raise ValueError(
            f"1 validation error detected: Value {finding.value} at '{path}' failed to satisfy constraint: "
            f"Member {finding.rule}"
        )
    parameters = request.get("HyperParameters", {})
    for name, most in (("HyperParameters", 100), ("Environment", 100)):
        if len(request.get(name, {})) > most:
            raise ValueError(f"{name} must have at most {most} entries, got {len(request[name])}")
    if long := [name for name in parameters if len(name) > _MOST_PARAMETER_CHARACTERS]:
        raise ValueError(f"HyperParameters must have keys of at most 256 characters, got one of {len(long[0])}")


def _check_times(request: Mapping[str, Any]) -> None:
    times, resources = request.get("StoppingCondition", {}), request["ResourceConfig"]
    longest = int(times.get("MaxRuntimeInSeconds", _DAY))
    if longest > _MOST_SECONDS:
        raise ValueError(f"StoppingCondition.MaxRuntimeInSeconds must be at most {_MOST_SECONDS}, got {longest}")
    is_spot, wait = bool(request.get("EnableManagedSpotTraining")), times.get("MaxWaitTimeInSeconds")
    if is_spot and (wait is None or int(wait) < longest):
        raise ValueError(
            "Invalid MaxWaitTimeInSeconds. It must be present and be greater than or equal to MaxRuntimeInSeconds"
        )
    if not is_spot and wait is not None:
        raise ValueError("MaxWaitTimeInSeconds above 0 is supported only when EnableManagedSpotTraining is set to true")
    if is_spot and resources.get("KeepAlivePeriodInSeconds"):
        raise ValueError("ResourceConfig.KeepAlivePeriodInSeconds is not supported with EnableManagedSpotTraining")


def _check_channels(request: Mapping[str, Any]) -> None:
    channels = request.get("InputDataConfig", [])
    names = [channel["ChannelName"] for channel in channels]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"InputDataConfig must have unique ChannelNames, got {twice[0]} twice")
    for channel in channels:
        if len([source for source in channel["DataSource"].values() if source]) != 1:
            raise ValueError(f"DataSource of channel {channel['ChannelName']} must be of one kind")
    has_files = any("FileSystemDataSource" in channel["DataSource"] for channel in channels)
    if has_files and not request.get("VpcConfig"):
        raise ValueError("VpcConfig must be specified when a channel has a FileSystemDataSource")
