"""Training jobs of SageMaker: the request of any job fits the service, and containers read the same job from it."""

import functools
import hashlib
import io
import json
import re
import subprocess
import zipfile
from dataclasses import replace

import botocore.session
import hypothesis.strategies as st
import pytest
from botocore.validate import ParamValidator
from hypothesis import given

from cdk_rehearsal.referees.service_models import judge_request
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs import training_job
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import (
    FileSystemFolder,
    SubmissionSettings,
    TrainingSettings,
    choose_data,
)
from deeplearning_contract.jobs.training_job import (
    METRICS,
    MOST_CHANNELS,
    name_training_job,
    read_training_job,
)
from deeplearning_contract.setting_parts import DataSettings, ScriptSettings

make_training_request = functools.partial(training_job.make_training_request, secret="5e" * 32)
NAME = "0123abcd-train-digits-20260102030405"
TRAINING = TrainingSettings(
    name_prefix="0123abcd-",
    role_arn="arn:aws:iam::123456789012:role/Training",
    image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/cdk-assets:0123",
    instance_type="ml.g5.12xlarge",
    gpu_count=4,
    members=2,
    volume_gibibytes=100,
    subnets=("subnet-0123456789abcdef0",),
    security_groups=("sg-0123456789abcdef0",),
    shared=FileSystemFolder("fs-0123456789abcdef0", "EFS", "/"),
    output="s3://models/jobs/",
    key_arn="arn:aws:kms:eu-west-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef",
    agent=ScriptSettings("assets", "agent.zip", "ab" * 32),
    max_seconds=86_400,
)
SUBMISSION = SubmissionSettings("sagemaker", "Train", "root", "assets", "deeplearning-jobs/Train/", training=TRAINING)
JOB = JobDefinition("train_digits", ("python3", "train_digits.py"))

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
sources = st.builds(
    DataSettings, names, st.just("bucket"), st.just("") | st.just("train/"), st.sampled_from(["efs", "local", "stream"])
)
jobs = st.builds(
    JobDefinition,
    name=names,
    program=st.lists(st.text(min_size=1), min_size=1, max_size=20).map(tuple),
    members=st.none() | st.integers(1, 256),
    ranks=st.none() | st.integers(1, 1000),
    env=st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]{0,20}", fullmatch=True), st.text(st.characters(exclude_characters="\0"))
    ),
    max_seconds=st.integers(0, 31_536_000),
    retries=st.integers(0, 100),
    ends_cluster=st.booleans(),
)
settings = st.builds(
    replace,
    st.just(TRAINING),
    volume_gibibytes=st.just(0) | st.integers(30, 16_384),
    max_seconds=st.integers(60, 28 * 86_400),
    max_pending_seconds=st.just(0) | st.integers(1800, 2_419_200),
    keep_alive_seconds=st.just(0) | st.integers(60, 21_600),
    data=st.lists(sources, max_size=MOST_CHANNELS - 2, unique_by=lambda source: source.name).map(tuple),
)


@functools.cache
def load_operation():
    """Load the service model, 7 MB of JSON, once."""
    return botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateTrainingJob")


def list_findings(request):
    """Return what botocore refuses to send, and what is outside of the service's limits."""
    unsendable = ParamValidator().validate(request, load_operation().input_shape).generate_report()
    outside = judge_request("sagemaker", "CreateTrainingJob", request, "request")
    return [*filter(None, [unsendable]), *map(str, outside)]


@given(settings, jobs)
def test_the_request_of_any_job_fits_the_service_model(training, job):
    name = name_training_job(training, job.name, "20260102030405")
    request = make_training_request(replace(SUBMISSION, training=training), job, name)
    assert list_findings(request) == []


@given(jobs)
def test_containers_read_the_job_from_the_hyperparameters(job):
    parameters = make_training_request(SUBMISSION, job, NAME)["HyperParameters"]
    assert read_training_job(parameters) == replace(job, ends_cluster=False)


def test_a_definition_of_20000_characters_travels_in_parts():
    job = replace(JOB, program=("python3", "x" * 20_000))
    request = make_training_request(SUBMISSION, job, NAME)
    assert len(request["HyperParameters"]) > 8
    assert list_findings(request) == []
    assert read_training_job(request["HyperParameters"]) == job


def test_a_definition_that_is_longer_than_all_parts_is_refused():
    job = replace(JOB, program=("python3", "x" * 225_000))
    with pytest.raises(ContractError, match="at most 225000 characters on SageMaker"):
        make_training_request(SUBMISSION, job, NAME)


@pytest.mark.parametrize(
    ("job", "name"),
    [
        ("train_digits", "0123abcd-train-digits-20260102030405"),
        ("Mask.R-CNN", "0123abcd-mask-r-cnn-20260102030405"),
        ("x" * 64, f"0123abcd-{'x' * 39}-20260102030405"),
        (f"{'x' * 38}.yz", f"0123abcd-{'x' * 38}-20260102030405"),
        ("a.", "0123abcd-a-20260102030405"),
    ],
)
def test_names_are_in_lower_case_and_end_with_the_time(job, name):
    assert name_training_job(TRAINING, job, "20260102030405") == name


def test_a_job_takes_its_members_and_a_shorter_time_from_its_definition():
    job = replace(JOB, members=4, max_seconds=600)
    request = make_training_request(SUBMISSION, job, NAME)
    assert request["ResourceConfig"]["InstanceCount"] == 4
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 600}
    longer = make_training_request(SUBMISSION, replace(JOB, max_seconds=31_536_000), NAME)
    assert longer["StoppingCondition"] == {"MaxRuntimeInSeconds": 86_400}


def test_a_type_with_disks_of_its_own_gets_no_key_for_them():
    request = make_training_request(replace(SUBMISSION, training=replace(TRAINING, volume_gibibytes=0)), JOB, NAME)
    assert "VolumeKmsKeyId" not in request["ResourceConfig"]


def test_spot_capacity_has_a_longest_wait():
    spot = replace(SUBMISSION, training=replace(TRAINING, max_wait_seconds=172_800))
    request = make_training_request(spot, JOB, NAME)
    assert request["EnableManagedSpotTraining"] is True
    assert request["StoppingCondition"]["MaxWaitTimeInSeconds"] == 172_800


def test_each_target_of_data_has_its_kind_of_channel():
    data = (
        DataSettings("copied", "bucket", "train/", "efs"),
        DataSettings("streamed", "bucket", "", "stream"),
        DataSettings("linked", "bucket", "train/", "lustre"),
    )
    lustre = FileSystemFolder("fs-0fedcba9876543210", "FSxLustre", "/abcdefgh")
    submission = replace(SUBMISSION, training=replace(TRAINING, data=data, lustre=lustre))
    channels = make_training_request(submission, JOB, NAME)["InputDataConfig"]
    found = {each["ChannelName"]: (each["InputMode"], each["DataSource"]) for each in channels}
    assert found["copied"][1]["S3DataSource"]["S3Uri"] == "s3://bucket/train/"
    assert (found["copied"][0], found["streamed"][0]) == ("File", "FastFile")
    folder = found["linked"][1]["FileSystemDataSource"]
    assert (folder["DirectoryPath"], folder["FileSystemAccessMode"]) == ("/abcdefgh/linked", "ro")
    only = make_training_request(submission, replace(JOB, data=("streamed",)), NAME)["InputDataConfig"]
    assert [each["ChannelName"] for each in only][2:] == ["streamed"]


def test_data_that_the_stack_does_not_have_is_refused():
    with pytest.raises(ContractError, match="data must be names of the stack's data, got 'coco'; the stack has none"):
        choose_data(TRAINING, replace(JOB, data=("coco",)))


def test_a_job_in_a_container_is_refused():
    with pytest.raises(ContractError, match="container must be left out on SageMaker"):
        make_training_request(SUBMISSION, replace(JOB, container="image"), NAME)


def test_a_document_without_training_jobs_is_refused():
    with pytest.raises(ContractError, match="must have the settings of training jobs"):
        make_training_request(replace(SUBMISSION, training=None), JOB, NAME)


def test_the_submission_document_keeps_the_training_settings():
    assert SubmissionSettings.from_json(json.dumps(SUBMISSION.to_document())) == SUBMISSION


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("epoch 3: loss 0.2134", "0.2134"),
        ('{"epoch": 3, "loss": 0.2134}', "0.2134"),
        ("[0512 12:00:00 @monitor.py:467] total_cost: 0.78925", "0.78925"),
        ("step 7 lossless 0.1", None),
    ],
)
def test_the_loss_is_read_from_lines_of_the_examples_and_of_tensorpack(line, value):
    """TensorPack's ScalarPrinter prints `name: value` (tensorpack, callbacks/monitor.py)."""
    found = re.search(METRICS["loss"], line)
    assert (found[1] if found else None) == value


# --- The command of the containers ------------------------------------------------------------------------


def pack(program):
    """Return an agent whose `train` is a program."""
    with zipfile.ZipFile(data := io.BytesIO(), "w") as archive:
        archive.writestr("deeplearning_member/__main__.py", program)
    return data.getvalue()


@pytest.fixture
def start(tmp_path):
    """Return a function that runs a container's command over the files of its channel."""

    def start(agent, files):
        channel = tmp_path / "opt/ml/input/data/deeplearning-agent"
        for folder in (channel, tmp_path / "opt/ml/output"):
            folder.mkdir(parents=True)
        for name, data in files.items():
            (channel / name).write_bytes(data)
        training = replace(TRAINING, agent=replace(TRAINING.agent, sha256=hashlib.sha256(agent).hexdigest()))
        algorithm = make_training_request(replace(SUBMISSION, training=training), JOB, NAME)["AlgorithmSpecification"]
        words = [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
        moved = [word.replace("/opt/", f"{tmp_path}/opt/") for word in words]
        return subprocess.run(moved, capture_output=True, text=True, check=False)

    return start


AGENT, OTHER = pack("import sys; print('ran', sys.argv[1])"), pack("print('other')")


def test_a_container_runs_the_agent_with_the_digest_of_the_request(start):
    done = start(AGENT, {"agent.zip": AGENT})
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "ran train")


@pytest.mark.parametrize(
    "files",
    [
        {"agent.zip": OTHER},
        {"agent.zip": AGENT + b"more"},
        {"agent.zip": AGENT, "agent.zip.zip": OTHER},
        {"agent.zip": OTHER, "agent.zip.zip": AGENT},
        {},
    ],
    ids=["other", "longer", "two", "two others", "none"],
)
def test_a_container_runs_nothing_of_an_agent_with_another_digest_and_says_so(start, tmp_path, files):
    done = start(AGENT, files)
    assert done.returncode == 1
    assert "other" not in done.stdout
    assert "ran" not in done.stdout
    assert not (tmp_path / "opt/deeplearning/agent").exists()
    assert (tmp_path / "opt/ml/output/failure").read_text() == (
        f"the agent must have SHA-256 {hashlib.sha256(AGENT).hexdigest()}; submit the job again\n"
    )
