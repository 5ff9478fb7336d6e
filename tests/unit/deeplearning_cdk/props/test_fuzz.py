"""
Random values of public props are accepted, or refused in one line that names the prop, the rule and a way out.

The props are found by the signatures, so that a new one is tried without being named here. Nothing is synthesized:
a value of a cluster is made and planned with, and `TrainingCluster` checks its own props before it makes anything.
"""

import contextlib
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Duration, RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

import deeplearning_cdk
from deeplearning_cdk import (
    Candidate,
    DataSource,
    EksTraining,
    EmrTraining,
    EnvironmentCache,
    InstanceTypeFacts,
    JobEnvironment,
    Lustre,
    LustreFileSystem,
    Master,
    Network,
    NodeImage,
    Purchase,
    SageMakerTraining,
    SharedFileSystem,
    Software,
    Spending,
    Storage,
    TrainingCluster,
    TrainingImage,
    Workers,
    training_cluster,
)
from deeplearning_cdk.nodes.plan import plan_nodes
from deeplearning_cdk.props.check import show_value
from deeplearning_cdk.props.rules import count_gibibytes
from tests.unit.deeplearning_cdk.clusters import VALUES, plan
from tests.unit.deeplearning_cdk.clusters import props_of as cluster_props

FORM = re.compile(r"[A-Za-z_][\w .\[\]'-]* must .+, got .+; .+")
HOSTILE_TEXTS = ("a\n", "a\0b", "$(reboot)", "/efs$(reboot)", "ami-01234567\n", "fs-01234567\0")
"""Texts that every prop refuses."""
TEXTS = (*HOSTILE_TEXTS, "", " ", "2", "`id`", "'\"", "é", "١٢٣", "x" * 5000, "../../etc/x.tar", "0.0.0.0/0", "\ud800")
NUMBERS = (0, -1, -5, 3, 2**31, 10**5000, 1.5, 1e300, -math.inf, math.inf, math.nan, True, False)
OTHERS = (b"x", [], ["a"], [None], {}, {"a": 1}, (), object(), int, Path("x"), lambda: 1, RemovalPolicy.SNAPSHOT)
ODD_TIMES = (Duration.millis(1), Duration.millis(600_001), Duration.days(10**6), Duration.minutes(0))
ODD_SIZES = (Size.gibibytes(0), Size.mebibytes(1536), Size.kibibytes(1), Size.tebibytes(10**6))

# Each callable with the props that it needs, to which one hostile value is added.
PLAIN: dict[Callable[..., Any], dict[str, Any]] = {
    Workers: {"instance_type": "m5.large"},
    Master: {"instance_type": "m5.large"},
    Network: {},
    Software: {},
    Storage: {},
    Lustre: {},
    DataSource: {"name": "train", "bucket": "team-data"},
    EnvironmentCache: {"bucket": "team-bucket"},
    JobEnvironment: {"kind": "container"},
    JobEnvironment.with_horovod: {},
    JobEnvironment.none: {},
    JobEnvironment.from_requirements: {"path": "x"},
    JobEnvironment.from_conda: {"path": "x"},
    JobEnvironment.from_container: {"image": "x"},
    InstanceTypeFacts: {"name": "m5.large"},
    Spending: {},
    Purchase: {},
    Candidate: {},
    Purchase.on_demand: {},
    Purchase.spot: {},
    Purchase.reservation: {"reservation_id": "cr-01234567"},
    Purchase.reservation_group: {"resource_group_arn": "arn:aws:resource-groups:us-east-1:111122223333:group/a"},
    Purchase.capacity_block: {"reservation_id": "cr-01234567"},
    NodeImage: {"login_user": "ubuntu", "parameter": "/a"},
    NodeImage.deep_learning_ubuntu: {},
    NodeImage.deep_learning_amazon_linux: {},
    NodeImage.ubuntu: {},
    NodeImage.from_ssm_parameter: {"parameter": "/a", "login_user": "ubuntu"},
    NodeImage.from_machine_image: {
        "image": ec2.MachineImage.generic_linux({"us-east-1": "ami-01234567"}),
        "like": NodeImage.ubuntu(),
    },
    NodeImage.from_ami_id: {"ami_id": "ami-01234567", "login_user": "ubuntu"},
}
# Constructs with what they need beside the fixture's objects: they are made in a stack, if they take the value at all.
CONSTRUCTS: dict[Callable[..., Any], dict[str, Any]] = {
    LustreFileSystem: {},
    LustreFileSystem.from_attributes: {"dns_name": "fs.example.com", "mount_name": "abc"},
    SharedFileSystem: {},
    SharedFileSystem.from_shared_file_system_attributes: {"file_system_id": "fs-01234567"},
    TrainingImage: {},
}


@pytest.fixture(scope="module")
def stack(make_app):
    return cdk.Stack(make_app(), "Stack")


@pytest.fixture(scope="module")
def objects(stack):
    """Objects of the CDK, and tokens; each is of the wrong kind for most props."""
    number = cdk.CfnParameter(stack, "Number", type="Number")
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"])
    return {
        "stack": stack,
        "vpc": vpc,
        "file system": efs.FileSystem(stack, "Efs", vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnets=[])),
        "bucket": s3.Bucket.from_bucket_name(stack, "Bucket", "team-data"),
        "topic": sns.Topic.from_topic_arn(stack, "Topic", "arn:aws:sns:us-east-1:111122223333:a"),
        "key": kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:us-east-1:111122223333:key/a"),
        "key of a shell": kms.Key.from_key_arn(stack, "Odd", "arn:aws:kms:us-east-1:111122223333:key/$(reboot)"),
        "group": ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-01234567"),
        "everyone": ec2.Peer.any_ipv4(),
        "user data": ec2.UserData.for_windows(),
        "machine image": ec2.MachineImage.latest_amazon_linux2023(),
        "subnet": ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-01234567"),
        "resolvable": cdk.Fn.get_att("Another", "Arn"),
        "text token": number.value_as_string,
        "text token with a command": f"{number.value_as_string}$(reboot)",
        "number token": number.value_as_number,
        "list token": cdk.Fn.split(",", number.value_as_string),
        "time token": Duration.minutes(number.value_as_number),
        "size token": Size.gibibytes(number.value_as_number),
        "size token of MiB": Size.mebibytes(number.value_as_number),
        "parameter": number,
    }


def props_of(callee):
    """Return the props of a callable; of a construct without its place in the tree."""
    made_by_users = (SharedFileSystem, LustreFileSystem, TrainingImage)
    constructs = (TrainingCluster, EmrTraining, SageMakerTraining, EksTraining, *made_by_users)
    made = callee.__init__ if callee in constructs else callee
    return [name for name in inspect.signature(made).parameters if name not in {"self", "scope", "construct_id"}]


def make_and_plan(callee, props):
    made = callee(**props)
    if callee is Candidate:
        callee, made = Workers, Workers(instance_type="m5.large", fallbacks=[made])
    name = next((name for name, value in VALUES.items() if value is callee), None)
    if name in inspect.signature(plan_nodes).parameters:
        values = {value: VALUES[value]() for value in inspect.signature(plan_nodes).parameters}
        plan_nodes(**values | {"workers": Workers(instance_type="m5.large"), str(name): made})


def try_prop(call, where):
    """Return the refusal of a call, which is of the project's form; empty if it takes the value."""
    refusal: ValueError | None = None
    try:
        call()
    except ValueError as error:
        refusal = error
    if refusal is None:
        return ""
    assert type(refusal) is ValueError, f"{where}: {refusal!r}"
    assert FORM.fullmatch(str(refusal)), f"{where}: {refusal}"
    assert len(str(refusal)) < 700, where
    return str(refusal)


def label(callee):
    return callee.__qualname__


@pytest.mark.parametrize(
    ("callee", "prop"),
    [pytest.param(callee, prop, id=f"{label(callee)}-{prop}") for callee in PLAIN for prop in props_of(callee)],
)
def test_a_prop_takes_any_value_or_refuses_it_in_one_line(callee, prop, objects):
    values = [*TEXTS, *NUMBERS, *OTHERS, *ODD_TIMES, *ODD_SIZES, *objects.values()]
    for value in values:
        refusal = try_prop(
            lambda value=value: make_and_plan(callee, PLAIN[callee] | {prop: value}), f"{prop}={show_value(value)}"
        )
        if isinstance(value, str) and value in HOSTILE_TEXTS:
            assert refusal, f"{prop} takes {value!r}"


@pytest.mark.parametrize(
    ("callee", "prop"),
    [pytest.param(callee, prop, id=f"{label(callee)}-{prop}") for callee in CONSTRUCTS for prop in props_of(callee)],
)
def test_a_prop_of_a_construct_refuses_what_is_wrong(callee, prop, objects, stack):
    needed = {"vpc": objects["vpc"], "subnet": objects["subnet"], "security_group": objects["group"]}
    known = CONSTRUCTS[callee] | {name: value for name, value in needed.items() if name in props_of(callee)}
    for index, value in enumerate(
        (*HOSTILE_TEXTS, b"x", 10**5000, math.nan, object(), {}, RemovalPolicy.SNAPSHOT, objects["parameter"])
    ):
        identity = f"{label(callee)}-{prop}-{index}"
        call = lambda value=value, identity=identity: callee(stack, identity, **known | {prop: value})  # noqa: E731
        assert try_prop(call, f"{prop}={show_value(value)}"), f"{prop} takes {show_value(value)}"


class PropsTakenError(Exception):
    """Raised where a cluster has taken its props and would be made."""


CLUSTERS = {
    TrainingCluster: (training_cluster, "plan_nodes"),
    EmrTraining: (Construct, "__init__"),
    SageMakerTraining: (Construct, "__init__"),
    EksTraining: (Construct, "__init__"),
}
"""Clusters, with the function before which each checks its props; the others than EC2's are planned first."""


@pytest.mark.parametrize(
    ("cluster", "prop"),
    [pytest.param(each, prop, id=f"{label(each)}-{prop}") for each in CLUSTERS for prop in props_of(each)],
)
def test_a_prop_of_a_cluster_takes_any_value_or_refuses_it_in_one_line(cluster, prop, objects, stack, monkeypatch):
    def stop(*_, **__):
        raise PropsTakenError

    def make(value):
        with contextlib.suppress(PropsTakenError):
            cluster(stack, "Cluster", **{prop: value})

    monkeypatch.setattr(*CLUSTERS[cluster], stop)
    values = [*TEXTS, *NUMBERS, *OTHERS, *ODD_TIMES, *ODD_SIZES, *objects.values()]
    refused = [value for value in values if try_prop(lambda value=value: make(value), f"{prop}={show_value(value)}")]
    assert all(text in refused for text in HOSTILE_TEXTS)
    assert stack.node.try_find_child("Cluster") is None


@pytest.mark.parametrize("platform", [TrainingCluster, EksTraining, EmrTraining, SageMakerTraining])
def test_every_prop_of_a_platform_is_keyword_only_documented_and_has_a_default(platform):
    section = (inspect.getdoc(platform) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.split(r"(?m)^    (?=\w+: )", section)
    documented = {name: text for name, _, text in (entry.partition(": ") for entry in entries[1:])}
    for parameter in list(inspect.signature(platform.__init__).parameters.values())[3:]:
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is not parameter.empty
        assert "Default: " in re.sub(r"\s+", " ", documented[parameter.name]), parameter.name


def test_every_public_class_is_fuzzed():
    tried = {label(callee).partition(".")[0] for callee in (*PLAIN, *CONSTRUCTS, *CLUSTERS)}
    assert set(deeplearning_cdk.__all__) == tried


def test_every_way_to_make_a_value_is_fuzzed():
    for name in deeplearning_cdk.__all__:
        made = getattr(deeplearning_cdk, name)
        for method, _ in inspect.getmembers(made, inspect.ismethod):
            if method in vars(made):
                assert any(label(callee) == f"{name}.{method}" for callee in (*PLAIN, *CONSTRUCTS)), f"{name}.{method}"


def test_tokens_that_the_template_can_carry_are_taken(make_stack, read_stack):
    stack = make_stack()
    props = {
        "workers.instance_type": "m5.large",
        "workers.volume_size": cdk.Token.as_number({"Ref": "Size"}),
        "storage.file_system": cdk.Token.as_string({"Ref": "FileSystem"}),
        "software.image": NodeImage.from_ami_id(cdk.Token.as_string({"Ref": "Image"}), login_user="ubuntu"),
        "storage.data": [DataSource("train", cdk.Token.as_string({"Ref": "Bucket"}))],
        "key_pair": ec2.KeyPair.from_key_pair_name(stack, "Pair", cdk.Token.as_string({"Ref": "Pair"})),
    }
    TrainingCluster(stack, "Cluster", **cluster_props(props))
    text = str(read_stack(stack).template["Resources"])
    assert all(f"{{'Ref': '{name}'}}" in text for name in ("Size", "Pair", "FileSystem", "Image", "Bucket"))


@pytest.mark.parametrize("size", [300, Size.gibibytes(300), Size.mebibytes(300 * 1024)])
def test_a_volume_has_the_requested_size_in_any_unit(size):
    roles = plan({"workers.volume_size": size}).roles
    assert [count_gibibytes(role.volume_size) for role in roles.values()] == [300, 300]
