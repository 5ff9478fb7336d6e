"""
Output of a training job: logs and metrics while it runs, model and other files at its end.

Sources: developer guide, "How Amazon SageMaker AI Processes Training Output", and "Amazon CloudWatch Logs for Amazon
SageMaker AI". A role that may not write logs or metrics ends no job: they are missing, and the rehearsal reports it.
"""

import contextlib
import io
import re
import tarfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from cdk_rehearsal.embedded_aws.base.scaling_group import now
from cdk_rehearsal.embedded_aws.sagemaker.containers import RunningContainer
from cdk_rehearsal.embedded_aws.sagemaker.inputs import MODEL, OUTPUT
from cdk_rehearsal.embedded_aws.sagemaker.job import TrainingJob
from cdk_rehearsal.embedded_aws.sagemaker.provisioning import JobError, Provisioner
from cdk_rehearsal.place import Credentials, Place

LOG_GROUP = NAMESPACE = "/aws/sagemaker/TrainingJobs"
_MOST_EVENTS = 1000
"""Events of a batch, of CloudWatch's 10,000."""
_MOST_CHARACTERS = 200_000
"""Characters of an event, of CloudWatch's 1 MiB."""


class ContainerLog:
    """The log stream of a container, `<job>/algo-<n>-<ms>`."""

    def __init__(self, place: Place, job: TrainingJob, name: str, credentials: Credentials) -> None:
        self._logs = place.client_as("logs", credentials)
        self._job = job
        self.stream = f"{job.name}/{name}-{int(time.time() * 1000)}"
        self._lock = threading.Lock()
        self._events: list[dict[str, Any]] = []
        self._is_open = self._is_lost = False

    def take(self, line: str) -> None:
        """Take a line of output."""
        event = {"timestamp": int(time.time() * 1000), "message": line[:_MOST_CHARACTERS] or " "}
        with self._lock:
            self._events.append(event)

    def flush(self) -> list[str]:
        """Write the lines since the last time to the stream, and return them."""
        with self._lock:
            events, self._events = self._events, []
        for start in range(0, len(events), _MOST_EVENTS):
            self._write(events[start : start + _MOST_EVENTS])
        return [event["message"] for event in events]

    def _write(self, events: Sequence[dict[str, Any]]) -> None:
        try:
            if not self._is_open and not self._is_lost:
                self._open()
            if self._is_open:
                self._logs.put_log_events(logGroupName=LOG_GROUP, logStreamName=self.stream, logEvents=list(events))
        except ClientError:
            self._is_lost = True  # The authorizer has reported the refusal.

    def _open(self) -> None:
        with contextlib.suppress(self._logs.exceptions.ResourceAlreadyExistsException):
            self._logs.create_log_group(logGroupName=LOG_GROUP)
        self._logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=self.stream)
        self._logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=self.stream)
        self._is_open = True


class MetricReader:
    """Reads the metrics of a job from its lines, by the patterns of its MetricDefinitions."""

    def __init__(self, place: Place, job: TrainingJob, provisioner: Provisioner) -> None:
        self._cloudwatch = place.client("cloudwatch")
        self._job = job
        self._provisioner = provisioner
        definitions = job.request["AlgorithmSpecification"].get("MetricDefinitions", [])
        self._patterns = {each["Name"]: re.compile(each["Regex"]) for each in definitions}

    def read(self, lines: Sequence[str]) -> None:
        """Keep the last value of each metric, and send all to CloudWatch where the role may."""
        found = []
        for line in lines:
            for name, pattern in self._patterns.items():
                if match := pattern.search(line):
                    found += [(name, value) for value in [_read_number(match)] if value is not None]
        for name, value in found:
            with self._job.lock:
                self._job.metrics[name] = (value, now())
        if found and not self._provisioner.find_denial(
            self._job, [("cloudwatch.PutMetricData", {"Namespace": NAMESPACE})]
        ):
            dimensions = [{"Name": "TrainingJobName", "Value": self._job.name}]
            data = [{"MetricName": name, "Value": value, "Dimensions": dimensions} for name, value in found]
            self._cloudwatch.put_metric_data(Namespace=NAMESPACE, MetricData=data)


def upload_output(
    place: Place, job: TrainingJob, credentials: Credentials, containers: Sequence[RunningContainer]
) -> None:
    """
    Write `model.tar.gz`, and `output.tar.gz` where there is output, of all containers with the role's rights and key.

    Names of different containers must not clash. What becomes of a clash is documented nowhere; it fails the job here,
    because a file would be lost.
    """
    folder = f"{job.request['OutputDataConfig']['S3OutputPath'].rstrip('/')}/{job.name}/output"
    bucket, _, prefix = folder.removeprefix("s3://").partition("/")
    archives = {"model.tar.gz": _pack([container.root / MODEL.lstrip("/") for container in containers])}
    output = [path for path in (container.root / OUTPUT.lstrip("/") for container in containers) if _list_files(path)]
    if output:
        archives["output.tar.gz"] = _pack(output)
    key = job.request["OutputDataConfig"].get("KmsKeyId")
    encryption = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key} if key else {}
    s3 = place.client_as("s3", credentials)
    for name, body in archives.items():
        target = {"Bucket": bucket, "Key": f"{prefix}/{name}"}
        try:
            # In parts as for a large model: the use of the key differs from that for a single object.
            upload = s3.create_multipart_upload(**target, **encryption)["UploadId"]
            part = s3.upload_part(**target, UploadId=upload, PartNumber=1, Body=body)
            parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
            s3.complete_multipart_upload(**target, UploadId=upload, MultipartUpload=parts)
        except ClientError as error:
            said = error.response["Error"]
            raise JobError(
                f"ClientError: Artifact upload failed:{folder}/{name} ({said['Code']}: {said['Message']})"
            ) from error
        except ParamValidationError as error:
            reason = f"InvalidBucketName: The specified bucket is not valid.: {bucket}"
            raise JobError(f"ClientError: Artifact upload failed:{folder}/{name} ({reason})") from error
    with job.lock:
        job.model = f"{folder}/model.tar.gz"


def _read_number(match: re.Match[str]) -> float | None:
    try:
        return float(match[1] if match.re.groups else match[0])
    except (TypeError, ValueError):
        return None


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _pack(folders: Sequence[Path]) -> bytes:
    buffer, names = io.BytesIO(), set[str]()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for folder in folders:
            for path in _list_files(folder):
                name = path.relative_to(folder).as_posix()
                if name in names:
                    raise JobError(f"ClientError: Artifact upload failed:{name} is in the output of several containers")
                names.add(name)
                archive.add(path, name)
    return buffer.getvalue()
