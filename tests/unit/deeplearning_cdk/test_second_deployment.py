"""A deployment while a job runs: what the job was submitted with stays readable for pods and containers that follow."""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import pytest

from deeplearning_cdk import DataSource, EksTraining, SageMakerTraining, Storage
from deeplearning_cdk.coordination.payload import keep_file
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_job import make_job
from deeplearning_contract.jobs.submission import SubmissionSettings, make_agent_copy
from deeplearning_contract.jobs.training_job import make_training_request
from tests.unit.deeplearning_cdk.conftest import read_submission, render

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"
JOB = JobDefinition("train", ("python3", "train.py"))
PLATFORMS = {"eks": (EksTraining, "JobRole"), "sagemaker": (SageMakerTraining, "TrainingRole")}
Deploy = Callable[..., tuple[SubmissionSettings, Mapping[str, list[tuple[str, Any]]]]]


def _list(value):
    return value if isinstance(value, list) else [value]


def _read_rights(synthesis, role):
    """Return each action of S3 with the patterns of its keys, and its conditions."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for statement in (each for policy in synthesis.policies(role) for each in policy["PolicyDocument"]["Statement"]):
        for action in _list(statement["Action"]):
            keys = [render(resource).partition("/")[2] for resource in _list(statement["Resource"])]
            found.setdefault(action, []).extend((key, statement.get("Condition", {})) for key in keys)
    return found


def _find_agent(platform, submission):
    """Return the key of the programs in the request of a job."""
    if platform == "eks":
        command = make_job(submission, JOB, secret="")["spec"]["template"]["spec"]["containers"][0]["command"][-1]
        return str(re.split(r"\s+", command)[3])
    channel, *_ = make_training_request(submission, JOB, "name-20260102030405", secret="")["InputDataConfig"]
    return str(channel["DataSource"]["S3DataSource"]["S3Uri"]).removeprefix("s3://").partition("/")[2]


@pytest.fixture(params=PLATFORMS)
def platform(request):
    name: str = request.param
    return name


@pytest.fixture
def deploy(platform, make_stack, read_stack):
    """Return a function from the names of data sources to the submission document and the rights of the jobs' role."""
    kind, role = PLATFORMS[platform]

    def synthesize(*sources):
        stack = make_stack()
        data = [DataSource(name, "images", f"{name}/") for name in sources]
        kind(stack, "Training", image=IMAGE, storage=Storage(data=data))
        synthesis = read_stack(stack)
        return read_submission(synthesis), _read_rights(synthesis, role)

    return synthesize


def _require_readable(platform, key, rights):
    assert any(fnmatchcase(key, pattern) for pattern, _ in rights["s3:GetObject"]), key
    if platform == "sagemaker":  # A channel is a prefix, which SageMaker lists.
        prefixes = [condition["StringLike"]["s3:prefix"] for _, condition in rights["s3:ListBucket"]]
        assert any(fnmatchcase(key, prefix) for each in prefixes for prefix in _list(each)), key


def test_job_reads_its_programs_after_a_deployment_with_one_more_source_of_data(platform, deploy):
    (first, before), (second, after) = deploy("train"), deploy("train", "validation")
    key = _find_agent(platform, first)
    assert key != _find_agent(platform, second)
    _require_readable(platform, key, before)
    _require_readable(platform, key, after)


def test_job_reads_its_programs_after_a_deployment_of_the_next_release(platform, deploy, monkeypatch):
    first, _ = deploy("train")
    module = f"deeplearning_cdk.{platform}.training"
    monkeypatch.setattr(f"{module}.pack_member", lambda _: keep_file("member.zip", b"the next release"))
    second, after = deploy("train")
    key = _find_agent(platform, first)
    assert key != _find_agent(platform, second)
    _require_readable(platform, key, after)


def test_submission_copies_the_asset_to_where_its_jobs_read_it(platform, deploy):
    submission, _ = deploy()
    settings = submission.kubernetes or submission.training
    assert settings is not None
    copy = make_agent_copy(submission)
    assert copy is not None
    assert copy["CopySource"] == {"Bucket": settings.agent.bucket, "Key": settings.agent.key}
    assert (copy["Bucket"], copy["Key"]) == (submission.bucket, _find_agent(platform, submission))


def test_jobs_list_no_key_of_a_source(platform, deploy):
    """A source's key is the digest of its content, so a job of the stack cannot read what it does not have."""
    submission, rights = deploy("train")
    prefixes = [
        str(prefix)
        for key, condition in rights.get("s3:ListBucket", [])
        for each in condition.values()
        for prefix in _list(each["s3:prefix"])
    ]
    unlisted = ("", "deeplearning-jobs/", submission.prefix, f"{submission.prefix}0123", f"{submission.prefix}a")
    for prefix in unlisted:
        assert not any(fnmatchcase(prefix, pattern) for pattern in prefixes), prefix
    assert "s3:ListBucketVersions" not in rights
