"""
Conda files and containers, with small programs in the place of conda and docker, and the file's way from S3.

Neither conda nor a docker engine is on the machine of the tests: what the real ones print is not tried here.
"""

import base64
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError

from deeplearning_contract.setting_parts import EnvironmentSettings, ScriptSettings
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs
from deeplearning_provision.environments.registry import log_in
from deeplearning_provision.environments.site import BuildSite
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import (
    LookingClock,
    NodeStand,
    StopWaiting,
    link_programs,
    make_facts,
)
from tests.unit.node_lab import StillClock

TEXT = "dependencies: [python]\n"
FILE = ScriptSettings("bucket", "environment.yml", hashlib.sha256(TEXT.encode()).hexdigest())
CONDA = EnvironmentSettings("conda", FILE)
CONTAINER = EnvironmentSettings("container", None, "registry.example/train:1")
CREATE = """
echo "$@" >>"$FAKES/calls"
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/bin"
printf '#!/bin/sh\\necho Python 3.12.0\\n' >"$2/bin/python"
chmod 755 "$2/bin/python"
"""
CREATE_CUDA_13 = CREATE.replace("Python 3.12.0", r'"{\\"cuda\\": [13, 0], \\"library\\": 12}"')
OLD_DRIVER = r"CUDA 13\.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535\.183\.01"


@pytest.fixture
def make_node(tmp_path):
    """Return a function that makes a node with programs of its own."""

    def make(number, settings, clock=None, **programs):
        root, fakes = tmp_path / f"node{number}", tmp_path / f"programs{number}"
        (tmp_path / "shared").mkdir(exist_ok=True)
        if not root.exists():
            local = root / "opt/deeplearning/environments"
            local.mkdir(parents=True)
            (root / "mnt").mkdir()
            (root / "mnt/efs").symlink_to(tmp_path / "shared")
            (local / f"{FILE.sha256[:16]}-environment.yml").write_text(TEXT)
            link_programs(fakes, ["sh", "mkdir", "chmod", "cat"])
        for name, body in programs.items():
            (fakes / name).write_text(f"#!/bin/sh\nFAKES='{fakes}'\n{body}\n")
            (fakes / name).chmod(0o755)
        return NodeStand(root, make_facts(number, settings), Programs(str(fakes)), clock or LookingClock())

    return make


@pytest.mark.defect("D66")
@pytest.mark.parametrize(
    ("program", "command"),
    [("mamba", "env create"), ("conda", "env create"), ("micromamba", "create --yes")],
)
def test_a_conda_environment_is_made_once_and_used_by_all(tmp_path, make_node, program, command):
    master, worker = make_node(0, CONDA, **{program: CREATE}), make_node(1, CONDA)
    with pytest.raises(StopWaiting):
        worker.provide()
    for node in (master, master, worker):
        assert node.provide().detail.startswith("conda environment, made by i-0")
    prefix = worker.current.readlink()
    assert prefix.parts[-3:-1] == (".deeplearning", "environments")
    assert master.current.resolve() == worker.current.resolve()
    file = f"{tmp_path}/node0/opt/deeplearning/environments/{FILE.sha256[:16]}-environment.yml"
    (call,) = (tmp_path / "programs0/calls").read_text().splitlines()
    assert call == f"{command} --prefix {master.current.readlink()} --file {file}"


def test_half_a_conda_environment_is_replaced(make_node):
    master = make_node(0, CONDA, conda=CREATE)
    master.provide()
    prefix = master.current.readlink()
    (prefix / "complete.json").unlink()
    (prefix / "left").touch()
    master.provide()
    assert not (prefix / "left").exists()


@pytest.mark.parametrize(
    ("settings", "programs", "message", "is_final"),
    [
        (replace(CONDA, kind="wheelhouse"), {}, "must be horovod, requirements, conda or container, got wheelh", True),
        (CONDA, {}, "none of mamba, conda, micromamba", True),
        (replace(CONDA, horovod="0.28.1"), {"conda": CREATE}, "horovod must be left out", True),
        (CONDA, {"conda": "echo ResolvePackageNotFound: nothing; exit 1"}, "conda failed", True),
        (CONDA, {"conda": "echo CondaHTTPError: HTTP 000 CONNECTION FAILED; exit 1"}, "conda failed", False),
        (CONDA, {"conda": "echo CondaHTTPError: HTTP 404 NOT FOUND for url; exit 1"}, "conda failed", True),
        (
            CONDA,
            {"conda": 'while [ "$1" != --prefix ]; do shift; done; mkdir -p "$2"'},
            "must have a working Python",
            True,
        ),
        (CONDA, {"conda": CREATE_CUDA_13, "nvidia-smi": "echo 535.183.01"}, OLD_DRIVER, True),
        (CONTAINER, {}, "has no docker", True),
        (CONTAINER, {"docker": "echo manifest unknown; exit 1"}, "could not pull", True),
        (CONTAINER, {"docker": "echo net/http: TLS handshake timeout; exit 1"}, "could not pull", False),
        (CONTAINER, {"docker": "echo Got permission denied to docker.sock; exit 1"}, "may not use docker", True),
    ],
)
def test_a_failure_of_any_kind_is_reported_as_final_or_temporary(make_node, settings, programs, message, is_final):
    node = make_node(0, settings, **programs)
    with pytest.raises(ProvisionFailure, match=message) as caught:
        node.provide()
    assert caught.value.is_final is is_final
    assert not node.current.is_symlink()


def test_a_container_is_pulled_by_every_node(tmp_path, make_node):
    for number in range(2):
        node = make_node(number, CONTAINER, docker='echo "$@" >>"$FAKES/calls"')
        assert node.provide().detail == "container image registry.example/train:1"
        pull, _ = (tmp_path / f"programs{number}/calls").read_text().splitlines()
        assert pull == "pull --quiet registry.example/train:1"


ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train:1"
PULL_FROM_ECR = """
echo "$@" >>"$FAKES/calls"
[ "$1" = image ] || cat "$DOCKER_CONFIG/config.json" >"$FAKES/logins"
"""


def test_docker_logs_in_to_ecr_with_the_role_of_the_node_and_leaves_no_token(tmp_path, make_node, aws_server):
    node = make_node(0, EnvironmentSettings("container", None, ECR), docker=PULL_FROM_ECR)
    assert node.provide().detail == f"container image {ECR}"
    ((host, login),) = json.loads((tmp_path / "programs0/logins").read_text())["auths"].items()
    assert host == "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
    assert base64.b64decode(login["auth"]).decode().startswith("AWS:")
    texts = [path.read_text() for path in node.root.rglob("*") if path.is_file()]
    assert not [text for text in texts if login["auth"] in text]


@pytest.mark.parametrize(
    "image",
    [
        "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com/train:1",
        "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/train@sha256:1",
        "123456789012.dkr-ecr.eu-west-1.on.aws/train:1",
    ],
)
def test_every_address_of_ecr_is_one_to_log_in_to(image, aws_server):
    with log_in(image, Clock()) as variables:
        logins = json.loads((Path(variables["DOCKER_CONFIG"]) / "config.json").read_text())["auths"]
    assert list(logins) == [image.partition("/")[0]]


@pytest.mark.parametrize("image", ["public.ecr.aws/docker/library/python:3.12", "train:1", "ghcr.io/team/train:1"])
def test_no_other_registry_gets_the_token(image):
    with log_in(image, Clock()) as variables:
        assert variables == {}


def test_a_role_that_may_not_log_in_is_reported_with_the_grant_that_it_needs(make_node, monkeypatch):
    error = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetAuthorizationToken")
    monkeypatch.setattr(AwsClients, "ecr", Mock(get_authorization_token=Mock(side_effect=error)))
    clock = StillClock()  # IAM may need a minute to propagate a new role.
    node = make_node(0, EnvironmentSettings("container", None, ECR), clock, docker=PULL_FROM_ECR)
    with pytest.raises(ProvisionFailure, match="could not log in to 123456789012") as caught:
        node.provide()
    assert caught.value.remedy == "allow the nodes to pull: call repository.grant_pull(cluster), and deploy"
    assert caught.value.is_final
    assert clock.read() > 60


def test_the_file_comes_from_s3_once_and_only_as_it_was_deployed(aws_server, make_node):
    node = make_node(0, CONDA)
    next(node.root.glob("opt/deeplearning/environments/*-environment.yml")).unlink()
    site = BuildSite(node.facts, Status(node.root, node.clock), node.root, node.programs, node.clock)
    s3 = AwsClients("eu-west-1").s3
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket="bucket", Key="environment.yml", Body=b"dependencies: [other]\n")
    with pytest.raises(ProvisionFailure, match=f"must be {FILE.sha256}, got ") as caught:
        site.fetch_file("environment.yml")
    assert caught.value.is_final
    assert not list(Path(site.local).iterdir())
    s3.put_object(Bucket="bucket", Key="environment.yml", Body=TEXT.encode())
    assert site.fetch_file("environment.yml").read_text() == TEXT
    s3.delete_object(Bucket="bucket", Key="environment.yml")
    assert site.fetch_file("environment.yml").name.endswith("-environment.yml")
    with pytest.raises(ProvisionFailure, match=r"s3://bucket/environment\.yml must exist, got NoSuchKey") as caught:
        site.fetch_file("other.yml")
    assert (caught.value.is_final, caught.value.remedy) == (True, "deploy again")
