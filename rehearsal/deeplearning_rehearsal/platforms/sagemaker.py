"""Training jobs of SageMaker, whose containers are there while a job runs."""

import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings, make_secret
from deeplearning_contract.jobs.training_job import (
    LOG_GROUP,
    get_training,
    make_training_request,
    name_training_job,
)
from deeplearning_rehearsal.checks.results import TrainingReport
from deeplearning_rehearsal.checks.training import (
    LAUNCHER,
    copy_programs,
    last_lines,
    make_training_report,
    read_result,
)
from deeplearning_rehearsal.platforms.job_platform import JobPlatform
from deeplearning_rehearsal.platforms.platform import Clients

_POLICIES, _CREATE = ("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"), "sagemaker:CreateTrainingJob"
ENDED = ("Completed", "Failed", "Stopped")
_POLL_SECONDS = 0.5
TRANSITIONS = ("Starting", "Pending", "Downloading", "DownloadingTrainingImage", "Training", "Uploading", "Completed")
"""Secondary statuses of a job without a hitch, in this order (API reference, DescribeTrainingJob)."""


class SageMakerPlatform(JobPlatform):
    """Training jobs."""

    name = "sagemaker"
    settings_key = "training"
    jobs = "training jobs"
    events_lane = "SageMaker"


def find_submitter(template: Mapping[str, Any]) -> str:
    """Return the logical id of a role of a template that may create training jobs; empty without one."""
    resources = template["Resources"]
    roles = {name for name, resource in resources.items() if resource["Type"] == "AWS::IAM::Role"}
    for resource in resources.values():
        if resource["Type"] in _POLICIES and _allows_creation(resource["Properties"]["PolicyDocument"]):
            for holder in resource["Properties"].get("Roles", ()):
                if isinstance(holder, dict) and holder.get("Ref") in roles:
                    return str(holder["Ref"])
    return ""


def _allows_creation(document: Mapping[str, Any]) -> bool:
    return any(each["Effect"] == "Allow" and _CREATE in each.get("Action", ()) for each in document["Statement"])


def start_training_job(clients: Clients, submission: SubmissionSettings, job: JobDefinition) -> str:
    """Create a training job as `deeplearning-cdk submit` does, and return its name."""
    time_text = datetime.now(timezone.utc).strftime("%Y%m%d%H%M%S")
    name = name_training_job(get_training(submission), job.name, time_text)
    copy_programs(clients, submission)
    clients("sagemaker").create_training_job(**make_training_request(submission, job, name, secret=make_secret()))
    return name


def await_training_job(clients: Clients, name: str, seconds: float) -> dict[str, Any]:
    """Wait for the end of a training job, for so many seconds at most; return its description."""
    give_up = time.monotonic() + seconds
    while True:
        job: dict[str, Any] = clients("sagemaker").describe_training_job(TrainingJobName=name)
        if job["TrainingJobStatus"] in ENDED or time.monotonic() > give_up:
            return job
        time.sleep(_POLL_SECONDS)


def list_training_jobs(clients: Clients, submission: SubmissionSettings) -> list[str]:
    """Return the names of the training jobs of a stack, the newest first."""
    prefix = get_training(submission).name_prefix
    found = clients("sagemaker").list_training_jobs(
        NameContains=prefix, SortBy="CreationTime", SortOrder="Descending", MaxResults=100
    )["TrainingJobSummaries"]
    return [str(entry["TrainingJobName"]) for entry in found]


def read_log(clients: Clients, name: str) -> list[str]:
    """Return the lines of the first container of a training job."""
    logs, lines = clients("logs"), []
    streams = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{name}/algo-1-")["logStreams"]
    for stream in streams:
        token: dict[str, str] = {}
        while True:
            page = logs.get_log_events(
                logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"], startFromHead=True, **token
            )
            lines += [str(event["message"]) for event in page["events"]]
            if not page["events"] or token.get("nextToken") == page["nextForwardToken"]:
                break
            token = {"nextToken": page["nextForwardToken"]}
    return lines


def find_logs(clients: Clients, submission: SubmissionSettings) -> Mapping[str, bool]:
    """Return the log streams of the containers of the newest job, name -> whether it is there."""
    names = list_training_jobs(clients, submission)
    if not names:
        return {}
    job = clients("sagemaker").describe_training_job(TrainingJobName=names[0])
    pages = (
        clients("logs")
        .get_paginator("describe_log_streams")
        .paginate(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{names[0]}/")
    )
    streams = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
    hosts = [f"{names[0]}/algo-{number}-" for number in range(1, 1 + job["ResourceConfig"]["InstanceCount"])]
    return {f"{LOG_GROUP}/{host}*": any(name.startswith(host) for name in streams) for host in hosts}


def run_training_job(
    clients: Clients, submission: SubmissionSettings, job: JobDefinition, seconds: float
) -> TrainingReport:
    """Create a training job, and read its own result; PromiseError if it fails, or takes more seconds."""
    name = start_training_job(clients, submission, job)
    described = await_training_job(clients, name, seconds)
    lines = read_log(clients, name)
    if described["TrainingJobStatus"] != "Completed":
        said = described.get("FailureReason") or last_lines("\n".join(lines))
        raise PromiseError(f"training job {name} is {described['TrainingJobStatus']}: {said}")
    statuses = tuple(entry["Status"] for entry in described["SecondaryStatusTransitions"])
    if statuses != TRANSITIONS:
        raise PromiseError(f"training job {name} must go through {', '.join(TRANSITIONS)}, got {', '.join(statuses)}")
    return make_training_report(LAUNCHER, read_result("\n".join(lines)))
