"""Jobs on EKS: `submit`, `jobs`, `logs --job`, `stop` and `plan` with an API server that is played."""

import json
from dataclasses import replace

import boto3
import pytest
import yaml
from botocore.stub import ANY, Stubber

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.jobs import kubernetes_jobs as module
from deeplearning_cli.main import main
from deeplearning_contract.jobs.kubernetes_job import QUEUE_LABEL, SIGNING_VARIABLE
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.unit.deeplearning_cli.kubernetes_server import UNSCHEDULABLE, ApiServer
from tests.unit.deeplearning_contract.test_kubernetes_job import KUBERNETES, SUBMISSION

REGION = "eu-west-1"
SESSION = boto3.session.Session("AKIDEXAMPLE", "secret", region_name=REGION)

DENIED = (
    'MountVolume.SetUp failed for volume "nfs-data" : rpc error: code = Internal desc = Could not mount '
    '"fs-0123456789abcdef0" at "/var/lib/kubelet": mount.nfs4: access denied by server'
)
NO_DRIVER = (
    'MountVolume.MountDevice failed for volume "nfs-data" : kubernetes.io/csi: attacher.MountDevice failed to create '
    "newCsiDriverClient: driver name efs.csi.aws.com not found in the list of registered CSI drivers"
)


class Account:
    """Parameter with the submission document, and a bucket for sources."""

    def __init__(self, submission):
        self.submission = submission
        self.sources = []
        self.copies = []

    def get_paginator(self, operation):
        assert operation == "get_parameters_by_path"
        return self

    def paginate(self, **_):
        value = json.dumps(self.submission.to_document())
        return [{"Parameters": [{"Name": "/deeplearning/Train-0123abcd/submission", "Value": value}]}]

    def put_object(self, **request):
        with Stubber(boto3.client("s3", REGION)) as stub:
            stub.add_response("put_object", {}, {**request, "Body": ANY})
            stub.client.put_object(**request)
        self.sources.append(request["Key"])

    def copy_object(self, **request):
        with Stubber(boto3.client("s3", REGION)) as stub:
            stub.add_response("copy_object", {}, request)
            stub.client.copy_object(**request)
        self.copies.append((request["CopySource"]["Key"], request["Key"]))


@pytest.fixture
def server(tmp_path):
    found = ApiServer(tmp_path)
    yield found
    found.close()


@pytest.fixture
def account(server, monkeypatch, tmp_path):
    """The account of a stack on EKS, and a job file in the current folder."""
    kubernetes = replace(KUBERNETES, endpoint=server.endpoint, authority=server.authority)
    found = Account(replace(SUBMISSION, kubernetes=kubernetes))
    clients = {"ssm": found, "s3": found, "sts": SESSION.client("sts")}
    access = CloudAccess(clients.__getitem__, REGION, None)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(module, "STOP_SECONDS", 0.0)
    for command in ("jobs.submit", "jobs.listing", "jobs.stop", "jobs.plan", "logs"):
        monkeypatch.setattr(f"deeplearning_cli.{command}.open_cloud", lambda _: access)
    monkeypatch.chdir(tmp_path)
    write_job()
    return found


def write_job(**more):
    keys = {"name": "train_digits", "program": ["python3", "train.py"], **more}
    with open("job.toml", "w") as file:  # noqa: PTH123 - relative to the current folder
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def list_methods(server, method):
    return [(plural, name) for sent, plural, name, *_ in server.requests if sent == method]


def test_a_submitted_job_is_followed_to_its_end(account, server, capsys):
    server.log = ["epoch 1", "epoch 2"]
    assert main(["submit", "job.toml"]) == 0
    done = capsys.readouterr()
    assert done.out.splitlines() == ["epoch 1", "epoch 2"]
    assert "Job train-digits is created" in done.err
    assert done.err.splitlines()[-1] == "train-digits succeeded"


def test_a_job_travels_with_its_source(account, server, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("print()")
    write_job(source="source")
    assert main(["submit", "job.toml", "--detach"]) == 0
    (variables,) = (each["spec"]["template"]["spec"]["containers"][0]["env"] for each in server.list("jobs"))
    (key,) = account.sources
    assert json.loads(variables[0]["value"])["source"]["key"] == key


def test_a_job_fetches_a_copy_of_the_programs_that_no_deployment_replaces(account, server):
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert main(["submit", "job.toml", "--dry-run", "-o", "yaml"]) == 0
    ((asset, copy),) = set(account.copies)
    assert len(account.copies) == 2
    (job,) = server.list("jobs")
    command = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert f" {copy} " in command
    assert asset == KUBERNETES.agent.key
    assert asset not in command


def test_the_secret_of_a_job_is_in_its_request_alone(account, server, capsys):
    assert main(["submit", "job.toml", "--detach"]) == 0
    (job,) = server.list("jobs")
    variables = job["spec"]["template"]["spec"]["containers"][0]["env"]
    (secret,) = (each["value"] for each in variables if each["name"] == "DEEPLEARNING_SECRET")
    assert len(secret) == 64
    assert json.dumps(job).count(secret) == 1
    main(["jobs", "--json"])
    main(["plan", "job.toml"])
    main(["submit", "job.toml", "--dry-run", "-o", "yaml"])
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err, "each submission has its own"
    assert "made-by-submit" in shown.out


def test_detach_returns_when_the_job_is_created(account, server, capsys):
    server.script = ["pending"]
    assert main(["submit", "job.toml", "--detach", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["platform"], shown["job"]["state"], shown["job"]["run"]) == ("eks", "queued", "train-digits")


def test_a_failed_job_has_the_exit_code_and_the_words_of_kubernetes(account, server, capsys):
    server.script = ["running", "failed"]
    assert main(["submit", "job.toml"]) == 7
    assert "PodFailurePolicy: Container member for pod" in capsys.readouterr().err.splitlines()[-1]


def test_a_job_that_cannot_be_scheduled_ends_with_the_schedulers_words(account, server, capsys, monkeypatch):
    monkeypatch.setattr(module, "PENDING_SECONDS", 0.0)
    server.script = ["pending"]
    assert main(["submit", "job.toml"]) == 2
    done = capsys.readouterr()
    assert UNSCHEDULABLE in done.out
    assert server.get("jobs", "train-digits")["spec"]["suspend"] is True
    assert server.list("pods") == []
    main(["jobs", "--json"])
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["state"], job["status"]) == ("stopped", None)
    assert UNSCHEDULABLE in job["cause"]


@pytest.mark.parametrize("message", [DENIED, NO_DRIVER])
def test_a_volume_that_cannot_be_mounted_is_in_the_kubelets_words(account, server, capsys, monkeypatch, message):
    monkeypatch.setattr(module, "PENDING_SECONDS", 0.0)
    server.script = ["mounting"]
    server.steps["mounting"] = {"waiting": {"reason": "ContainerCreating"}}
    server.warnings = [("FailedMount", message)]
    assert main(["submit", "job.toml"]) == 2
    assert f"FailedMount: {message}" in capsys.readouterr().out


def test_an_image_that_cannot_be_pulled_is_named(account, server, capsys, monkeypatch):
    monkeypatch.setattr(module, "PENDING_SECONDS", 0.0)
    message = 'Back-off pulling image "absent:1"'
    server.script = ["pulling"]
    server.steps["pulling"] = {"waiting": {"reason": "ImagePullBackOff", "message": message}}
    server.warnings = [("FailedMount", "an older cause")]
    assert main(["submit", "job.toml"]) == 2
    assert f"train-digits-0-x7k2q: ImagePullBackOff: {message}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("events", "reason", "is_ended"),
    [
        ([("FailedScheduling", "no node yet"), ("Pulling", "Pulling image")], "ContainerCreating", False),
        ([("Pulling", "Pulling image"), ("Pulled", "Successfully pulled")], "ContainerCreating", True),
        ([("Pulling", "Pulling image")], "ErrImagePull", True),
        ([("FailedMount", "denied")], "ContainerCreating", True),
    ],
)
@pytest.mark.usefixtures("account")
def test_a_pull_that_goes_on_takes_nothing_of_the_time_to_start(server, monkeypatch, events, reason, is_ended):
    """An image of 30 GB takes longer than the wait for pods that cannot start."""
    now = iter(range(0, 100_000, 600))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    server.script = ["pulling"] * 5 + ["running", "succeeded"]
    server.steps["pulling"] = {"waiting": {"reason": reason, "message": ""}}
    server.warnings = events
    assert (main(["submit", "job.toml"]) == 2) is is_ended


def test_a_namespace_without_quota_is_in_the_controllers_words(account, server, capsys, monkeypatch):
    monkeypatch.setattr(module, "PENDING_SECONDS", 0.0)
    server.script = ["created"]
    server.warnings = [("FailedCreate", 'Error creating: pods "train-digits-0-" is forbidden: exceeded quota: gpus')]
    assert main(["submit", "job.toml"]) == 2
    assert "train-digits: FailedCreate: Error creating" in capsys.readouterr().out


def test_a_second_job_of_a_running_jobs_name_is_refused(account, server, capsys):
    server.script = ["running"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert main(["submit", "job.toml", "--detach"]) == 2
    assert "which is running; wait for it, or end it: deeplearning-cdk stop train_digits" in capsys.readouterr().out


def test_a_job_is_refused_while_another_has_the_members(account, server, capsys):
    server.script = ["running"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    assert main(["jobs"]) == 0
    write_job(name="second")
    assert main(["submit", "job.toml", "--detach"]) == 2
    assert "job second must have 2 free members, got those of train_digits, which has 2 of 2" in capsys.readouterr().out
    assert server.get("jobs", "second") is None


def test_an_ended_job_has_no_members(account, server):
    assert main(["submit", "job.toml"]) == 0
    write_job(name="second")
    assert main(["submit", "job.toml"]) == 0


def test_a_job_in_a_queue_waits_for_others(account, server, capsys):
    server.script = ["running"]
    assert main(["submit", "job.toml", "--detach"]) == 0
    write_job(name="second")
    assert main(["submit", "job.toml", "--detach", "--queue", "team"]) == 0
    assert "Job second is created, and waits in the queue team" in capsys.readouterr().err
    assert server.get("jobs", "second")["metadata"]["labels"][QUEUE_LABEL] == "team"
    main(["jobs", "--json"])
    found = {job["name"]: (job["state"], job["last_line"]) for job in json.loads(capsys.readouterr().out)["jobs"]}
    assert found["second"] == ("queued", "waits in the queue team")


def test_a_stopped_job_leaves_its_queue(account, server, capsys):
    assert main(["submit", "job.toml", "--detach", "--queue", "team"]) == 0
    assert main(["stop", "train_digits"]) == 0
    job = server.get("jobs", "train-digits")
    assert QUEUE_LABEL not in job["metadata"]["labels"]
    assert capsys.readouterr().out.splitlines() == ["train-digits is stopping", "train-digits stopped"]


def test_an_ended_job_is_replaced_by_its_next_run(account, server):
    assert main(["submit", "job.toml"]) == 0
    assert main(["submit", "job.toml", "--fresh"]) == 0
    assert list_methods(server, "DELETE") == [("jobs", "train-digits")]
    (variables,) = (each["spec"]["template"]["spec"]["containers"][0]["env"] for each in server.list("jobs"))
    assert json.loads(variables[0]["value"])["fresh"] is True


def test_a_job_is_not_taken_for_another_whose_job_is_named_alike(account, server, capsys):
    server.script = ["running", "succeeded"]
    assert main(["submit", "job.toml"]) == 0
    assert main(["stop", "train-digits"]) == 2
    error = "job train-digits must exist, got none; its Job is that of train_digits, so write that"
    assert error in capsys.readouterr().err
    write_job(name="train-digits")
    assert main(["submit", "job.toml"]) == 2
    assert "whose Job train-digits is that of train_digits; choose another" in capsys.readouterr().out
    assert list_methods(server, "DELETE") == []


def test_logs_show_the_first_pod_and_refuse_other_ranks(account, server, capsys):
    server.log = [f"line {number}" for number in range(50)]
    main(["submit", "job.toml"])
    capsys.readouterr()
    assert main(["logs", "--job", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == server.log[-40:]
    assert main(["logs", "--job", "train_digits", "--follow"]) == 0
    assert capsys.readouterr().out.splitlines() == server.log
    assert main(["logs", "--job", "train_digits", "--rank", "3"]) == 2
    assert "in jobs/train_digits/runs" in capsys.readouterr().err
    assert main(["logs", "--job", "nothing"]) == 2


def test_a_log_has_each_line_once_when_its_connection_ends_and_its_pod_is_replaced(account, server, capsys):
    server.script = ["running", "running", "running", "replaced", "running", "succeeded"]
    server.log = ["epoch 1", "epoch 2\repoch 2, again"]
    assert main(["submit", "job.toml"]) == 0
    first = ["epoch 1", "epoch 2", "epoch 2, again"]
    assert capsys.readouterr().out.splitlines() == [*first, *first]


def test_a_token_that_expires_while_a_job_is_followed_is_renewed(account, server, capsys):
    server.script = ["running", "running", "expired", "succeeded"]
    server.log = ["epoch 1"]
    assert main(["submit", "job.toml"]) == 0
    assert capsys.readouterr().out.splitlines() == ["epoch 1"]
    assert server.expired == 0


def test_a_log_whose_pod_is_gone_is_on_the_shared_file_system(account, server, capsys):
    server.script = ["running"]
    main(["submit", "job.toml", "--detach"])
    main(["stop", "train_digits"])
    assert main(["logs", "--job", "train_digits"]) == 2
    assert "its log is on the shared file system, in jobs/train_digits/runs" in capsys.readouterr().err


def test_stop_waits_for_the_end_and_says_when_there_is_nothing_to_stop(account, server, capsys):
    server.script = ["running"]
    main(["submit", "job.toml", "--detach"])
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == ["train-digits is stopping", "train-digits stopped"]
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out == "train-digits has ended: stopped\n"
    assert main(["stop", "nothing"]) == 2


def test_a_plan_shows_ranks_and_job_asks_the_server_and_creates_nothing(account, server, capsys):
    write_job(gpus_per_member=2)
    assert main(["plan", "job.toml"]) == 0
    shown = capsys.readouterr().out
    assert "4 ranks = 2 hosts x 2" in shown
    assert "completionMode: Indexed" in shown
    assert main(["plan", "job.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["ranks"], plan["hosts"], plan["slots"]) == (4, 2, 2)
    assert server.list("jobs") == []
    assert [query["dryRun"] for method, _, _, query, _ in server.requests if method == "POST"] == ["All", "All"]


def test_a_plan_has_the_servers_refusal(account, server, capsys):
    server.refusals["POST", "jobs"] = (403, 'admission webhook "policy" denied the request: image is not signed')
    assert main(["plan", "job.toml"]) == 2
    assert "denied the request: image is not signed" in capsys.readouterr().err


def test_a_plan_says_that_a_job_would_be_refused_now(account, server, capsys):
    server.script = ["running"]
    main(["submit", "job.toml", "--detach"])
    assert main(["plan", "job.toml"]) == 1
    assert "must have ended before it starts again" in capsys.readouterr().err


def test_a_dry_run_prints_the_job_that_submit_creates(account, server, capsys):
    assert main(["submit", "job.toml", "--dry-run", "-o", "yaml"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert server.requests == []
    assert main(["submit", "job.toml", "--detach"]) == 0
    (created,) = (body for method, *_, body in server.requests if method == "POST")
    secrets = [take_secret(job) for job in (created, shown)]
    assert created == shown
    assert len(set(secrets)) == 2


def take_secret(job):
    """Remove the secret of a Job, which each has of its own, and return it."""
    (variable,) = (each for each in list_variables(job) if each["name"] == SIGNING_VARIABLE)
    return variable.pop("value")


def list_variables(job):
    return job["spec"]["template"]["spec"]["containers"][0]["env"]


def test_a_dry_run_and_a_queue_are_for_eks(account, server, capsys):
    account.submission = SubmissionSettings("ec2", "Train", "ubuntu", "assets", "deeplearning-jobs/Train/")
    for option in (["--dry-run"], ["--queue", "team"]):
        assert main(["submit", "job.toml", *option]) == 2
        assert f"{option[0]} must be left out on ec2; it is for stacks on EKS" in capsys.readouterr().err


def test_a_job_that_cannot_run_is_refused_before_its_upload(account, server, capsys):
    write_job(gpus_per_member=9)
    assert main(["submit", "job.toml"]) == 2
    assert "gpus_per_member must be at most 8 on this cluster's nodes, got 9" in capsys.readouterr().err
