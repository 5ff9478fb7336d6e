"""
Input of the containers of a training job: files below /opt/ml, and variables.

Source: developer guide, "How Amazon SageMaker AI Provides Training Information".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import INPUT, JobError
from cdk_rehearsal.embedded_aws.sagemaker.request import RequestError, get_mode, list_channels
from cdk_rehearsal.place import Credentials, Place

_CONFIG = "/opt/ml/input/config"
MODEL, OUTPUT, FAILURE = "/opt/ml/model", "/opt/ml/output/data", "/opt/ml/output/failure"
FOLDERS = (MODEL, OUTPUT, "/opt/ml/checkpoints")
_INTERFACE, _GROUP = "eth0", "homogeneousCluster"


def list_objects(s3: Any, uri: str) -> list[tuple[str, str]]:
    """Return bucket and key of the objects below a prefix, as the client may list them; folders' markers left out."""
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    return [(bucket, key) for key in keys if not key.endswith("/")]


def check_channels(s3: Any, job: TrainingJob, region: str) -> None:
    """Raise RequestError for an S3 channel without objects, as far as the execution role may see them."""
    for channel, source in list_channels(job.request, "S3DataSource"):
        uri, prefix = str(source["S3Uri"]), str(source["S3Uri"]).removeprefix("s3://").partition("/")[2]
        try:
            keys = [key for _, key in list_objects(s3, uri)]
        except (ClientError, ParamValidationError):  # the second for what cannot be the name of a bucket
            keys = []
        if not keys:  # aws/amazon-sagemaker-examples#2267
            bucket = uri.removeprefix("s3://").partition("/")[0]
            raise RequestError(
                f'No S3 objects found under S3 URL "{uri}" given in input data source. Please ensure that the bucket '
                f"exists in the selected region ({region}), that objects exist under that S3 prefix, and that the role "
                f'"{job.role}" has "s3:ListBucket" permissions on bucket "{bucket}".'
            )
        if get_mode(job.request, channel) == "FastFile" and not _is_folder(prefix, keys):
            raise RequestError(f"S3Uri of a FastFile channel must be a folder and no part of a name, got {uri}")


def download(s3: Any, job: TrainingJob) -> dict[str, bytes]:
    """Return path -> content of all objects of S3 channels; JobError for one that the role may not read."""
    files = {}
    for channel, source in list_channels(job.request, "S3DataSource"):
        folder, uri = f"{INPUT}/{channel['ChannelName']}", str(source["S3Uri"])
        prefix, objects = uri.removeprefix("s3://").partition("/")[2], list_objects(s3, uri)
        base = prefix if _is_folder(prefix, [key for _, key in objects]) else prefix.rpartition("/")[0]
        for bucket, key in objects:
            try:
                body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            except ClientError as error:  # aws/amazon-sagemaker-examples#4384
                code, said = error.response["Error"]["Code"], error.response["Error"]["Message"]
                raise JobError(
                    f"ClientError: Data download failed:Unable to download object s3://{bucket}/{key} ({code}: {said})"
                ) from error
            files[f"{folder}/{key[len(base) :].lstrip('/')}"] = body
    return files


def _is_folder(prefix: str, keys: Sequence[str]) -> bool:
    """Return whether a prefix is a folder of all keys, and no part of a name."""
    return not prefix or prefix.endswith("/") or all(key.startswith(f"{prefix}/") for key in keys)


def describe_job(job: TrainingJob, name: str, hosts: Sequence[str]) -> dict[str, bytes]:
    """Return path -> content of the files about the job; the hosts are sorted as texts."""
    names = sorted(hosts)
    group = {"instance_group_name": _GROUP, "instance_type": job.instance_type, "hosts": names}
    resources = {
        "current_host": name,
        "current_instance_type": job.instance_type,
        "current_group_name": _GROUP,
        "hosts": names,
        "instance_groups": [group],
        "network_interface_name": _INTERFACE,
    }
    channels = {
        channel["ChannelName"]: {
            **({"ContentType": channel["ContentType"]} if "ContentType" in channel else {}),
            "TrainingInputMode": "File",  # also for FastFile
            "S3DistributionType": "FullyReplicated",
            "RecordWrapperType": "None",
        }
        for channel in job.request.get("InputDataConfig", [])
    }
    documents: Mapping[str, Any] = {
        "resourceconfig": resources,
        "hyperparameters": dict(job.request.get("HyperParameters", {})),
        "inputdataconfig": channels,
    }
    return {f"{_CONFIG}/{file}.json": json.dumps(content).encode() for file, content in documents.items()}


def list_variables(job: TrainingJob, place: Place, credentials: Credentials) -> dict[str, str]:
    """
    Return the environment of a container, beside that of its image.

    The credentials of the role are for the host, which may serve them as AWS does, from the endpoint of containers.
    """
    return {
        "HOME": "/root",
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        "AWS_ENDPOINT_URL": place.endpoint,
        "AWS_ACCESS_KEY_ID": credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
        "AWS_SESSION_TOKEN": credentials.session_token,
        "TRAINING_JOB_NAME": job.name,
        "TRAINING_JOB_ARN": job.arn,
        **job.request.get("Environment", {}),
    }
