"""Jobs on SageMaker: `submit`, `jobs`, `logs --job`, `stop` and `plan` with a service that is played."""

import json
from datetime import datetime, timezone

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.jobs import sagemaker as module
from deeplearning_cli.main import main
from deeplearning_contract.jobs.training_job import LOG_GROUP
from tests.unit.deeplearning_contract.test_training_job import SUBMISSION

REGION = "eu-west-1"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


class Service:
    """SageMaker and CloudWatch Logs, with training jobs whose states follow a script."""

    def __init__(self):
        self.jobs = {}
        self.script = ["Starting", "Training", "Completed"]
        self.lines = []
        self.reason = ""
        self.refusal = None
        self.stopped = []
        self.exceptions = boto3.client("sagemaker", REGION).exceptions

    def create_training_job(self, **request):
        if self.refusal is not None:
            raise self.refusal
        with Stubber(boto3.client("sagemaker", REGION)) as stub:  # The request fits botocore's model.
            stub.add_response("create_training_job", {"TrainingJobArn": "arn"}, request)
            stub.client.create_training_job(**request)
        self.jobs[request["TrainingJobName"]] = {
            **request,
            "CreationTime": NOW,
            "SecondaryStatusTransitions": [],
            "script": list(self.script),
        }

    def describe_training_job(self, TrainingJobName):  # noqa: N803 - botocore's name
        job = self.jobs[TrainingJobName]
        step = job["script"].pop(0) if len(job["script"]) > 1 else job["script"][0]
        if not job["SecondaryStatusTransitions"] or job["SecondaryStatusTransitions"][-1]["Status"] != step:
            job["SecondaryStatusTransitions"].append({"Status": step, "StatusMessage": f"now {step}"})
        ended = {"Completed": "Completed", "Failed": "Failed", "Stopped": "Stopped", "MaxRuntimeExceeded": "Stopped"}
        if step == "Training":
            job["TrainingStartTime"] = NOW
        status = "Stopping" if step == "Stopping" else ended.get(step, "InProgress")
        reason = {"FailureReason": self.reason} if step == "Failed" else {}
        return {**job, **reason, "TrainingJobStatus": status, "SecondaryStatus": step}

    def stop_training_job(self, TrainingJobName):  # noqa: N803 - botocore's name
        self.stopped.append(TrainingJobName)
        self.jobs[TrainingJobName]["script"] = ["Stopping", "Stopped"]

    def get_paginator(self, operation):
        assert operation == "list_training_jobs"
        return self

    def paginate(self, NameContains, **_):  # noqa: N803 - botocore's name
        found = [name for name in reversed(self.jobs) if NameContains in name]
        return [{"TrainingJobSummaries": [{"TrainingJobName": name} for name in found]}]


class Store:
    """S3, which copies."""

    def __init__(self):
        self.copies = []

    def copy_object(self, **request):
        with Stubber(boto3.client("s3", REGION)) as stub:
            stub.add_response("copy_object", {}, request)
            stub.client.copy_object(**request)
        self.copies.append((request["CopySource"]["Key"], request["Key"]))


class Logs:
    """CloudWatch Logs with the streams of one container."""

    def __init__(self, service):
        self.service = service
        self.exceptions = boto3.client("logs", REGION).exceptions

    def get_paginator(self, _):
        return self

    def paginate(self, logGroupName, logStreamNamePrefix):  # noqa: N803 - botocore's names
        assert logGroupName == LOG_GROUP
        return [{"logStreams": [{"logStreamName": f"{logStreamNamePrefix}{number}"} for number in (99, 100)]}]

    def get_log_events(self, logStreamName, limit, nextToken="0", startFromHead=True, **_):  # noqa: N803, FBT002
        lines = self.service.lines if logStreamName.endswith("-100") else []
        found = lines[int(nextToken) :][:limit] if startFromHead else lines[-limit:]
        after = str(int(nextToken) + len(found))
        return {"events": [{"message": line} for line in found], "nextForwardToken": after}


@pytest.fixture
def service(monkeypatch, tmp_path):
    """The service, and a job file in the current folder."""
    played = Service()
    played.store = Store()
    clients = {"sagemaker": played, "logs": Logs(played), "s3": played.store}
    access = CloudAccess(clients.__getitem__, REGION, None)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    for command in ("submit", "listing", "stop", "plan"):
        monkeypatch.setattr(f"deeplearning_cli.jobs.{command}.open_cloud", lambda _: access)
        monkeypatch.setattr(
            f"deeplearning_cli.jobs.{command}.find_platform", lambda found: module.SageMakerPlatform(found, SUBMISSION)
        )
    monkeypatch.setattr("deeplearning_cli.logs.open_cloud", lambda _: access)
    monkeypatch.setattr(
        "deeplearning_cli.logs.find_platform", lambda found: module.SageMakerPlatform(found, SUBMISSION)
    )
    monkeypatch.chdir(tmp_path)
    write_job()
    return played


def write_job(**more):
    keys = {"name": "train_digits", "program": ["python3", "train.py"], **more}
    with open("job.toml", "w") as file:  # noqa: PTH123 - relative to the current folder
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def test_a_submitted_job_is_followed_to_its_end(service, capsys):
    service.lines = ["epoch 1", "epoch 2"]
    assert main(["submit", "job.toml"]) == 0
    done = capsys.readouterr()
    assert done.out.splitlines() == ["epoch 1", "epoch 2"]
    assert "Starting: now Starting" in done.err
    (name,) = service.jobs
    assert name.startswith("0123abcd-train-digits-20")
    assert done.err.splitlines()[-1] == f"{name} succeeded"


def test_a_job_fetches_a_copy_of_the_programs_that_no_deployment_replaces(service):
    assert main(["submit", "job.toml", "--detach"]) == 0
    ((asset, copy),) = service.store.copies
    (job,) = service.jobs.values()
    channel, *_ = job["InputDataConfig"]
    assert channel["DataSource"]["S3DataSource"]["S3Uri"] == f"s3://assets/{copy}"
    assert asset == SUBMISSION.training.agent.key


def test_a_caller_who_may_not_copy_the_programs_is_told_so(service, capsys):
    def refuse(**_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "CopyObject")

    service.store.copy_object = refuse
    assert main(["submit", "job.toml"]) == 2
    assert service.jobs == {}
    said = capsys.readouterr().err
    assert "could not copy the programs of jobs" in said
    assert "needs s3:GetObject on agent.zip, which the cluster's grant_submit grants" in said


def test_detach_returns_when_the_training_job_is_created(service, capsys):
    service.script = ["Starting"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert "training job 0123abcd-train-digits-" in capsys.readouterr().err


def test_a_failed_job_has_the_exit_code_and_the_words_of_its_program(service, capsys):
    service.script, service.reason = ["Training", "Failed"], "AlgorithmError: launcher ended with 7, exit code: 7"
    assert main(["submit", "job.toml"]) == 7
    assert (
        capsys.readouterr().err.splitlines()[-1].endswith("failed: AlgorithmError: launcher ended with 7, exit code: 7")
    )


def test_a_lack_of_capacity_names_the_props_that_help(service, capsys):
    service.script = ["Starting", "Failed"]
    service.reason = "CapacityError: Unable to provision requested ML compute capacity. Please retry."
    assert main(["submit", "job.toml"]) == 2
    assert (
        "take another instance_type than ml.g5.12xlarge, or let jobs wait with max_pending" in capsys.readouterr().out
    )


def test_a_quota_is_named_with_the_commands_that_show_and_raise_it(service, capsys):
    message = (
        "The account-level service limit 'ml.g5.12xlarge for training job usage' is 0 Instances, with current "
        "utilization of 0 Instances and a request delta of 2 Instances."
    )
    error = {"Error": {"Code": "ResourceLimitExceeded", "Message": message}}
    service.refusal = service.exceptions.ResourceLimitExceeded(error, "CreateTrainingJob")
    assert main(["submit", "job.toml"]) == 2
    said = capsys.readouterr().out
    assert "QuotaName=='ml.g5.12xlarge for training job usage'" in said
    assert "aws service-quotas request-service-quota-increase --service-code sagemaker" in said


def test_missing_rights_name_the_grant(service, capsys):
    error = {"Error": {"Code": "AccessDeniedException", "Message": "not authorized"}}
    service.refusal = service.exceptions.ClientError(error, "CreateTrainingJob")
    assert main(["submit", "job.toml"]) == 2
    assert "which the stack's grant_submit grants" in capsys.readouterr().err


def test_a_second_job_of_a_running_jobs_name_is_refused(service, capsys):
    service.script = ["Training"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert main(["submit", "job.toml"]) == 2
    assert "wait for it, or end it: deeplearning-cdk stop train_digits" in capsys.readouterr().out
    assert len(service.jobs) == 1


def test_a_job_is_not_taken_for_another_whose_training_jobs_are_named_alike(service, capsys):
    service.script = ["Training"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert main(["stop", "train.digits"]) == 2
    assert "job train.digits must exist, got none" in capsys.readouterr().err
    assert service.stopped == []


def test_jobs_lists_the_newest_run_of_each(service, capsys):
    service.script, service.reason = ["Failed"], "AlgorithmError: no memory, exit code: 1"
    main(["submit", "job.toml"])
    write_job(name="other")
    service.script = ["Starting"]
    main(["submit", "job.toml", "--detach"])
    capsys.readouterr()
    assert main(["jobs", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["platform"] == "sagemaker"
    assert [(job["name"], job["state"], job["status"], job["members"]) for job in shown["jobs"]] == [
        ("other", "queued", None, 2),
        ("train_digits", "failed", 1, 2),
    ]


def test_logs_show_the_first_container_and_refuse_other_ranks(service, capsys):
    service.lines = [f"line {number}" for number in range(50)]
    main(["submit", "job.toml", "--detach"])
    capsys.readouterr()
    assert main(["logs", "--job", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == service.lines[-40:]
    assert main(["logs", "--job", "train_digits", "--follow"]) == 0
    assert capsys.readouterr().out.splitlines() == service.lines
    assert main(["logs", "--job", "train_digits", "--rank", "3"]) == 2
    assert "in jobs/train_digits/runs" in capsys.readouterr().err
    assert main(["logs", "--job", "nothing"]) == 2


def test_stop_waits_for_the_end_and_says_when_there_is_nothing_to_stop(service, capsys):
    service.script = ["Training"]
    main(["submit", "job.toml", "--detach"])
    (name,) = service.jobs
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{name} is stopping", f"{name} stopped"]
    assert service.stopped == [name]
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out == f"{name} has ended: stopped\n"
    assert main(["stop", "nothing"]) == 2


def test_a_plan_shows_ranks_and_request_and_creates_nothing(service, capsys):
    write_job(gpus_per_member=2)
    assert main(["plan", "job.toml"]) == 0
    shown = capsys.readouterr().out
    assert "4 ranks = 2 hosts x 2" in shown
    assert '"TrainingImage"' in shown
    assert main(["plan", "job.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["ranks"], plan["hosts"], plan["slots"]) == (4, 2, 2)
    assert plan["request"]["ResourceConfig"]["InstanceCount"] == 2
    assert service.jobs == {}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"gpus_per_member": 5}, "gpus_per_member must be at most 4 on ml.g5.12xlarge, got 5"),
        ({"data": ["coco"]}, "data must be names of the stack's data, got 'coco'"),
    ],
)
def test_a_job_that_cannot_be_a_training_job_is_refused_before_its_upload(service, capsys, keys, said):
    write_job(**keys)
    assert main(["submit", "job.toml"]) == 2
    assert said in capsys.readouterr().err


def test_the_end_by_a_time_limit_is_named(service, capsys):
    service.script = ["Training", "MaxRuntimeExceeded"]
    assert main(["submit", "job.toml"]) == 1
    assert "stopped: MaxRuntimeExceeded" in capsys.readouterr().err.splitlines()[-1]
