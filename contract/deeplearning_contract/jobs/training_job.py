"""
Training job of SageMaker: its name, the request that starts it, and the job as its containers read it.

SageMaker writes the hyperparameters of a request to a file in each container, where the program of the container finds
the job's definition.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import (
    FileSystemFolder,
    SubmissionSettings,
    TrainingSettings,
    choose_data,
    locate_agent,
)
from deeplearning_contract.names import AGENT_DIRECTORY, CLUSTER_TAG
from deeplearning_contract.setting_parts import DataSettings

INPUT_FOLDER, MODEL_FOLDER, FAILURE_FILE = "/opt/ml/input", "/opt/ml/model", "/opt/ml/output/failure"
"""Paths in a container (developer guide, "How Amazon SageMaker AI Provides Training Information")."""
AGENT_CHANNEL, SHARED_CHANNEL = "deeplearning-agent", "deeplearning-shared"
SHARED_FOLDER = f"{INPUT_FOLDER}/data/{SHARED_CHANNEL}"
"""Place of the shared file system in a container, below which its mount point is a link."""
JOB_TAG = "deeplearning:job"
TYPE_PREFIX = "ml."
"""Beginning of SageMaker's names of instance types."""
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""Log group of all training jobs of an account and region."""
MOST_CHANNELS = 20
"""Most channels of a job (SageMaker API reference, CreateTrainingJob, InputDataConfig)."""
SIGNING_PARAMETER = "deeplearning_secret"
"""Hyperparameter with the secret of the job's members."""
_JOB_PARAMETER = re.compile(r"deeplearning_job_([0-9]{1,2})")
_MOST_CHARACTERS, _MOST_PARTS = 2500, 90
"""
Most characters of the value of a hyperparameter, and most parts of a definition; 100 hyperparameters are allowed.

Source: SageMaker API reference, CreateTrainingJob, HyperParameters.
"""
_MOST_NAME_CHARACTERS, _TIME_CHARACTERS = 63, 14
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_FIXED_VOLUME_GIBIBYTES = 1
"""SageMaker requires a volume size, and ignores it for a type whose disks have a fixed size (ResourceConfig)."""
_CHECK = (
    f"z=$(echo {INPUT_FOLDER}/data/{AGENT_CHANNEL}/*.zip); d={AGENT_DIRECTORY}; "
    'if ! echo "$1  $z" | sha256sum -c; then '
    f'echo "the agent must have SHA-256 $1; submit the job again" >{FAILURE_FILE}; exit 1; fi; eval "$0"'
)
_START = 'mkdir -p $d && python3 -m zipfile -e "$z" $d && cd $d && exec python3 -m deeplearning_member train'
"""
Command of every container in two arguments; a third one is the digest of the agent, which is checked before it runs.

An argument has at most 256 characters (SageMaker API reference, AlgorithmSpecification, ContainerArguments).
"""
METRICS = {
    "samples_per_second": r'"samples_per_second": ([0-9.eE+-]+)',
    "loss": r'\b(?:loss|total_cost)"?[=: ]+([0-9.eE+-]+)',
    "accuracy": r'\baccuracy"?[=: ]+([0-9.eE+-]+)',
}
"""Name of a metric -> pattern of a line of the log, from which SageMaker reads its value; TensorPack has total_cost."""


def name_training_job(settings: TrainingSettings, job: str, time: str) -> str:
    """
    Return the name of a training job: prefix, job and time, in lower case as in its ARN.

    Args:
        settings: The stack's settings.
        job: Name of the job; SageMaker allows fewer characters.
        time: Moment of its start, `YYYYMMDDhhmmss`.
    """
    room = _MOST_NAME_CHARACTERS - _TIME_CHARACTERS - len(settings.name_prefix) - 1
    return f"{settings.name_prefix}{_NOT_IN_NAMES.sub('-', job.lower()).strip('-')[:room].rstrip('-')}-{time}"


def make_training_request(
    submission: SubmissionSettings, job: JobDefinition, name: str, *, secret: str
) -> dict[str, Any]:
    """
    Return the request of CreateTrainingJob that starts a job.

    Args:
        submission: Submission document of a stack with training jobs.
        job: The job, with its source uploaded.
        name: Name of the training job.
        secret: What `make_secret` returns. Containers that follow interrupted ones get the same.

    Raises:
        ContractError: The job cannot run as a training job.
    """
    settings = get_training(submission)
    agent = locate_agent(submission, settings.agent)
    if job.container:
        raise ContractError("container must be left out on SageMaker, whose jobs run in one; give the stack an image")
    seconds = min(job.max_seconds or settings.max_seconds, settings.max_seconds)
    stopping = {
        "MaxRuntimeInSeconds": seconds,
        "MaxWaitTimeInSeconds": settings.max_wait_seconds,
        "MaxPendingTimeInSeconds": settings.max_pending_seconds,
    }
    return {
        "TrainingJobName": name,
        "RoleArn": settings.role_arn,
        "AlgorithmSpecification": {
            "TrainingImage": settings.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/sh", "-c"],
            "ContainerArguments": [_CHECK, _START, agent.sha256],
            "MetricDefinitions": [{"Name": metric, "Regex": pattern} for metric, pattern in METRICS.items()],
        },
        # The instances end with the job in any case.
        "HyperParameters": {**_split_job(replace(job, ends_cluster=False)), SIGNING_PARAMETER: secret},
        "InputDataConfig": [
            _s3_channel(AGENT_CHANNEL, f"s3://{agent.bucket}/{agent.key}"),
            _file_system_channel(SHARED_CHANNEL, settings.shared, "rw"),
            *(_data_channel(settings, source) for source in choose_data(settings, job)),
        ],
        "OutputDataConfig": {"S3OutputPath": settings.output, "KmsKeyId": settings.key_arn},
        "ResourceConfig": _describe_resources(settings, job),
        "VpcConfig": {"SecurityGroupIds": list(settings.security_groups), "Subnets": list(settings.subnets)},
        "StoppingCondition": {limit: value for limit, value in stopping.items() if value},
        "EnableManagedSpotTraining": settings.max_wait_seconds > 0,
        "Tags": [{"Key": CLUSTER_TAG, "Value": submission.cluster}, {"Key": JOB_TAG, "Value": job.name}],
    }


def get_training(submission: SubmissionSettings) -> TrainingSettings:
    """Return the settings of training jobs; ContractError for a document without them."""
    if submission.training is None:
        raise ContractError("submission document must have the settings of training jobs; deploy the stack again")
    return submission.training


def read_training_job(parameters: Mapping[str, str]) -> JobDefinition:
    """Read the job from the hyperparameters of its training job; ContractError for a malformed one."""
    found = {int(match[1]): text for name, text in parameters.items() if (match := _JOB_PARAMETER.fullmatch(name))}
    return JobDefinition.from_json("".join(found[number] for number in sorted(found)))


def _split_job(job: JobDefinition) -> dict[str, str]:
    text = json.dumps(job.to_document(), sort_keys=True)
    parts = [text[start : start + _MOST_CHARACTERS] for start in range(0, len(text), _MOST_CHARACTERS)]
    if len(parts) > _MOST_PARTS:
        raise ContractError(
            f"job must have at most {_MOST_PARTS * _MOST_CHARACTERS} characters on SageMaker, got {len(text)}; "
            "write long arguments to a file of the source"
        )
    return {f"deeplearning_job_{number}": part for number, part in enumerate(parts)}


def _describe_resources(settings: TrainingSettings, job: JobDefinition) -> dict[str, Any]:
    resources: dict[str, Any] = {
        "InstanceType": settings.instance_type,
        "InstanceCount": job.members or settings.members,
        "VolumeSizeInGB": settings.volume_gibibytes or _FIXED_VOLUME_GIBIBYTES,
    }
    if settings.volume_gibibytes:  # A type whose disks have a fixed size is refused with a key.
        resources["VolumeKmsKeyId"] = settings.key_arn
    if settings.keep_alive_seconds:
        resources["KeepAlivePeriodInSeconds"] = settings.keep_alive_seconds
    return resources


def _data_channel(settings: TrainingSettings, source: DataSettings) -> dict[str, Any]:
    """Return the channel of data; every instance gets a copy, except of what is streamed or on FSx for Lustre."""
    if source.target == "lustre" and settings.lustre is not None:
        folder = replace(settings.lustre, path=f"{settings.lustre.path}/{source.name}")
        return _file_system_channel(source.name, folder, "ro")
    mode = "FastFile" if source.target == "stream" else "File"
    return _s3_channel(source.name, f"s3://{source.bucket}/{source.key}", mode)


def _file_system_channel(name: str, folder: FileSystemFolder, access: str) -> dict[str, Any]:
    source = {
        "FileSystemId": folder.file_system_id,
        "FileSystemType": folder.kind,
        "FileSystemAccessMode": access,
        "DirectoryPath": folder.path,
    }
    return {"ChannelName": name, "InputMode": "File", "DataSource": {"FileSystemDataSource": source}}


def _s3_channel(name: str, uri: str, mode: str = "File") -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    return {"ChannelName": name, "InputMode": mode, "DataSource": {"S3DataSource": source}}
