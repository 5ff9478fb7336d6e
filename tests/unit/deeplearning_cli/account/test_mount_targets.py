"""A file system of the account has one mount target in every zone of the nodes, in their VPC."""

import dataclasses

import boto3
import moto
import pytest

from deeplearning_cli.account.answers import Answers, Refused
from deeplearning_cli.account.demand import NodeDemand, Zone
from deeplearning_cli.account.mount_targets import (
    FileSystem,
    MountTarget,
    judge_file_systems,
    list_file_systems,
    read_mount_targets,
)

A, B = Zone(name="us-east-1a"), Zone(name="us-east-1b")
WORKERS = NodeDemand("Workers", "worker", "0", "p5.48xlarge", 3, A, vpc="vpc-1")
FALLBACK = dataclasses.replace(WORKERS, candidate="1", zone=B)
TARGETS = tuple(MountTarget(zone.name, "vpc-1", "available") for zone in (A, B))


def judge_one(targets=TARGETS, *, added=(), demands=(WORKERS, FALLBACK), **answers):
    file_systems = [FileSystem("fs-1", added)]
    (found,) = judge_file_systems(file_systems, {"fs-1": targets}, demands, Answers(**answers))
    return found.state, found.detail, found.remedy


def test_a_mount_target_in_every_zone_is_ok():
    assert judge_one() == ("ok", "it has, or gets, a mount target in us-east-1a, us-east-1b", "")
    assert judge_one((), added=(A, B))[0] == "ok"
    assert judge_one(TARGETS[1:], added=(A,))[0] == "ok"


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        (TARGETS[:1], "us-east-1b missing"),
        ((TARGETS[0], MountTarget("us-east-1b", "vpc-1", "creating")), "us-east-1b creating"),
    ],
)
def test_a_zone_of_a_fallback_without_an_available_mount_target_is_wrong(targets, text):
    state, detail, remedy = judge_one(targets)
    assert (state, detail) == ("wrong", f"its mount targets must be available where nodes are, got {text}")
    assert remedy.startswith("add a mount target there")


def test_a_second_mount_target_in_a_zone_is_wrong():
    state, detail, remedy = judge_one(added=(A, B))
    assert (state, detail) == ("wrong", "a zone takes one mount target, and us-east-1a has one already")
    assert "security group" in remedy


def test_mount_targets_in_another_vpc_are_wrong():
    targets = tuple(dataclasses.replace(each, vpc="vpc-2") for each in TARGETS)
    for added in ((), (Zone(name="us-east-1c"),)):
        assert judge_one(targets, added=added)[:2] == ("wrong", "its mount targets are in vpc-2, the nodes in vpc-1")


def test_what_is_not_shown_is_unknown_and_a_missing_file_system_wrong():
    assert judge_one(Refused("no")) == ("unknown", "no", "allow elasticfilesystem:DescribeMountTargets")
    assert judge_one(None)[::2] == ("wrong", "correct the id")
    own = (dataclasses.replace(WORKERS, zone=Zone(index=0)),)
    state, _, remedy = judge_one(demands=own, zones=Refused("no"))
    assert (state, "ec2:DescribeAvailabilityZones" in remedy) == ("unknown", True)
    assert judge_one(demands=own)[0] == "unknown"


@pytest.mark.parametrize(
    "source", ['{"kind":"nfs4","source":"fs-1a.efs.us-east-1.", ":/"}', '{"kind": "efs", "source": "fs-1a:/"}']
)
def test_a_file_system_is_named_by_settings_of_nodes_or_by_a_mount_target(source):
    settings = {"Fn::Base64": {"Fn::Join": ["", ['{"file_system":', source, {"Ref": "Other"}]]}}
    launch = {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": {"UserData": settings}}}
    target = {"Type": "AWS::EFS::MountTarget", "Properties": {"FileSystemId": "fs-1a", "SubnetId": "subnet-1"}}
    own = {"Type": "AWS::EFS::MountTarget", "Properties": {"FileSystemId": {"Ref": "Own"}, "SubnetId": "subnet-1"}}
    assert list_file_systems([{"Resources": {"Template": launch}}]) == (FileSystem("fs-1a"),)
    both = {"Target": target, "Template": launch, "OwnTarget": own}
    assert list_file_systems([{"Resources": both}]) == (FileSystem("fs-1a", (Zone(subnet="subnet-1"),)),)


def test_mount_targets_are_read_with_zone_vpc_and_state(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        clients = {name: boto3.client(name, region_name="us-east-1") for name in ("ec2", "efs")}
        vpc = clients["ec2"].create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
        place = {"VpcId": vpc, "CidrBlock": "10.7.0.0/28", "AvailabilityZone": "us-east-1b"}
        subnet = clients["ec2"].create_subnet(**place)["Subnet"]["SubnetId"]
        name = clients["efs"].create_file_system(CreationToken="mine")["FileSystemId"]
        clients["efs"].create_mount_target(FileSystemId=name, SubnetId=subnet)
        found = read_mount_targets(clients.__getitem__, [FileSystem(name), FileSystem("fs-0123456789abcdef0")])
    assert found == {name: (MountTarget("us-east-1b", vpc, "available"),), "fs-0123456789abcdef0": None}
