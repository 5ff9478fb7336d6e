"""Every choice of the context is read, and every wrong one refused by its key, before anything is made."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import RemovalPolicy

from deeplearning_cdk import (
    DataSource,
    EnvironmentCache,
    InstanceTypeFacts,
    JobEnvironment,
    SetupScripts,
    TrainingCluster,
)
from deeplearning_cdk.props.check import show_value
from stacks.cluster_context import CLUSTER_KEYS, PLACE_KEYS, VpcIds
from stacks.context import _READERS, read_choices, read_context
from stacks.context_values import ContextError

ROOT = Path(__file__).parents[2]
HAS_PACKAGES = {"kind": "ubuntu", "has_packages": True}
VPC = {"vpc_id": "vpc-1", "availability_zone": "us-east-1a", "worker_subnet_id": "subnet-1"}


def test_every_prop_of_the_cluster_is_a_context_key() -> None:
    props = set(list(inspect.signature(TrainingCluster.__init__).parameters)[3:])
    of_apps = {"worker_subnet", "master_subnet", "master_role", "worker_role", "security_groups"}
    # What needs a construct of the user's is asked for by keys of its own, or only in an app of the user's own.
    by_other_keys = {
        "lustre": {"lustre_storage_gib", "lustre_bucket"},
        "file_system": set(),
        "environment": {"container"},
        "spending": {"stop_when_idle_minutes", "stop_after_hours", "monthly_budget_usd", "budget_stops"},
    }
    others = set().union(*by_other_keys.values())
    assert {*CLUSTER_KEYS, *PLACE_KEYS} - others == props - of_apps - {"lustre", "file_system", "spending"}
    assert others <= set(CLUSTER_KEYS)


def test_nothing_chosen_is_one_stack_without_a_region() -> None:
    (choice,) = read_choices({})
    assert (choice.name, choice.region, choice.cluster) == ("deeplearning-cluster", None, {})
    assert choice.tags == {"application": "deeplearning-cdk"}


def test_each_region_is_a_stack_with_its_own_zone() -> None:
    choices = read_choices(
        {
            "regions": "us-east-1,eu-west-1,us-west-2",
            "availability_zones": "us-east-1=us-east-1b,eu-west-1=eu-west-1a",
            "stack_name": "mine",
        }
    )
    assert [(choice.name, choice.region, choice.cluster.get("availability_zone")) for choice in choices] == [
        ("mine-us-east-1", "us-east-1", "us-east-1b"),
        ("mine-eu-west-1", "eu-west-1", "eu-west-1a"),
        ("mine-us-west-2", "us-west-2", None),
    ]


def test_one_region_keeps_the_stacks_name() -> None:
    (choice,) = read_choices({"regions": ["eu-west-1"], "stack_name": "master-WorkerAutoScalingGroup"})
    assert (choice.name, choice.region) == ("master-WorkerAutoScalingGroup", "eu-west-1")


def test_values_may_be_text_or_json() -> None:
    text = read_choices(
        {"worker_desired_capacity": "2", "file_system_backup": "true", "tags": "team=vision,cost:center=7"}
    )[0]
    typed = read_choices(
        {"worker_desired_capacity": 2, "file_system_backup": True, "tags": {"team": "vision", "cost:center": "7"}}
    )[0]
    assert text == typed
    assert text.cluster == {"worker_desired_capacity": 2, "file_system_backup": True}
    assert text.tags["team"] == "vision"


def test_units_are_those_that_the_key_says() -> None:
    (choice,) = read_choices({"volume_size": 300, "setup_timeout": "20", "removal_policy": "destroy"})
    assert choice.cluster["volume_size"].to_gibibytes() == 300
    assert choice.cluster["setup_timeout"].to_minutes() == 20
    assert choice.cluster["removal_policy"] is RemovalPolicy.DESTROY


def test_newer_instance_type_can_be_described() -> None:
    facts = {"name": "p9.48xlarge", "gpu_count": 8, "network_cards": 2, "efa_cards": [0, 1]}
    for value in (facts, json.dumps(facts)):
        (choice,) = read_choices({"worker_instance_type": value, "image": "deep-learning-ubuntu"})
        assert choice.cluster["worker_instance_type"] == InstanceTypeFacts(
            name="p9.48xlarge", gpu_count=8, network_cards=2, efa_cards=(0, 1)
        )


@pytest.mark.parametrize(
    ("value", "parameter", "user"),
    [
        ("ubuntu", "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id", "ubuntu"),
        (
            {"kind": "deep-learning-amazon-linux", "name": "base"},
            "/aws/service/deeplearning/ami/x86_64/base/latest/ami-id",
            "ec2-user",
        ),
        ({"kind": "ssm-parameter", "parameter": "/my/image", "login_user": "ubuntu"}, "/my/image", "ubuntu"),
        ('{"kind": "ami-id", "ami_id": "ami-01234567", "login_user": "me", "like": "ubuntu"}', "", "me"),
    ],
)
def test_images_are_named_or_described(value: Any, parameter: str, user: str) -> None:
    image = read_choices({"image": value, "worker_instance_type": "m5.large"})[0].cluster["image"]
    assert (image.parameter, image.login_user) == (parameter, user)


def test_packages_of_a_described_image_are_read() -> None:
    value = {
        "kind": "ssm-parameter",
        "parameter": "/i",
        "login_user": "ubuntu",
        "packages": {"mount.nfs4": ["nfs-utils"]},
    }
    image = read_choices({"image": value})[0].cluster["image"]
    assert image.packages == {"mount.nfs4": ("nfs-utils",)}


def test_a_set_up_script_is_that_of_all_nodes_or_of_a_role(tmp_path: Path) -> None:
    (tmp_path / "setup.sh").write_text("#!/bin/sh\n")
    path = str(tmp_path / "setup.sh")
    assert read_choices({"setup_script": path})[0].cluster["setup_script"] == path
    for value in ({"worker": path}, json.dumps({"worker": path})):
        assert read_choices({"setup_script": value})[0].cluster["setup_script"] == SetupScripts(worker=path)


def test_data_is_a_list_of_objects_from_json_or_the_command_line() -> None:
    entries = [{"name": "coco", "bucket": "team-data", "key": "coco.tar"}, {"name": "all", "bucket": "team-data"}]
    expected = (DataSource("coco", "team-data", "coco.tar"), DataSource("all", "team-data"))
    for value in (entries, json.dumps(entries)):
        assert read_choices({"data": value})[0].cluster["data"] == expected


def test_environment_is_a_file_of_pip_or_conda_or_a_container(tmp_path: Path) -> None:
    for name in ("requirements.txt", "environment.yml"):
        (tmp_path / name).write_text("numpy\n")
    pip, conda = str(tmp_path / "requirements.txt"), str(tmp_path / "environment.yml")

    def read(**context: Any) -> JobEnvironment:
        (found,) = (value for key, value in read_choices(context)[0].cluster.items() if key in context)
        return found

    assert read(environment=pip) == JobEnvironment.from_requirements(pip)
    with_horovod = json.dumps({"path": pip, "horovod": "0.28.1"})
    assert read(environment=with_horovod) == JobEnvironment.from_requirements(pip, horovod="0.28.1")
    assert read(environment=conda) == JobEnvironment.from_conda(conda)
    assert read(environment="horovod") == JobEnvironment.with_horovod()
    assert read(environment="none") == JobEnvironment.none()
    pinned = {"horovod": "0.28.1", "framework": "torch==2.7.1"}
    for value in (pinned, json.dumps(pinned)):
        assert read(environment=value) == JobEnvironment.with_horovod(framework="torch==2.7.1")
    assert read(container="team/train:1") == JobEnvironment.from_container("team/train:1")


@pytest.mark.parametrize(
    ("value", "prefix"),
    [
        ("team-bucket", "environments/"),
        ("team-bucket/train", "train/"),
        ("team-bucket/train/horovod/", "train/horovod/"),
    ],
)
def test_environments_are_kept_in_a_bucket_or_in_folders_of_it(value: str, prefix: str) -> None:
    (choice,) = read_choices({"environment": "horovod", "environment_cache": value})
    assert choice.cluster["environment_cache"] == EnvironmentCache("team-bucket", prefix)


@pytest.mark.parametrize(("value", "mebibytes"), [("elastic", None), ("bursting", None), ("128", 128), (64, 64)])
def test_throughput_is_a_word_or_mebibytes_each_second(value: Any, mebibytes: int | None) -> None:
    found = read_choices({"file_system_throughput": value})[0].cluster["file_system_throughput"]
    assert found == value if mebibytes is None else found.to_mebibytes() == mebibytes


def test_own_vpc_is_given_by_ids() -> None:
    (choice,) = read_choices({"vpc": VPC, "mount_target_security_group": "sg-1", "file_system_id": "fs-01234567"})
    assert choice.vpc == VpcIds(**VPC)
    assert choice.mount_target_security_group_id == "sg-1"


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"mount_pont": "/x"}, "context must have only known keys, got 'mount_pont'; did you mean mount_point?"),
        ({"region": "us-east-1"}, "context must have only known keys, got 'region'; did you mean regions?"),
        (
            {"worker_desired_capacity": "three"},
            "worker_desired_capacity must be a whole number from 0, got 'three'; write e.g. -c worker",
        ),
        (
            {"worker_desired_capacity": 2.5},
            "worker_desired_capacity must be a whole number from 0, got 2.5; write e.g. -c worker_desired_capacity=3",
        ),
        (
            {"worker_desired_capacity": True},
            "worker_desired_capacity must be a whole number from 0, got True; write e.g. -c worker_desired_capacity=3",
        ),
        ({"efa": "none"}, "efa must be true or false, got 'none'; write -c efa=true"),
        ({"isolated": "yes"}, "isolated must be true or false, got 'yes'; write -c isolated=true"),
        ({"mount_point": 7}, "mount_point must be a text, got 7; write -c mount_point=…"),
        (
            {"regions": "us-east-1,Ireland"},
            "regions must be AWS regions, got 'Ireland'; write e.g. -c regions=us-east-1,eu-west-1",
        ),
        (
            {"regions": "us-east-1,us-east-1"},
            "regions must name each region once, got us-east-1,us-east-1; leave the second one out",
        ),
        ({"regions": ""}, "regions must be a list, got ''; write -c regions=first,second"),
        (
            {"availability_zones": "us-east-1"},
            (
                "availability_zones must be name=value pairs, got 'us-east-1'; "
                "write -c availability_zones=name=value,name=value"
            ),
        ),
        (
            {"availability_zones": "us-east-1=us-east-1b"},
            "availability_zones must be of chosen regions, got 'us-east-1'; add it to regions",
        ),
        (
            {"regions": "us-east-1", "availability_zones": "us-east-1=eu-west-1b"},
            "availability_zones must be of their region, got us-east-1=eu-west-1b; write us-east-1a",
        ),
        (
            {"regions": "us-east-1,eu-west-1", "file_system_id": "fs-01234567"},
            "file_system_id must be given for one region, got 2; deploy each by itself",
        ),
        (
            {"stack_name": "1st"},
            "stack_name must be letters, digits and hyphens, got '1st'; begin it with a letter",
        ),
        (
            {"tags": "a/b=c"},
            "tag key must have 1 to 127 letters, digits and :_.,=+@-, and not begin with aws:, got 'a/b'; ",
        ),
        (
            {"removal_policy": "keep"},
            "removal_policy must be one of retain-on-update-or-delete, retain, destroy, got 'keep'; write one of them",
        ),
        (
            {"image": "windows"},
            (
                "image must be one of deep-learning-ubuntu, deep-learning-amazon-linux, ubuntu, ssm-parameter, ami-id, "
                "got 'windows'; write one of them"
            ),
        ),
        ({"vpc": {**VPC, "vpc_cidr": "x"}}, "vpc must have the right names, got "),
        ({"vpc": "{"}, "vpc must be a JSON object, got '{' ("),
        ({"vpc": VPC, "vpc_cidr": "10.0.0.0/16"}, "vpc_cidr must be left out with vpc, got '10.0.0.0/16'; "),
        ({"worker_instance_type": '{"name": "P"}'}, "worker_instance_type: name must be an instance"),
        ({"vpc_cidr": "10.0.0.0/33"}, "vpc_cidr must be an IPv4 network with its host bits 0, got '10.0.0.0/33'; "),
        ({"worker_min_capacity": 5, "worker_desired_capacity": 4}, "worker_min_capacity must not exceed "),
        ({"worker_instance_type": "p5.big"}, "worker_instance_type must be an instance type of the catalogue of "),
        ({"vpc_cidr": "10.0.0.0/26", "worker_desired_capacity": 40}, "worker_max_capacity must not exceed the 25 "),
        ({"mount_point": "efs"}, "mount_point must be an absolute path "),
        ({"data": "coco"}, "data must be a JSON list, got 'coco' ("),
        ({"data": {"name": "coco"}}, "data must be a JSON list of objects, got a dict; write e.g. [{"),
        ({"data": []}, "data must be a JSON list of objects, got a list; "),
        ({"data": [{"name": 7}]}, "data must have texts alone, got 7; write e.g. [{"),
        ({"data": [{"name": "a", "bucket": "b", "path": "c/"}]}, "data[0] must have the right names, got ['bucket', "),
        ({"data": [{"name": "a", "bucket": "my-b", "key": "c"}]}, "data[0]: data key must be an archive "),
        ({"data": [{"name": "a", "bucket": "my-b", "target": "lustre"}]}, "lustre must be given for data a with the "),
        (
            {"data": [{"name": "a", "bucket": "my-b", "key": "c.tar"}] * 2},
            "data must have different names, got 'a' twice; rename one",
        ),
        ({"environment": "nowhere.txt"}, "environment: path must be a file, got 'nowhere.txt'; "),
        ({"setup_script": {"every": "x"}}, "setup_script must have the right names, got ['every'] ("),
        ({"setup_script": {"worker": "nowhere.sh"}}, "setup_script: setup_script.worker must be a file, got 'nowhere"),
        ({"environment": {"file": "x"}}, "environment must have the right names, got ['file'] ("),
        ({"environment": {"horovod": "0.1"}}, "environment: version must be one of 0.28.1, got '0.1'; "),
        (
            {"environment": {"horovod": "0.28.1", "framework": "torch"}},
            "environment: framework must be one exact version of torch or tensorflow, got 'torch'; ",
        ),
        ({"environment_cache": "s3://b"}, "environment_cache: environment_cache bucket must be a bucket's name, got "),
        ({"environment_cache": "team-bucket/../x"}, "environment_cache: environment_cache prefix must be folders of "),
        (
            {"environment": "none", "environment_cache": "team-bucket"},
            "environment_cache must be left out with an environment of kind none, got one; ",
        ),
        (
            {"environment": "horovod", "isolated": True, "image": HAS_PACKAGES, "worker_instance_type": "m5.large"},
            "environment must not be built by isolated nodes, which reach no package index, got Horovod; ",
        ),
        ({"container": "a b"}, "container: image must be the name of an image, got 'a b'; "),
        (
            {"container": "image", "environment": str(ROOT / "requirements.lock")},
            "container must be left out with environment, got both; the container is the environment",
        ),
        ({"lustre_storage_gib": 1000}, "lustre_storage_gib must be whole GiB from 1200 to 2400000, got 1000 GiB; "),
        ({"lustre_bucket": "s3://b"}, "lustre_bucket: data name must be letters, "),
        (
            {"file_system_throughput": "fast"},
            (
                "file_system_throughput must be elastic, bursting or MiB each second, got 'fast'; "
                "write e.g. -c file_system_throughput=128"
            ),
        ),
        (
            {"file_system_throughput": "bursting", "file_system_id": "fs-01234567"},
            "file_system_throughput must be left out with file_system_id, got both; the file system has its own",
        ),
        (
            {"regions": "us-east-1,eu-west-1", "lustre_bucket": "mine"},
            "lustre_bucket must be given for one region, got 2; deploy each by itself",
        ),
    ],
)
def test_wrong_choices_are_refused(context: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        read_choices(context)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "key",
    [
        "@aws-cdk/core:newStyle",
        "aws:cdk:enable-path-metadata",
        "aws-cdk:enableDiffNoFail",
        "availability-zones:account=1:region=us-east-1",
        "ami:account=1:filters.name.0=x:region=us-east-1",
        "cli-telemetry",
        "acknowledged-issue-numbers",
    ],
)
def test_keys_of_cdk_pass(key: str) -> None:
    assert read_choices({key: ["whatever"]}) == read_choices({})


def test_command_line_wins_over_cdk_json(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text('{"context": {"mount_point": "/a", "isolated": true}}')
    context = read_context(["-c", "mount_point=/b", "--context", "tags=a=b"], {}, tmp_path)
    assert context == {"mount_point": "/b", "isolated": True, "tags": "a=b"}


def test_cli_passes_the_context_that_it_has_merged(tmp_path: Path) -> None:
    (tmp_path / "cdk.json").write_text('{"context": {"mount_point": "/a"}}')
    long = tmp_path / "long.json"
    long.write_text('{"volume_size": 100}')
    environment = {"CDK_CONTEXT_JSON": '{"isolated": true}', "CONTEXT_OVERFLOW_LOCATION_ENV": str(long)}
    assert read_context([], environment, tmp_path) == {"isolated": True, "volume_size": 100}


@pytest.mark.parametrize("arguments", [["-c"], ["-c", "mount_point"], ["--mount-point", "/x"], ["-c", "=x"]])
def test_other_arguments_are_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="arguments must be -c key=value"):
        read_context(arguments, {}, tmp_path)


def test_app_says_what_is_wrong_in_one_line_and_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "app.py"), "-c", "worker_min_capacity=5", "-c", "worker_desired_capacity=4"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.returncode == 1
    (line,) = (line for line in answer.stderr.splitlines() if not line.startswith("b'!!"))
    assert line.startswith("error: worker_min_capacity must not exceed worker_desired_capacity, got 5 > 4; ")
    assert list(tmp_path.iterdir()) == []


HOSTILE = ("a\n", "a\0b", "$(reboot)", "/efs;reboot", "", "-5", "٣", "{", "[", '{"kind": 5}', "x" * 300, "99999999")
IN_ONE_LINE = re.compile(r"[A-Za-z_][\w .:\[\]$()@\"'-]* must .+, got .+; .+")


@pytest.mark.parametrize("key", [*_READERS])
def test_a_key_takes_any_value_or_refuses_it_in_one_line(key: str) -> None:
    for value in (*HOSTILE, None, 5, -5, 10**5000, 1.5, True, [], {}, ["a"], [None], {"a": 1}, {"name": None}):
        refusal = "none must be, got none; none"
        try:
            read_choices({"worker_instance_type": "m5.large", key: value})
        except ValueError as error:
            refusal = str(error)
        assert IN_ONE_LINE.fullmatch(refusal), f"{key}={show_value(value)}: {refusal}"


@pytest.mark.parametrize(
    ("choice", "start"),
    [
        ("volume_size=-5", "volume_size must be a whole number from 0, got '-5'; "),
        ("volume_size=0", "volume_size must be whole GiB from 1 to 65536, got 0 GiB; "),
        ("setup_timeout=-5", "setup_timeout must be a whole number from 0, got '-5'; "),
        ("stop_after_hours=-1", "stop_after_hours must be a whole number from 0, got '-1'; "),
        ("stop_when_idle_minutes=-1", "stop_when_idle_minutes must be a whole number from 0, got '-1'; "),
        ("file_system_throughput=-1", "file_system_throughput must be elastic, bursting or MiB each second, "),
        ("key_pair=$(reboot)", "key_pair must be the name of an EC2 key pair "),
        ("tags=aws:x=y", "tag key must have 1 to 127 letters, "),
        (f"tags={'k' * 128}=x", "tag key must have 1 to 127 letters, "),
        ("tags=deeplearning:cluster=y", "tag key must not begin with deeplearning:, "),
        ("tags=team=a\nb", "tag team must have at most 256 letters, "),
        ("encryption_key=arn:aws:kms:us-east-1:111122223333:key/$(reboot)", "encryption_key must be an ARN of kms, "),
        ("availability_zone=$(reboot)", "availability_zone must be the name of an availability zone, "),
    ],
)
def test_a_wrong_prop_is_refused_by_its_key(choice: str, start: str) -> None:
    key, _, value = choice.partition("=")
    with pytest.raises(ValueError, match="must") as caught:
        read_choices({"worker_instance_type": "m5.large", key: value})
    assert str(caught.value)[: len(start)] == start


def test_the_app_ends_with_one_line_for_what_the_cdk_itself_refuses(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    environment = os.environ | {"CDK_OUTDIR": str(tmp_path / "taken" / "cdk.out")}
    command = [sys.executable, str(ROOT / "app.py"), "-c", "worker_instance_type=m5.large"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    (line,) = (line for line in answer.stderr.splitlines() if not line.startswith("b'!!"))
    assert answer.returncode == 1
    assert line.startswith("error: ")
    assert "/taken/cdk.out" in line
