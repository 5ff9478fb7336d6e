"""Jobs on EKS are Jobs of Kubernetes: the commands for jobs, and kubectl, against a kept rehearsal."""

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from cdk_rehearsal.run.lab_record import LabRecord
from deeplearning_contract.jobs.kubernetes_job import SIGNING_VARIABLE
from deeplearning_contract.names import AGENT_DIRECTORY
from tests.real_time import GENEROUS_SECONDS
from tests.rehearsal.kept_rehearsal import (
    COMMAND,
    ENDLESS_EPOCHS,
    check_failing_job,
    check_greedy_job,
    keep_rehearsal,
    read_result,
)

MANAGED = "app.kubernetes.io/managed-by=deeplearning-cdk"
NAME = "train_digits"
AS_YAML = ("--output", "yaml")
KUBECTL = str(Path(sys.executable).with_name("kubectl"))
CONFIGURE = """
import argparse, json, sys
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.kubernetes.token import make_token

access = open_cloud(argparse.Namespace(rehearsal=sys.argv[1], profile=None, region=None, stack=None))
settings = find_platform(access).kubernetes
cluster = {"server": settings.endpoint, "certificate-authority-data": settings.authority}
context = {"cluster": "c", "user": "u", "namespace": settings.namespace}
print(json.dumps({
    "apiVersion": "v1", "kind": "Config", "current-context": "x",
    "clusters": [{"name": "c", "cluster": cluster}],
    "users": [{"name": "u", "user": {"token": make_token(access, settings)}}],
    "contexts": [{"name": "x", "context": context}],
}))
"""
"""Writes the file of `aws eks update-kubeconfig`, with the token of `aws eks get-token` in place of the command."""

IDENTITY = f"""
import json, os, socket, sys
import urllib.error, urllib.request
from pathlib import Path

sys.path.insert(0, {AGENT_DIRECTORY!r})
import boto3
from botocore.exceptions import ClientError

def ask(token):
    url = os.environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={{"Authorization": token}})) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

def reach(address):
    try:
        socket.create_connection((address, 80), 5).close()
    except OSError:
        return False
    return True

def act_as_node():
    try:
        boto3.client("ecr").get_authorization_token()
    except ClientError as error:
        return str(error).rpartition("is not authorized to perform: ")[2].partition(" ")[0]

print(json.dumps({{
    "arn": boto3.client("sts").get_caller_identity()["Arn"],
    "own token": ask(Path(os.environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"]).read_text()),
    "other token": ask("other"),
    "refused": act_as_node(),
    "metadata": reach("169.254.169.254"),
    "agent": reach("169.254.170.23"),
}}))
"""
"""A program that tells what a pod has of AWS; a node's role may pull images, and that of jobs may not."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Keep a rehearsal of a cluster with two members."""
    with keep_rehearsal("eks", tmp_path_factory.mktemp("eks")) as rehearsal:
        yield rehearsal


def test_the_report_shows_the_control_plane_with_its_nodes_and_the_volume(kept):
    plane, volume = json.loads((kept.out / "report.json").read_text())["kubernetes"]
    assert re.fullmatch(r"(stand-in of )?Kubernetes 1[.]35.*, 3 of 3 nodes are Ready", plane)
    assert volume == "nfs-data 85Gi RWX Retain Bound kubeflow-dist-train/nfs-external nfs-external"


def test_the_calls_of_pods_until_they_formed_are_counted(kept):
    cluster = json.loads((kept.out / "report.json").read_text())["cluster"]
    assert cluster["aws_calls_by_kind"]["pod"] >= cluster["formed"]


class Kubectl:
    """The program `kubectl` in the network of the lab."""

    def __init__(self, kept):
        words = [sys.executable, "-c", CONFIGURE, str(kept.out)]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        self.configuration = json.loads(text)
        self._file = kept.folder / "kubeconfig"
        self._file.write_text(text)
        self._network = f"--net=/proc/{LabRecord.read(kept.out).pid}/ns/net"

    def run(self, *words, stdin=""):
        """Return the output of a command."""
        cache = f"--cache-dir={self._file.parent / 'kubectl'}"
        command = ["nsenter", self._network, "--", KUBECTL, f"--kubeconfig={self._file}", cache, *words]
        answer = subprocess.run(
            command, input=stdin, check=False, capture_output=True, text=True, timeout=GENEROUS_SECONDS
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def list_versions(self):
        """Return each managed object and its version, which every change of the object changes."""
        kinds = "namespaces,serviceaccounts,persistentvolumes,persistentvolumeclaims,configmaps,daemonsets,jobs"
        found = json.loads(self.run("get", kinds, "--all-namespaces", "--selector", MANAGED, "--output", "json"))
        return {
            f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found["items"]
        }


def submit(kept, *words, statuses=(0,)):
    """Submit the job, whose name has a letter that no name of Kubernetes has."""
    return kept.run("submit", "job.toml", "--name", NAME, *words, statuses=statuses)


@contextmanager
def follow(kept):
    """Follow the log of the job beside other commands."""
    command = [COMMAND, "logs", "--rehearsal", str(kept.out), "--job", NAME, "--follow"]
    process = subprocess.Popen(command, cwd=kept.folder, stdout=subprocess.PIPE, text=True)
    limit = threading.Timer(GENEROUS_SECONDS, process.kill)
    limit.start()
    try:
        yield process
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def list_epochs(output):
    """Return the epochs of a log."""
    return [int(number) for number in re.findall(r"^epoch ([0-9]+)$", output, re.MULTILINE)]


@pytest.fixture
def kubectl(kept):
    """The program with a fresh token."""
    return Kubectl(kept)


def test_a_second_preparation_changes_nothing(kept, kubectl):
    first = kept.run("prepare-cluster")
    assert first.splitlines()[-1] == (
        "nfs-data  85Gi  RWX  Retain  Bound  kubeflow-dist-train/nfs-external  nfs-external"
    )
    versions = kubectl.list_versions()
    assert kept.run("prepare-cluster") == first
    assert kubectl.list_versions() == versions
    assert {"Namespace kubeflow-dist-train", "PersistentVolume nfs-data", "ConfigMap deeplearning"} <= versions.keys()


def test_a_job_is_planned_submitted_listed_followed_stopped_and_resumed(kept, kubectl):
    kept.write_job(ENDLESS_EPOCHS)
    before = kubectl.list_versions()
    assert "4 ranks = 2 hosts x 2" in kept.run("plan", "job.toml")
    assert kubectl.list_versions() == before
    submit(kept, "--detach")
    with follow(kept) as log:
        assert log.stdout
        assert any(map(list_epochs, log.stdout))
        jobs = json.loads(kept.run("jobs", "--json"))["jobs"]
        assert [(job["name"], job["run"], job["state"], job["members"]) for job in jobs] == [
            (NAME, "train-digits", "running", 2),
            ("contract", "contract", "stopped", 2),
        ]
        assert "which is running" in submit(kept, statuses=(2,))
        check_kubectl(kept, kubectl)
        assert kept.run("stop", NAME).splitlines()[-1] == "train-digits stopped"
        reached = list_epochs(log.stdout.read())[-1]
        assert log.wait() == 0
    assert kept.find_job(NAME)["state"] == "stopped"
    kept.write_job(reached + 20)
    check_end(kept, reached)


def check_end(kept, reached):
    """Submit the job again, which resumes behind the last epoch of its log, and follow it to its end."""
    epochs = reached + 20
    output = submit(kept)
    (folder,) = re.findall(rf"resumes from /efs/jobs/{NAME}/checkpoints/epochs-([0-9]+)", output)
    assert int(folder) >= reached
    result = {"ranks": 4, "epochs": epochs}
    assert (read_result(output), list_epochs(output)[-1]) == (result, epochs)
    job = kept.find_job(NAME)
    assert (job["state"], job["status"]) == ("succeeded", 0)
    assert read_result(kept.run("logs", "--job", NAME, "--follow")) == result


def check_kubectl(kept, kubectl):
    """Show the objects of the job, and apply it in vain."""
    names = kubectl.run("get", "jobs,pods,pv", "--selector", MANAGED, "--output", "name").splitlines()
    found = sorted(re.sub(r"-[a-z0-9]{5}$", "", name) for name in names)
    assert found == [
        *("job.batch/contract", "job.batch/train-digits", "persistentvolume/nfs-data"),
        *("pod/train-digits-0", "pod/train-digits-1"),
    ]
    table = kubectl.run("get", "jobs,pods,pv", "--selector", MANAGED)
    assert re.search(r"^job\.batch/train-digits +Running +0/2 ", table, re.MULTILINE), table
    assert re.search(r"^pod/train-digits-0-[a-z0-9]{5} +1/1 +Running ", table, re.MULTILINE), table
    assert re.search(r"^persistentvolume/nfs-data +85Gi +RWX +Retain +Bound ", table, re.MULTILINE), table
    before = kubectl.list_versions()
    # Each submission has a secret of its own; whoever keeps the printed Job can apply it again.
    text = replace_secret(submit(kept, "--dry-run", "-o", "yaml"), kubectl.run("get", "job", "train-digits", *AS_YAML))
    applied = kubectl.run("apply", "--server-side", "--dry-run=server", "--filename", "-", stdin=text)
    assert applied == "job.batch/train-digits serverside-applied (server dry run)\n"
    # The status of a running Job changes; that of its specification does not.
    assert kubectl.list_versions().keys() == before.keys()


def replace_secret(printed, live):
    """Return a printed Job with the secret of the live one."""
    pattern = rf"name: {SIGNING_VARIABLE}\n\s+value: (\S+)"
    (other,), (own,) = re.findall(pattern, printed), re.findall(pattern, live)
    assert other != own
    return printed.replace(other, own)


def test_a_job_that_fails_has_its_status_and_its_words(kept):
    assert "exit code 7" in check_failing_job(kept)["cause"]


def test_a_pod_has_the_role_of_jobs_and_nothing_of_its_node(kept):
    """The hop limit of 1 keeps the answers of the metadata service on the node (EC2 user guide, "Use IMDS")."""
    (kept.folder / "code").mkdir(exist_ok=True)
    (kept.folder / "code/identity.py").write_text(IDENTITY)
    (kept.folder / "job.toml").write_text(
        'name = "identity"\nlauncher = "tf-ps"\nsource = "code"\nmembers = 1\nprogram = ["python3", "identity.py"]\n'
    )
    (line,) = {line for line in kept.run("submit", "job.toml").splitlines() if line.startswith("{")}
    found = json.loads(line)
    assert re.search(r":assumed-role/[^/]*JobRole[^/]*/eks-", found.pop("arn"))
    assert found == {
        "own token": 200,
        "other token": 404,
        "refused": "ecr:GetAuthorizationToken",
        "metadata": False,
        "agent": True,
    }


def test_a_job_that_asks_for_more_than_the_type_has_is_refused(kept):
    check_greedy_job(kept)
