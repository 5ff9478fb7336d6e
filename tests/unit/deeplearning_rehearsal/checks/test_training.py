"""The job's own result in a launcher's output."""

import base64
import hashlib
import io
import json
import subprocess
import tarfile
from functools import partial

import boto3
import pytest

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings, make_emr_step, submission_parameter
from deeplearning_rehearsal.checks.training import (
    DATA_MODULE,
    PROGRAM,
    copy_examples,
    find_submission,
    list_examples,
    list_sources,
    make_training_report,
    read_job,
    read_result,
    read_submission,
    upload_job,
)
from deeplearning_rehearsal.platforms.registry import CLUSTER_PLATFORMS
from tests.unit.local_aws import empty_aws

JOB = JobDefinition(name="train_digits", program=("python3", PROGRAM))

SUBMISSION = SubmissionSettings("emr", "c", "ubuntu", "assets", "deeplearning-jobs/c/", cluster_id="j-1")

RESULT = {
    "framework": "PyTorch",
    "ranks": 2,
    "hosts": ["ip-1", "ip-2"],
    "dataset": "digits",
    "accuracy": 0.97,
    "seconds": 3.5,
}


def train(platform, node, seconds, **clients):
    """Train on a platform; each client is named by its service."""
    output = CLUSTER_PLATFORMS[platform].run_job(
        node, "i-1", JOB, seconds, clients=lambda name: clients[name], submission=SUBMISSION
    )
    return make_training_report("horovod", read_result(output))


class Master:
    """A node that takes files, and answers the launcher's start as told."""

    def __init__(self, status, output, errors="", *, is_full=False):
        self.files = {}
        self.timeout = 0.0
        self._answer = (status, output, errors)
        self._is_full = is_full

    def run(self, instance_id, argv, **options):
        assert (options["user"], options["login_shell"]) == ("ubuntu", True)
        if "copy" in argv:
            name = argv[2].split("rehearsal/")[-1].split('"')[0]
            self.files[name] = base64.b64decode(argv[-1])
            return subprocess.CompletedProcess(list(argv), int(self._is_full), "", "No space left on device\n")
        assert argv[:2] == ["deeplearning", "start-job"]
        assert JobDefinition.from_json(base64.b64decode(argv[2]).decode()) == JOB
        self.timeout = options["timeout"]
        return subprocess.CompletedProcess(list(argv), *self._answer)


@pytest.fixture
def digits(tmp_path):
    path = tmp_path / "digits.csv.gz"
    path.write_bytes(b"\x1f\x8b")
    return path


@pytest.mark.parametrize("prefix", ["", "[1,0]<stdout>:", "[0]<stdout>: ", "Sat Nov 21 09:00:00 2026[0]<stdout>:"])
def test_the_result_is_found_behind_a_launchers_prefix(prefix):
    master = Master(0, f"epoch 1\n{prefix}{json.dumps(RESULT)}\n[1,1]<stdout>:bye {{}}\n")
    training = train("ec2", master, 42.0)
    assert (training.launcher, training.ranks, training.accuracy) == ("horovod", 2, 0.97)
    assert training.hosts == ["ip-1", "ip-2"]
    assert master.timeout == 42.0


def test_the_source_of_the_job_is_uploaded_where_the_submission_document_says(digits):
    with empty_aws():
        clients = partial(boto3.client, region_name="us-east-1")
        clients("s3").create_bucket(Bucket="assets")
        settings = SubmissionSettings("ec2", "c", "ubuntu", "assets", "deeplearning-jobs/c/")
        name, value = submission_parameter("c"), json.dumps(settings.to_document())
        clients("ssm").put_parameter(Name=name, Value=value, Type="String")
        files = list_sources(read_job(), lambda: digits)
        job = upload_job(clients, read_submission(clients, "c"), read_job(), files)
        assert job.source is not None
        assert job.source.key.startswith("deeplearning-jobs/c/")
        content = clients("s3").get_object(Bucket="assets", Key=job.source.key)["Body"].read()
    assert hashlib.sha256(content).hexdigest() == job.source.sha256
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert archive.getnames() == [PROGRAM, DATA_MODULE, "digits.csv.gz"]


def test_examples_for_nodes_are_all_but_the_apps_for_the_users_own_machine():
    examples = list_examples()
    assert {"run_horovod.sh", "train_digits.py", "mxnet/launch.py", "tensorflow/generate_trainer.py"} <= set(examples)
    assert not [name for name in examples if "app/" in name]


class Emr:
    """Steps of EMR, of which one has ended after it was read once."""

    def __init__(self, state):
        self.active, self.state = [{"Id": "s-1"}], state
        self.steps = []
        self.cluster = ("WAITING", "")

    def add_job_flow_steps(self, **parameters):
        self.steps.append(parameters)
        return {"StepIds": ["s-1"]}

    def list_steps(self, **parameters):
        assert parameters == {"ClusterId": "j-1", "StepStates": ["PENDING", "RUNNING"]}
        return {"Steps": self.active and [self.active.pop()]}

    def describe_cluster(self, **parameters):
        assert (parameters, self.active) == ({"ClusterId": "j-1"}, [])
        return {"Cluster": {"Status": {"State": self.cluster[0], "StateChangeReason": {"Message": self.cluster[1]}}}}

    def describe_step(self, **parameters):
        assert (parameters, self.active) == ({"ClusterId": "j-1", "StepId": "s-1"}, [])
        return {"Step": {"Status": {"State": self.state}}}


def test_a_cluster_that_its_first_step_ends_is_reported_with_emrs_reason():
    emr = Emr("COMPLETED")
    CLUSTER_PLATFORMS["emr"].await_members(lambda _: emr, SUBMISSION, 42.0)
    emr.cluster = ("TERMINATED_WITH_ERRORS", "Shut down as step failed")
    with pytest.raises(PromiseError, match="j-1 must wait for jobs, it is TERMINATED_WITH_ERRORS: Shut down as step f"):
        CLUSTER_PLATFORMS["emr"].await_members(lambda _: emr, SUBMISSION, 42.0)


class Primary:
    """A node with the logs of a step."""

    def run(self, instance_id, argv, **_):
        texts = {
            "/mnt/var/log/hadoop/steps/s-1/stdout": json.dumps(RESULT),
            "/mnt/var/log/hadoop/steps/s-1/stderr": "rank 1 is lost\n",
        }
        return subprocess.CompletedProcess(list(argv), 0, texts[argv[1]], "")


def test_on_emr_the_job_is_a_step_whose_failure_has_its_last_lines():
    emr = Emr("COMPLETED")
    training = train("emr", Primary(), 42.0, emr=emr)
    assert (training.ranks, training.accuracy) == (2, 0.97)
    assert emr.steps == [{"JobFlowId": "j-1", "Steps": [make_emr_step(JOB)]}]
    with pytest.raises(PromiseError, match=r"the job's step s-1 is FAILED: .*rank 1 is lost"):
        train("emr", Primary(), 42.0, emr=Emr("FAILED"))


def test_a_job_that_prints_no_result_is_not_taken_for_trained():
    with pytest.raises(PromiseError, match=r"the job printed no result: epoch 1 \| bye"):
        train("ec2", Master(0, "epoch 1\n\nbye\n"), 1.0)


def test_a_result_that_was_cut_off_is_not_taken_for_trained():
    with pytest.raises(PromiseError, match="the job printed no result"):
        train("ec2", Master(0, json.dumps(RESULT)[:-20]), 1.0)


def test_a_result_that_lacks_a_figure_is_not_taken_for_trained():
    with pytest.raises(PromiseError, match=r"training's result must have framework, ranks, dataset"):
        train("ec2", Master(0, '{"hosts": ["a"], "accuracy": 0.97}'), 1.0)


def test_a_job_that_fails_ends_with_the_last_lines_it_wrote():
    noise = "".join(f"line {number}\n" for number in range(30))
    with pytest.raises(PromiseError) as caught:
        train("ec2", Master(3, noise, "Traceback\nRuntimeError: no route to host\n"), 1.0)
    message = str(caught.value)
    assert message.startswith("the job ended with status 3: line 20 | ")
    assert message.endswith("RuntimeError: no route to host")


def test_a_full_file_system_is_reported(digits):
    with pytest.raises(PromiseError, match=f"{PROGRAM} could not be copied to the shared file system: No space"):
        copy_examples(Master(0, "", is_full=True), "i-1", "ubuntu", [PROGRAM], digits)


@pytest.fixture
def parameters():
    """Clients of an account that has no submission document, but another parameter below its path."""
    with empty_aws():
        boto3.client("ssm").put_parameter(Name="/deeplearning/other/note", Value="mine", Type="String")
        yield boto3.client


def test_a_missing_submission_document_is_named(parameters):
    with pytest.raises(PromiseError, match="must have one submission document below /deeplearning, got 0"):
        find_submission(parameters)
    with pytest.raises(PromiseError, match="must have the submission document /deeplearning/c/submission"):
        read_submission(parameters, "c")


def test_the_submission_document_is_found_beside_other_parameters(parameters):
    value = json.dumps(SUBMISSION.to_document())
    parameters("ssm").put_parameter(Name=submission_parameter("c"), Value=value, Type="String")
    assert find_submission(parameters) == read_submission(parameters, "c") == SUBMISSION
