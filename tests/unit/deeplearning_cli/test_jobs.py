"""
`submit`, `jobs`, `logs --job`, `stop` and `plan`, up to the programs of a master on this machine.

AWS is moto. `aws ssm start-session` is a stand-in that behaves as the plugin and sudo do: it prints lines of its own,
ends lines with CR LF, and passes the words through `sudo --login`, which escapes all but letters, digits, `_`, `-` and
`$` (sudo 1.9.13, plugins/sudoers; sudo(8), "-i"). It returns 0 whatever the command returns.
"""

import json
import subprocess
from dataclasses import replace
from datetime import datetime, timezone

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from deeplearning_cli.main import main
from deeplearning_contract.jobs.submission import SubmissionSettings, submission_parameter
from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit import job_lab as jobs
from tests.unit.deeplearning_provision.data_lab import REGION, serve_s3

compiled = jobs.compiled
job_lab = jobs.job_lab
CLUSTER, BUCKET = "training-c8bf7dbc", "assets"
SESSION = """
import json, os, re, shlex, subprocess, sys
(text,) = json.loads(sys.argv[-1])["command"]
print("\\nStarting session with SessionId: team-0123\\r", flush=True)
words = shlex.split(text)
assert words[:4] == ["sudo", "--login", "--user=ubuntu", "--"], words
line = " ".join(re.sub(r"([^A-Za-z0-9_$-])", r"\\\\\\1", word) for word in words[4:])
line = line.replace("/usr/local/bin/deeplearning".replace("/", "\\\\/"), os.environ["NODE_COMMAND"])
subprocess.run(["sh", "-c", line])
print("\\r\\n\\r\\nExiting session with sessionId: team-0123.\\r\\n", flush=True)
"""


@pytest.fixture
def cluster(job_lab, monkeypatch, tmp_path_factory):
    """Return a call of the command line on a cluster whose master is the lab's."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "session.py").write_text(SESSION)
    for name in ("aws", "session-manager-plugin"):
        (folder / name).write_text(f'#!/bin/sh\nexec /usr/bin/python3 "{folder}/session.py" "$@"\n')
        (folder / name).chmod(0o755)
    for name, value in {**job_lab._environment({}), "PATH": f"{folder}:{job_lab._environment({})['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NODE_COMMAND", str(job_lab.folder / job_lab.addresses[0] / "deeplearning"))
    monkeypatch.chdir(folder)
    with serve_s3(monkeypatch):
        monkeypatch.setenv("AWS_REGION", REGION)
        boto3.client("s3", REGION).create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        add_document(CLUSTER)
        add_master(CLUSTER)
        yield folder


def add_document(cluster, **more):
    settings = SubmissionSettings("ec2", cluster, "ubuntu", BUCKET, f"deeplearning-jobs/{cluster}/")
    settings = replace(settings, **more)
    value = json.dumps(settings.to_document())
    boto3.client("ssm", REGION).put_parameter(Name=submission_parameter(cluster), Value=value, Type="String")


def add_master(cluster):
    return add_instance({"deeplearning:cluster": cluster, "deeplearning:role": "master"})


def add_instance(tags):
    answer = boto3.client("ec2", REGION).run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
        ],
    )
    return answer["Instances"][0]["InstanceId"]


def write_job(folder, program="echo epoch 1; echo $COLOUR", **more):
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "train.sh").write_text(f"{program}\n")
    keys = {"name": "digits", "program": ["sh", "train.sh"], "source": "code", **more}
    (folder / "job.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))


def test_a_submitted_job_is_followed_to_its_end_and_its_status_returned(cluster, job_lab, capsys):
    write_job(cluster)
    assert main(["submit", "job.toml", "--env", "COLOUR=dark $HOME; red"]) == 0
    done = capsys.readouterr()
    assert done.out.splitlines()[-2:] == ["epoch 1", "dark $HOME; red"]
    assert done.err.splitlines()[-1] == "digits/1 succeeded"
    assert job_lab.status("digits/1")["state"] == "succeeded"
    listed = boto3.client("s3", REGION).list_objects_v2(Bucket=BUCKET)["Contents"]
    assert [entry["Key"].rpartition("/")[0] for entry in listed] == [f"deeplearning-jobs/{CLUSTER}"]


def test_a_plan_starts_nothing_and_reports_what_is_left_out_of_the_source(cluster, job_lab, capsys):
    write_job(cluster)
    (cluster / "code/env/conda-meta").mkdir(parents=True)
    (cluster / "code/env/python").write_text("x" * 2_000_000)
    assert main(["plan", "job.toml", "--members", "1"]) == 0
    done = capsys.readouterr()
    assert done.out.startswith("horovod: 1 rank")
    assert "left out of the source: env (2.0 MB)" in done.err.splitlines()
    assert job_lab.status("digits/1") is None
    (cluster / "code/coco").symlink_to("/data/coco")
    (cluster / "code/train.sh").write_text("another")
    assert main(["submit", "job.toml"]) == 2
    assert "links in source must lead to what is packed with them, got coco -> /data/coco; " in capsys.readouterr().err
    assert len(boto3.client("s3", REGION).list_objects_v2(Bucket=BUCKET)["Contents"]) == 1, "it is not uploaded"


def test_a_failed_job_has_the_status_of_its_rank(cluster, capsys):
    write_job(cluster, "echo last words; exit 7", retries=1)
    assert main(["submit", "job.toml"]) == 7
    done = capsys.readouterr()
    assert done.out.splitlines().count("last words") >= 1
    assert done.err.splitlines()[-1].startswith("digits/2 failed: ")


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (r"printf '\r  5%%|#   |\r100%%|####|'", "100%|####|"),
        (
            r"printf ' 50%%|##| a long bar before the end of the session\r'",
            " 50%|##| a long bar before the end of the session",
        ),
    ],
)
def test_a_job_that_ends_in_its_progress_bar_shows_the_last_of_it_and_has_its_status(cluster, capsys, program, line):
    write_job(cluster, f"{program}; exit 3")
    assert main(["submit", "job.toml"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert main(["jobs", "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["last_line"] == line.strip()


def test_a_detached_job_is_listed_shown_and_stopped(cluster, capsys):
    write_job(cluster, "echo epoch 1; sleep 1000")
    assert main(["submit", "job.toml", "--detach"]) == 0
    capsys.readouterr()

    def find():
        assert main(["jobs", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["platform"], document["cluster"]) == ("ec2", CLUSTER)
        return [(job["run"], job["state"], job["last_line"]) for job in document["jobs"]]

    wait_until(lambda: find() == [("digits/1", "running", "epoch 1")])
    assert main(["logs", "--job", "digits"]) == 0
    assert capsys.readouterr().out == "epoch 1\n"
    assert main(["stop", "digits"]) == 0
    assert capsys.readouterr().out == "digits/1 is stopped\n"
    assert main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["digits/1", "ec2", "stopped", "2"]


def test_a_fresh_job_and_only_its_first_run_starts_without_the_earlier_checkpoints(cluster, job_lab):
    program = 'touch "$DEEPLEARNING_CHECKPOINT_PATH/%s"; exit %s'
    write_job(cluster, program % ("old", 0), members=1)
    assert main(["submit", "job.toml"]) == 0
    write_job(cluster, program % ("new", 3), members=1, retries=1)
    assert main(["submit", "job.toml", "--fresh"]) == 3
    assert [job_lab.status(f"digits/{run}")["resumed_from"].rpartition("/")[2] for run in (2, 3)] == ["", "new"]


def test_submit_plan_and_stop_print_one_object_for_programs(cluster, capsys):
    write_job(cluster, "echo epoch 1; exit 3")
    assert main(["plan", "job.toml", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["platform"], document["cluster"], document["plan"]["launcher"]) == ("ec2", CLUSTER, "horovod")
    assert main(["submit", "job.toml", "--json"]) == 3
    done = capsys.readouterr()
    assert "epoch 1" in done.err.splitlines()
    job = json.loads(done.out)["job"]
    assert (job["run"], job["state"], job["status"]) == ("digits/1", "failed", 3)
    write_job(cluster, "sleep 1000")
    assert main(["submit", "job.toml", "--json", "--detach"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["state"] == "running"
    assert main(["stop", "digits", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "platform": "ec2",
        "cluster": CLUSTER,
        "job": "digits",
        "status": 0,
        "lines": ["digits/2 is stopped"],
    }


@pytest.mark.parametrize("command", ["submit", "plan"])
def test_a_refusal_of_the_master_is_an_error_for_programs(cluster, capsys, command):
    write_job(cluster, data=["coco"])
    assert main([command, "job.toml", "--json"]) == 2
    done = capsys.readouterr()
    error = json.loads(done.out)["error"]
    assert error["exit_status"] == 2
    assert "data must be declared by the cluster, got 'coco'; it declares none" in error["message"]


def test_several_clusters_need_a_name_and_other_parameters_are_no_clusters(cluster, capsys):
    add_document("another-0123abcd")
    for name, value in (("token", "secret"), ("later-0123abcd/submission", '{"platform": "later"}')):
        boto3.client("ssm", REGION).put_parameter(Name=f"/deeplearning/{name}", Value=value, Type="String")
    assert main(["jobs"]) == 2
    assert "stack must be named, got none and 3 clusters; there are: another, later, training" in (
        capsys.readouterr().err
    )
    assert main(["jobs", "training"]) == 0
    assert main(["jobs", "third"]) == 2
    assert f"stack must be one that takes jobs in {REGION}, got third; there are: another" in capsys.readouterr().err
    assert main(["jobs", "later"]) == 2
    assert "parameter /deeplearning/later-0123abcd/submission cannot be read: " in capsys.readouterr().err


def test_a_cluster_without_a_running_master_is_named_with_the_remedy(cluster, capsys):
    ec2 = boto3.client("ec2", REGION)
    (reservation,) = ec2.describe_instances()["Reservations"]
    ec2.terminate_instances(InstanceIds=[reservation["Instances"][0]["InstanceId"]])
    assert main(["jobs"]) == 2
    assert f"cluster {CLUSTER} must have one running master, got none; see: deeplearning-cdk status" in (
        capsys.readouterr().err
    )


class EmrSteps:
    """Steps of EMR: one at a time, on the lab's master, with the log where EMR keeps it."""

    def __init__(self, job_lab):
        self.lab = job_lab
        self.root = job_lab.folder / job_lab.addresses[0]
        self.steps = []
        self.processes = {}
        self.is_short = False  # Whether a step has ended by the time that its log is read

    def answer(self, operation, arguments):
        self._advance()
        return getattr(self, f"_{operation}")(**arguments)

    def _AddJobFlowSteps(self, JobFlowId, Steps):  # noqa: N802, N803 - the names of EMR's API
        (step,) = Steps
        name, timeline = f"s-{len(self.steps) + 1}", {"CreationDateTime": datetime.now(timezone.utc)}
        self.steps.append({"Id": name, **step, "Status": {"State": "PENDING", "Timeline": timeline}})
        self._advance()
        return {"StepIds": [name]}

    def _ListSteps(self, ClusterId, StepStates, Marker="0"):  # noqa: N802, N803
        found = [step for step in reversed(self.steps) if step["Status"]["State"] in StepStates]
        end = int(Marker) + 50
        return {"Steps": found[int(Marker) : end], **({"Marker": str(end)} if len(found) > end else {})}

    def _DescribeStep(self, ClusterId, StepId):  # noqa: N802, N803
        return {"Step": next(step for step in self.steps if step["Id"] == StepId)}

    def _CancelSteps(self, ClusterId, StepIds):  # noqa: N802, N803
        for step in self.steps:
            if step["Id"] in StepIds:
                step["Status"]["State"] = "CANCELLED"
        return {}

    def _advance(self):
        for name, process in self.processes.items():
            if process.poll() is not None:
                self._DescribeStep("", name)["Step"]["Status"]["State"] = "FAILED" if process.poll() else "COMPLETED"
        if all(process.poll() is not None for process in self.processes.values()):
            for step in [step for step in self.steps if step["Status"]["State"] == "PENDING"][:1]:
                step["Status"]["State"] = "RUNNING"
                self.processes[step["Id"]] = self._start(step)

    def _start(self, step):
        folder = self.root / "mnt/var/log/hadoop/steps" / step["Id"]
        folder.mkdir(parents=True)
        command = [self.root / "deeplearning", *step["HadoopJarStep"]["Args"][5:]]
        with (folder / "stderr").open("wb") as errors, (folder / "stdout").open("wb") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        self.lab.started.append(process)
        if self.is_short:
            process.wait(GENEROUS_SECONDS)
        return process


@pytest.fixture
def emr(cluster, job_lab, monkeypatch):
    """Return the steps of a cluster on EMR named hadoop, beside which the one that it replaces still runs."""
    steps, call = EmrSteps(job_lab), BaseClient._make_api_call

    def answer(client, name, arguments):
        if client.meta.service_model.service_name == "emr":
            return steps.answer(name, arguments)
        return call(client, name, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    monkeypatch.setattr("deeplearning_cli.jobs.emr.POLL_SECONDS", 0.1)
    add_document("hadoop-0123abcd", platform="emr", cluster_id="j-NEW")
    for cluster_id in ("j-NEW", "j-OLD"):
        for role in ("MASTER", "CORE"):
            instance_id = add_instance({"deeplearning:cluster": "hadoop-0123abcd"})
            own = {"aws:elasticmapreduce:job-flow-id": cluster_id, "aws:elasticmapreduce:instance-group-role": role}
            ec2_backends[DEFAULT_ACCOUNT_ID][REGION].tags[instance_id].update(own)  # callers may not set tags of AWS
    return steps


def test_on_emr_a_job_is_a_step_and_prints_what_it_prints_on_ec2(cluster, emr, capsys):
    write_job(cluster)
    emr.is_short = True
    assert main(["submit", "job.toml", "hadoop", "--env", "COLOUR=red"]) == 0
    on_emr = capsys.readouterr()
    (step,) = emr.steps
    assert (step["Name"], step["ActionOnFailure"]) == ("deeplearning job digits", "CONTINUE")
    assert step["HadoopJarStep"]["Args"][:2] == ["bash", "--login"]
    assert step["HadoopJarStep"]["Args"][4:-1] == ["/usr/local/bin/deeplearning", "start-job", "--end-with-parent"]
    assert main(["submit", "job.toml", "training", "--env", "COLOUR=red"]) == 0
    on_ec2 = capsys.readouterr()
    # Output and errors of a step are two files: nothing tells which of two lines came first.
    assert sorted(_shorten(line) for line in on_emr.out.splitlines() if not line.endswith("] started")) == sorted(
        _shorten(line) for line in on_ec2.out.splitlines() if "] detached; follow it: " not in line
    )
    assert [line.replace("digits/1", "digits/2") for line in on_emr.err.splitlines()] == on_ec2.err.splitlines()


def _shorten(line):
    return line.partition("] ")[2].replace("digits/runs/1", "digits/runs/2") if line.startswith("[") else line


def test_on_emr_a_refusal_of_the_primary_is_shown_with_status_2(cluster, emr, capsys):
    write_job(cluster, data=["coco"])
    assert main(["submit", "job.toml", "hadoop"]) == 2
    done = capsys.readouterr()
    assert "data must be declared by the cluster, got 'coco'; it declares none" in done.out
    assert done.err.splitlines()[-1] == "step s-1 is FAILED"


def test_on_emr_a_second_job_waits_and_can_be_stopped_before_its_start(cluster, emr, job_lab, capsys):
    write_job(cluster, "sleep 1000")
    assert main(["submit", "job.toml", "hadoop", "--detach"]) == 0
    assert main(["submit", "job.toml", "hadoop", "--detach", "--name", "second"]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "step s-2 waits for deeplearning job digits"
    assert main(["jobs", "hadoop", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["platform"], document["cluster"]) == ("emr", "hadoop-0123abcd")
    assert [(job["run"], job["state"]) for job in document["jobs"]] == [("digits/1", "running"), ("second", "queued")]
    assert main(["jobs", "hadoop"]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[:4] == ["second", "emr", "queued", "0"]
    assert main(["stop", "second", "hadoop"]) == 0
    assert capsys.readouterr().out == "second is cancelled before its start (s-2)\n"
    assert main(["stop", "digits", "hadoop"]) == 0
    assert job_lab.status("digits/1")["state"] == "stopped"
    wait_until(lambda: emr.processes["s-1"].poll() is not None)
    assert emr.answer("ListSteps", {"ClusterId": "", "StepStates": ["PENDING", "RUNNING"]}) == {"Steps": []}


def test_on_emr_a_job_that_is_followed_waits_for_the_one_before_it(cluster, emr, capsys):
    write_job(cluster, f"until [ -e {cluster}/go ]; do sleep 0.1; done")
    assert main(["submit", "job.toml", "hadoop", "--detach"]) == 0
    write_job(cluster, "echo second; exit 3", name="second")
    describe = emr._DescribeStep

    def end_first(ClusterId, StepId):  # noqa: N803
        if StepId == "s-2":
            (cluster / "go").touch()
        return describe(ClusterId, StepId)

    emr._DescribeStep = end_first
    assert main(["submit", "job.toml", "hadoop"]) == 3
    done = capsys.readouterr()
    assert "step s-2 waits for deeplearning job digits" in done.err.splitlines()
    assert "second" in done.out.splitlines()


def test_on_emr_the_oldest_of_many_jobs_that_wait_is_listed_and_can_be_stopped(cluster, emr, capsys):
    """EMR API Reference, ListSteps: at most 50 steps in a page, the newest first."""
    now = {"CreationDateTime": datetime.now(timezone.utc)}
    for number in range(1, 53):
        status = {"State": "RUNNING" if number == 1 else "PENDING", "Timeline": now}
        emr.steps.append({"Id": f"s-{number}", "Name": f"deeplearning job j{number}", "Status": status})
    emr.processes["s-1"] = subprocess.Popen(["sleep", "100"])
    emr.lab.started.append(emr.processes["s-1"])
    assert main(["stop", "j2", "hadoop"]) == 0
    assert capsys.readouterr().out == "j2 is cancelled before its start (s-2)\n"
    assert main(["jobs", "hadoop", "--json"]) == 0
    assert [job["run"] for job in json.loads(capsys.readouterr().out)["jobs"]] == [f"j{n}" for n in range(3, 53)]


@pytest.mark.parametrize("command", ["submit", "plan"])
@pytest.mark.parametrize("source", ["code", None])
def test_on_emr_a_job_that_is_too_long_for_a_step_is_refused_before_the_upload(cluster, emr, capsys, command, source):
    """EMR API Reference, HadoopJarStepConfig: an argument has at most 10,280 characters."""
    write_job(cluster)
    if source is None:
        path = cluster / "job.toml"
        path.write_text(path.read_text().replace('source = "code"\n', ""))
    variables = [f"--env=VARIABLE_{number:03}={'x' * 40}" for number in range(140)]
    assert main([command, "job.toml", "hadoop", *variables]) == 2
    said = capsys.readouterr().err
    assert "program and env must be at most 10,280 characters as an encoded argument of an EMR step, got 1" in said
    assert "put variables and arguments into a file of the source folder" in said
    assert emr.steps == []
    assert "Contents" not in boto3.client("s3", REGION).list_objects_v2(Bucket=BUCKET)


def test_a_session_that_ends_early_is_an_error_with_its_last_line(cluster, capsys):
    (cluster / "session.py").write_text('print("TargetNotConnected: i-1 is not connected.")')
    assert main(["jobs"]) == 2
    assert "ended before its command did: TargetNotConnected: i-1 is not connected." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("service", "stack", "right"),
    [
        ("ssm", "training", "the caller needs ssm:GetParametersByPath"),
        ("ec2", "training", "the caller needs ec2:DescribeInstances"),
        ("emr", "hadoop", "and ListSteps on it"),
    ],
)
@pytest.mark.usefixtures("emr")
def test_a_right_that_the_caller_lacks_is_named(monkeypatch, capsys, service, stack, right):
    call = BaseClient._make_api_call

    def refuse(client, name, arguments):
        if client.meta.service_model.service_name == service:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not authorized"}}, name)
        return call(client, name, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    assert main(["jobs", stack]) == 2
    message = capsys.readouterr().err
    assert right in message
    assert "the cluster's grant_submit grants" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "job.toml must be TOML: "),
        ('name = "x"\nprogram = ["a"]\nretrys = 1', "job.toml: key must be one of name, program, launcher"),
        ('program = ["a"]', "job.toml: name must be of type str, got None"),
        ('name = "x"\nprogram = "python3 train.py"', "job.toml: program must be of type list, got 'python3 train.py'"),
        ('name = "x"\nprogram = ["a"]\nmembers = 0', "job.toml: members must be from 1 to 1000, got 0"),
        ('name = "x"\nprogram = ["a"]\nsource = 3', "job.toml: source must be the path of a folder, got 3"),
        ('name = "x"\nprogram = ["a"]\n[env]\nA = 1', "job.toml: env.A must be of type str, got 1"),
    ],
)
def test_a_job_file_that_cannot_work_is_refused_before_any_call(tmp_path, monkeypatch, capsys, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.toml").write_text(text)
    assert main(["submit", "job.toml"]) == 2
    assert message in capsys.readouterr().err
