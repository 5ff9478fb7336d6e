"""Every choice of the context is read, and every wrong one refused by its key, before anything is written."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import RemovalPolicy

from deeplearning_cdk import (
    DataSource,
    EnvironmentCache,
    InstanceTypeFacts,
    JobEnvironment,
    Lustre,
    Master,
    Network,
    NodeImage,
    Purchase,
    Software,
    Spending,
    Storage,
    Workers,
)
from deeplearning_cdk.eks.training import EksTraining
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.props.check import show_value
from deeplearning_cdk.sagemaker.training import SageMakerTraining
from deeplearning_rehearsal.cases.loader import list_cases
from stacks.cluster_stack import PLATFORMS, make_stack
from stacks.context import read_choices, read_context
from stacks.reader import list_keys, read_props

ROOT = Path(__file__).parents[2]
VPC = {
    "vpc_id": "vpc-01234567",
    "availability_zones": ["us-east-1a"],
    "private_subnet_ids": ["subnet-01234567"],
}
P9 = {"name": "p9.48xlarge", "gpu_count": 8, "network_cards": 2, "efa_cards": [0, 1]}
P9_FACTS = InstanceTypeFacts(name="p9.48xlarge", gpu_count=8, network_cards=2, efa_cards=(0, 1))
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def read(context):
    return read_props(cdk.Stack(), context)


def make(context):
    app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    for choice in read_choices(context):
        make_stack(app, choice)


# --- Stacks -------------------------------------------------------------------------------------------


def test_nothing_chosen_is_one_stack_without_a_region():
    (choice,) = read_choices({})
    assert (choice.name, choice.region, choice.cluster) == ("deeplearning-cluster", None, {})
    assert choice.tags == {"application": "deeplearning-cdk"}


def test_each_region_is_a_stack_with_its_own_zone():
    choices = read_choices(
        {
            "regions": "us-east-1,eu-west-1,us-west-2",
            "availability_zones": "us-east-1=us-east-1b,eu-west-1=eu-west-1a",
            "stack_name": "mine",
            "network.cidr": "10.1.0.0/16",
        }
    )
    assert [(choice.name, choice.region, choice.cluster.get("network.availability_zone")) for choice in choices] == [
        ("mine-us-east-1", "us-east-1", "us-east-1b"),
        ("mine-eu-west-1", "eu-west-1", "eu-west-1a"),
        ("mine-us-west-2", "us-west-2", None),
    ]


def test_one_region_keeps_the_stacks_name():
    (choice,) = read_choices({"regions": ["eu-west-1"], "stack_name": "master-WorkerAutoScalingGroup"})
    assert (choice.name, choice.region) == ("master-WorkerAutoScalingGroup", "eu-west-1")


@pytest.mark.parametrize("tags", ["team=vision,cost:center=7", {"team": "vision", "cost:center": "7"}])
def test_tags_may_be_text_or_json(tags):
    (choice,) = read_choices({"tags": tags})
    assert choice.tags == {"application": "deeplearning-cdk", "team": "vision", "cost:center": "7"}


# --- Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "props"),
    [
        ({"workers.max_capacity": "2"}, {"workers": Workers(max_capacity=2)}),
        ({"workers.max_capacity": 2}, {"workers": Workers(max_capacity=2)}),
        ({"workers": {"max_capacity": 2}}, {"workers": Workers(max_capacity=2)}),
        ({"workers": '{"max_capacity": 2}'}, {"workers": Workers(max_capacity=2)}),
        (
            {"workers": {"instance_type": "m5.large"}, "workers.max_capacity": 8},
            {"workers": Workers(instance_type="m5.large", max_capacity=8)},
        ),
        ({"workers.volume_size": 300}, {"workers": Workers(volume_size=300)}),
        ({"workers.instance_type": P9}, {"workers": Workers(instance_type=P9_FACTS)}),
        ({"workers.instance_type": json.dumps(P9)}, {"workers": Workers(instance_type=P9_FACTS)}),
        ({"workers.purchase": "spot"}, {"workers": Workers(purchase=Purchase.spot())}),
        (
            {"workers.purchase": "capacity-block:cr-01234567"},
            {"workers": Workers(purchase=Purchase.capacity_block("cr-01234567"))},
        ),
        (
            {"master.purchase": {"kind": "spot", "max_price": 2.5}},
            {"master": Master(purchase=Purchase.spot(max_price=2.5))},
        ),
        ({"master.ssh_peer": "203.0.113.7/32"}, {"master": Master(ssh_peer="203.0.113.7/32")}),
        ({"network.isolated": "true", "network.efa": False}, {"network": Network(isolated=True, efa=False)}),
        ({"software.image": "ubuntu"}, {"software": Software(image=NodeImage.ubuntu())}),
        (
            {"software.image": {"kind": "deep-learning-amazon-linux", "name": "base"}},
            {"software": Software(image=NodeImage.deep_learning_amazon_linux("base"))},
        ),
        (
            {"software.image": '{"kind": "ami-id", "ami_id": "ami-01234567", "login_user": "me", "like": "ubuntu"}'},
            {
                "software": Software(
                    image=NodeImage.from_ami_id("ami-01234567", login_user="me", like=NodeImage.ubuntu())
                )
            },
        ),
        (
            {
                "software.image": {
                    "kind": "ssm-parameter",
                    "parameter": "/i",
                    "login_user": "ubuntu",
                    "packages": {"mount.nfs4": ["nfs-utils"]},
                }
            },
            {
                "software": Software(
                    image=NodeImage.from_ssm_parameter(
                        "/i", login_user="ubuntu", packages={"mount.nfs4": ("nfs-utils",)}
                    )
                )
            },
        ),
        ({"software.environment": "none"}, {"software": Software(environment=JobEnvironment.none())}),
        ({"software.environment": "horovod"}, {"software": Software(environment=JobEnvironment.with_horovod())}),
        (
            {"software.environment": {"horovod": "0.28.1", "framework": "torch==2.7.1"}},
            {"software": Software(environment=JobEnvironment.with_horovod(framework="torch==2.7.1"))},
        ),
        (
            {"software.environment": "container:team/train:1"},
            {"software": Software(environment=JobEnvironment.from_container("team/train:1"))},
        ),
        (
            {"software.environment_cache": "team-bucket/train/horovod"},
            {"software": Software(environment_cache=EnvironmentCache("team-bucket", "train/horovod/"))},
        ),
        ({"storage.throughput": "bursting"}, {"storage": Storage(throughput="bursting")}),
        ({"storage.removal_policy": "retain"}, {"storage": Storage(removal_policy=RemovalPolicy.RETAIN)}),
        ({"storage.file_system": "fs-01234567"}, {"storage": Storage(file_system="fs-01234567")}),
        ({"storage.lustre": {}}, {"storage": Storage(lustre=Lustre())}),
        ({"storage.lustre.storage": 2400}, {"storage": Storage(lustre=Lustre(storage=2400))}),
        (
            {"storage.data": '[{"name": "coco", "bucket": "team-data", "key": "coco.tar"}]'},
            {"storage": Storage(data=(DataSource("coco", "team-data", "coco.tar"),))},
        ),
        ({"spending.monthly_budget_usd": "5000"}, {"spending": Spending(monthly_budget_usd=5000)}),
        ({"key_pair": "mine"}, {"key_pair": "mine"}),
    ],
    ids=lambda value: "-".join(map(str, value)),
)
def test_a_value_is_read_by_the_type_of_its_prop(context, props):
    assert read(context) == props


def test_times_and_sizes_have_units():
    found = read(
        {
            "setup_timeout": "90m",
            "spending": {"stop_after": "2d", "stop_when_idle": "3600s"},
            "storage.throughput": "128MiB",
            "workers.volume_size": "1 TiB",
        }
    )
    assert found["setup_timeout"].to_minutes() == 90
    assert found["spending"].stop_after.to_hours() == 48
    assert found["spending"].stop_when_idle.to_hours() == 1
    assert found["storage"].throughput.to_mebibytes() == 128
    assert found["workers"].volume_size.to_gibibytes() == 1024


def test_software_is_a_file_of_pip_or_conda(tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy\n")
    (tmp_path / "environment.yml").write_text("dependencies: [numpy]\n")
    pip, conda = str(tmp_path / "requirements.txt"), str(tmp_path / "environment.yml")
    for value, expected in (
        (pip, JobEnvironment.from_requirements(pip)),
        (conda, JobEnvironment.from_conda(conda)),
        (json.dumps({"path": pip, "horovod": "0.28.1"}), JobEnvironment.from_requirements(pip, horovod="0.28.1")),
    ):
        assert read({"software.environment": value})["software"].environment == expected


@pytest.mark.parametrize("length", [20, 76, 77, 78, 79, 80, 120])
@pytest.mark.parametrize(
    ("ending", "kind"), [("txt", "requirements"), ("in", "requirements"), ("yml", "conda"), ("yaml", "conda")]
)
def test_the_ending_of_a_path_of_any_length_decides_between_pip_and_conda(tmp_path, monkeypatch, ending, kind, length):
    monkeypatch.chdir(tmp_path)
    path = f"{'x' * (length - len(ending) - 1)}.{ending}"
    Path(path).write_text("numpy\n" if kind == "requirements" else "dependencies: [numpy]\n")
    for value in (path, json.dumps({"path": path})):
        environment = read({"software.environment": value})["software"].environment
        assert (environment.kind, environment.path) == (kind, path)


def test_ids_and_arns_become_constructs_by_the_imports_of_the_cdk():
    found = read(
        {
            "network": {
                "vpc": VPC,
                "worker_subnet": "subnet-01234567",
                "availability_zone": "us-east-1a",
                "security_groups": "sg-01234567,sg-89abcdef",
            },
            "master.role": "arn:aws:iam::111122223333:role/mine",
            "storage.file_system": {"file_system_id": "fs-01234567", "security_group": "sg-01234567"},
            "encryption_key": KEY,
            "alarm_topic": "arn:aws:sns:us-east-1:111122223333:on-call",
        }
    )
    network = found["network"]
    assert (network.vpc.vpc_id, network.worker_subnet.subnet_id) == ("vpc-01234567", "subnet-01234567")
    assert [group.security_group_id for group in network.security_groups] == ["sg-01234567", "sg-89abcdef"]
    assert found["master"].role.role_name == "mine"
    file_system = found["storage"].file_system
    assert file_system.file_system_id == "fs-01234567"
    assert file_system.connections.security_groups[0].security_group_id == "sg-01234567"
    assert found["encryption_key"].key_arn == KEY
    assert found["alarm_topic"].topic_name == "on-call"


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (
            {"mount_point": "/x"},
            "context must have only known keys, got 'mount_point'; did you mean storage.mount_poin",
        ),
        (
            {"workers.instance_typ": "x"},
            "context must have only known keys, got 'workers.instance_typ'; did you mean workers.instance_type?",
        ),
        ({"region": "us-east-1"}, "context must have only known keys, got 'region'; did you mean regions?"),
        (
            {
                "workers.fallbacks": '[{"purchase": "reservation:cr-0123456789abcdef0"}]',
                "workers.instance_type": "m5.large",
            },
            "workers.fallbacks[0].availability_zone must be that of the reservation in workers.fallbacks[0].purchase",
        ),
        (
            {"workers": {"instance_typ": "m5.large"}},
            (
                "workers must have the names instance_type, min_capacity, desired_capacity, max_capacity, purchase, "
                "fallbacks, patience, volume_size, setup_script, role, got 'instance_typ'; did you mean instance_type?"
            ),
        ),
        (
            {"storage.data": [{"name": "a", "buckt": "b"}]},
            "storage.data[0] must have the names name, bucket, key, target, sha256, got 'buckt'; did you mean bucket?",
        ),
        ({"storage.data": [{"name": "a"}]}, "storage.data[0] must have bucket, got none; add it"),
        ({"workers.desired_capacity": "three"}, "workers.desired_capacity must be a whole number, got 'three'; "),
        ({"workers.desired_capacity": 2.5}, "workers.desired_capacity must be a whole number, got 2.5; "),
        ({"workers.desired_capacity": True}, "workers.desired_capacity must be a whole number, got True; "),
        ({"network.efa": "none"}, "network.efa must be True or False, got 'none'; "),
        ({"storage.mount_point": 7}, "storage.mount_point must be a text, got 7; "),
        ({"setup_timeout": "20"}, "setup_timeout must have a unit, got '20'; write e.g. 90m, 48h or 7d"),
        ({"storage.throughput": "128"}, "storage.throughput must have a unit, got '128'; write e.g. 300GiB or 128MiB"),
        ({"storage.throughput": "fast"}, "storage.throughput must be one of elastic, bursting or a Size, got 'fast'; "),
        ({"storage.removal_policy": "keep"}, "storage.removal_policy must be a RemovalPolicy, got 'keep'; "),
        (
            {"regions": "us-east-1,Ireland"},
            "regions must be AWS regions, got 'Ireland'; write e.g. -c regions=us-east-1,eu-west-1",
        ),
        (
            {"regions": "us-east-1,us-east-1"},
            "regions must name each region once, got us-east-1,us-east-1; leave the second one out",
        ),
        ({"regions": []}, "regions must be a list, got a list; write e.g. -c regions=us-east-1,eu-west-1"),
        (
            {"availability_zones": "us-east-1"},
            "availability_zones must be name=value pairs, got 'us-east-1'; write -c availability_zones=name=value,",
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
            {"regions": "us-east-1,eu-west-1", "storage.file_system": "fs-01234567"},
            "storage.file_system must be given for one region, got 2; deploy each by itself",
        ),
        (
            {"regions": "us-east-1,eu-west-1", "network": {"availability_zone": "us-east-1a"}},
            "network.availability_zone must be given for one region, got 2; deploy each by itself",
        ),
        ({"stack_name": "1st"}, "stack_name must be letters, digits and hyphens, got '1st'; begin it with a letter"),
        (
            {"tags": "a/b=c"},
            "tag key must have 1 to 127 letters, digits and :_.,=+@-, and not begin with aws:, got 'a/b'; ",
        ),
        ({"tags": "deeplearning:cluster=y"}, "tag key must not begin with deeplearning:, "),
        (
            {"software.image": "windows"},
            (
                "software.image must be one of deep-learning-ubuntu, deep-learning-amazon-linux, ubuntu, "
                "ssm-parameter, ami-id, got 'windows'; write one of them"
            ),
        ),
        ({"network.vpc": {**VPC, "cidr": "x"}}, "network.vpc must have the right names, got "),
        ({"network.vpc": "{"}, "network.vpc must be JSON, got '{' ("),
        ({"workers.instance_type": '{"name": "P"}'}, "workers.instance_type.name must be an instance"),
        ({"storage.data": "coco"}, "storage.data[0] must be a DataSource, got 'coco'; "),
        ({"storage.data": [{"name": 7, "bucket": "b"}]}, "storage.data[0]: data name must be a text, got 7; "),
        ({"software.environment": "nowhere.txt"}, "software.environment must be a file, got 'nowhere.txt'; "),
        ({"workers.setup_script": "nowhere.sh"}, "workers.setup_script must be a file, got 'nowhere.sh'; "),
        ({"software.environment": {"file": "x"}}, "software.environment must have only known props, got 'file'; "),
        ({"software.environment": {"horovod": "0.1"}}, "software.environment.horovod must be one of 0.28.1, got "),
        ({"software.environment": "container:a b"}, "software.environment must be the name of an image, got "),
        ({"software.environment_cache": "s3://b"}, "software.environment_cache.bucket must "),
        ({"storage.lustre.storage": 1000}, "storage.lustre.storage must be whole GiB from 1200 to 2400000, "),
        ({"workers.purchase": "reserved:x"}, "workers.purchase must be on-demand, spot, reservation:<id or ARN of "),
        ({"workers.volume_size": "0"}, "workers.volume_size must be whole GiB from 1 to 65536, got 0; "),
        ({"spending.stop_after": "-1h"}, "spending.stop_after must be a Duration, got '-1h'; "),
        ({"encryption_key": f"{KEY}$(reboot)"}, "encryption_key must be an IKey, got 'arn:"),
        ({"encryption_key": "alias/mine"}, "encryption_key must be an IKey, got 'alias/mine'; "),
        ({"network.availability_zone": "$(reboot)"}, "network.availability_zone must be the name of an availability "),
        ({"workers": "many"}, "workers must be a Workers, got 'many'; "),
        (
            {"workers": "many", "workers.max_capacity": 3},
            "workers.max_capacity must stand beside no other value of workers, got both; leave one out",
        ),
        ({"platform": "ecs"}, "platform must be one of ec2, emr, sagemaker, eks, got 'ecs'; write one of them"),
        (
            {"platform": "emr", "workers.instance_type": "g5.12xlarge"},
            "context must have only known keys, got 'workers.instance_type'; did you mean instance_type?",
        ),
        ({"members": "4"}, "context must have only known keys, got 'members'; did you mean "),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_choices_are_refused(context, message):
    with pytest.raises(ValueError, match="must") as caught:
        make(context)
    assert str(caught.value)[: len(message)] == message


HOSTILE = ("a\n", "a\0b", "$(reboot)", "/efs;reboot", "", "-5", "٣", "{", "[", '{"kind": 5}', "x" * 300, "99999999")
IN_ONE_LINE = re.compile(r"[A-Za-z_][\w .:\[\]$()@\"'-]* must .+, got .+; .+")
OTHERS = (None, 5, -5, 10**5000, 1.5, True, [], {}, ["a"], [None], {"a": 1}, {"name": None})


@pytest.mark.parametrize(
    ("platform", "key"),
    [
        *(("ec2", key) for key in ("stack_name", "regions", "availability_zones", "tags", *list_keys())),
        *(("emr", key) for key in ("platform", *list_keys(EmrTraining))),
        *(("sagemaker", key) for key in list_keys(SageMakerTraining)),
        *(("eks", key) for key in list_keys(EksTraining)),
    ],
)
def test_a_key_takes_any_value_or_refuses_it_in_one_line(platform, key):
    stack = cdk.Stack()
    for value in (*HOSTILE, *OTHERS):
        refusal = "none must be, got none; none"
        try:
            (choice,) = read_choices({"platform": platform, key: value})
            read_props(stack, choice.cluster, PLATFORMS[platform].kind)
        except ValueError as error:
            refusal = str(error)
        assert IN_ONE_LINE.fullmatch(refusal), f"{key}={show_value(value)}: {refusal}"


# --- Platforms ----------------------------------------------------------------------------------------


def test_platform_chooses_the_stack_and_its_keys():
    (choice,) = read_choices({"platform": "emr", "members": "4", "root_volume": "80GiB", "stop_when_idle": "1h"})
    assert choice.platform == "emr"
    props = read_props(cdk.Stack(), choice.cluster, EmrTraining)
    assert (props["members"], props["root_volume"].to_gibibytes()) == (4, 80)
    (choice,) = read_choices({"platform": "sagemaker", "members": "4", "spot_wait": "36h", "volume_size": "200GiB"})
    props = read_props(cdk.Stack(), choice.cluster, SageMakerTraining)
    assert (props["members"], props["spot_wait"].to_hours(), props["volume_size"].to_gibibytes()) == (4, 36, 200)
    assert read_choices({}) == read_choices({"platform": "ec2"})


def test_context_has_every_value_of_a_cluster_on_eks():
    (choice,) = read_choices(
        {
            "platform": "eks",
            "members": "4",
            "version": "1.34",
            "image_disk": "300GiB",
            "purchase": "spot",
            "administrators": "arn:aws:iam::111122223333:role/Admin,arn:aws:iam::111122223333:user/ann",
            "api_from": "54.240.193.130/32",
            "claim_capacity": "80Gi",
        }
    )
    props = read_props(cdk.Stack(), choice.cluster, EksTraining)
    assert (props["members"], props["version"], props["image_disk"].to_gibibytes()) == (4, "1.34", 300)
    assert (props["purchase"].kind, props["claim_capacity"]) == ("spot", "80Gi")
    assert props["administrators"] == (
        "arn:aws:iam::111122223333:role/Admin",
        "arn:aws:iam::111122223333:user/ann",
    )
    assert props["api_from"] == ("54.240.193.130/32",)


# --- Command line -------------------------------------------------------------------------------------


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
def test_keys_of_cdk_pass(key):
    assert read_choices({key: ["whatever"]}) == read_choices({})


def test_command_line_wins_over_cdk_json(tmp_path):
    (tmp_path / "cdk.json").write_text('{"context": {"storage.mount_point": "/a", "network": {"isolated": true}}}')
    context = read_context(["-c", "storage.mount_point=/b", "--context", "tags=a=b"], {}, tmp_path)
    assert context == {"storage.mount_point": "/b", "network": {"isolated": True}, "tags": "a=b"}


def test_cli_passes_the_context_that_it_has_merged(tmp_path):
    (tmp_path / "cdk.json").write_text('{"context": {"storage.mount_point": "/a"}}')
    long = tmp_path / "long.json"
    long.write_text('{"workers.volume_size": 100}')
    environment = {"CDK_CONTEXT_JSON": '{"network.efa": true}', "CONTEXT_OVERFLOW_LOCATION_ENV": str(long)}
    assert read_context([], environment, tmp_path) == {"network.efa": True, "workers.volume_size": 100}


@pytest.mark.parametrize("arguments", [["-c"], ["-c", "mount_point"], ["--mount-point", "/x"], ["-c", "=x"]])
def test_other_arguments_are_refused(arguments, tmp_path):
    with pytest.raises(ValueError, match="arguments must be -c key=value"):
        read_context(arguments, {}, tmp_path)


def test_app_reports_an_error_in_one_line_and_writes_nothing(tmp_path):
    chosen = ["-c", "workers.min_capacity=5", "-c", "workers.desired_capacity=4"]
    command = [sys.executable, str(ROOT / "app.py"), *chosen]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert line.startswith("error: workers.min_capacity must not exceed workers.desired_capacity, got 5 > 4; ")
    assert not list(tmp_path.rglob("*.json"))


def test_the_app_ends_with_one_line_for_what_the_cdk_itself_refuses(tmp_path):
    (tmp_path / "taken").write_text("")
    environment = os.environ | {"CDK_OUTDIR": str(tmp_path / "taken" / "cdk.out")}
    command = [sys.executable, str(ROOT / "app.py"), "-c", "workers.instance_type=m5.large"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    (line,) = answer.stderr.splitlines()
    assert answer.returncode == 1
    assert line.startswith("error: ")
    assert "/taken/cdk.out" in line


# --- Fault cases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", list_cases(), ids=lambda case: case.name)
def test_the_context_of_every_fault_case_is_read(case):
    given = dict(case.context)
    given.pop("software.environment", None)  # Its file is found when the case is rehearsed.
    for choice in read_choices(given):
        props = read_props(cdk.Stack(), dict(choice.cluster), PLATFORMS[choice.platform].kind)
        assert set(props) == {key.partition(".")[0] for key in choice.cluster}
