"""Subnets, endpoints and file systems of the account fit the nodes of a stack."""

import dataclasses

import boto3
import pytest

from deeplearning_cli.account.answers import Answers, Refused, Subnet, read_answers
from deeplearning_cli.account.demand import NodeDemand, Zone, list_demands
from deeplearning_cli.account.endpoints import VpcAnswer, VpcNeeds, judge_vpcs, list_vpcs, read_vpcs
from deeplearning_cli.account.mount_targets import (
    FileSystem,
    MountTarget,
    judge_file_systems,
    list_file_systems,
    read_mount_targets,
)
from deeplearning_cli.account.subnets import count_interfaces, judge_subnets
from deeplearning_contract.names import CANDIDATE_TAG, ROLE_TAG

WORKERS = NodeDemand("Workers", "worker", "0", "p5.48xlarge", 3, Zone(subnet="subnet-1"), vpc="vpc-1")
MASTER = dataclasses.replace(WORKERS, group="Master", role="master", count=1)
FALLBACK = dataclasses.replace(WORKERS, group="Others", candidate="us-east-1a-p4d.24xlarge", count=5)


# --- Subnets ------------------------------------------------------------------------------------------


def judge_subnet(free, *demands, interfaces=0, vpc="vpc-1"):
    answers = Answers(subnets={"subnet-1": Subnet("us-east-1a", vpc, free)})
    (found,) = judge_subnets(demands, {"subnet-1": interfaces}, answers)
    return found


@pytest.mark.parametrize(("free", "state"), [(4, "ok"), (3, "wrong")])
def test_a_subnet_has_an_address_for_each_node_of_a_candidate(free, state):
    found = judge_subnet(free, MASTER, WORKERS)
    assert (found.state, found.detail) == (state, f"{free} addresses are free, the stack takes 4")
    assert bool(found.remedy) == (state == "wrong")


@pytest.mark.parametrize(("free", "state"), [(5, "ok"), (4, "wrong")])
def test_candidates_in_one_subnet_launch_one_at_a_time(free, state):
    assert judge_subnet(free, MASTER, WORKERS, FALLBACK).state == state


@pytest.mark.parametrize(("free", "state"), [(11, "ok"), (10, "wrong")])
def test_endpoints_and_mount_targets_take_addresses_too(free, state):
    found = judge_subnet(free, MASTER, WORKERS, interfaces=7)
    assert (found.state, "takes 11, 7 of them for endpoints" in found.detail) == (state, True)


def test_a_subnet_of_another_vpc_is_wrong():
    found = judge_subnet(99, WORKERS, vpc="vpc-2")
    assert (found.state, found.detail) == ("wrong", "it is in vpc-2, the nodes are for vpc-1")
    assert judge_subnet(99, dataclasses.replace(WORKERS, vpc=""), vpc="vpc-2").state == "ok"


def test_a_subnet_that_does_not_exist_is_wrong_and_one_that_is_not_shown_unknown():
    (found,) = judge_subnets([WORKERS], {}, Answers())
    assert (found.state, found.remedy) == ("wrong", "correct the id")
    (found,) = judge_subnets([WORKERS], {}, Answers(subnets=Refused("no")))
    assert (found.state, found.remedy) == ("unknown", "allow ec2:DescribeSubnets")
    assert list(judge_subnets([dataclasses.replace(WORKERS, zone=Zone(index=0))], {}, Answers())) == []


def make_template(**data):
    """Return a template whose workers launch in a subnet of the account, with settings of their launch template."""
    tags = [{"Key": ROLE_TAG, "Value": "worker"}, {"Key": CANDIDATE_TAG, "Value": "0"}]
    group = {"LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"}}, "VPCZoneIdentifier": ["subnet-1"]}
    group |= {"DesiredCapacity": "2", "Tags": tags}
    launch = {"LaunchTemplateData": {"InstanceType": "p5.48xlarge", **data}}
    resources = {
        "Workers": ("AWS::AutoScaling::AutoScalingGroup", group),
        "Template": ("AWS::EC2::LaunchTemplate", launch),
        "Group": ("AWS::EC2::SecurityGroup", {"VpcId": "vpc-1"}),
        "OwnGroup": ("AWS::EC2::SecurityGroup", {"VpcId": {"Ref": "Vpc"}}),
        "Target": ("AWS::EFS::MountTarget", {"SubnetId": "subnet-1"}),
        "OwnTarget": ("AWS::EFS::MountTarget", {"SubnetId": {"Ref": "Subnet"}}),
        "Endpoint": ("AWS::EC2::VPCEndpoint", {"SubnetIds": ["subnet-1", "subnet-2"]}),
        "Gateway": ("AWS::EC2::VPCEndpoint", {}),
    }
    return {"Resources": {name: {"Type": kind, "Properties": entry} for name, (kind, entry) in resources.items()}}


def test_interfaces_for_efa_alone_take_no_address():
    cards = [{"NetworkCardIndex": 0}, {"InterfaceType": "efa-only"}, {"InterfaceType": "efa-only"}]
    (demand,) = list_demands([make_template(NetworkInterfaces=cards)])
    assert demand.addresses == 1
    (demand,) = list_demands([make_template(NetworkInterfaces=[{"InterfaceType": "efa"}, {"InterfaceType": "efa"}])])
    assert (demand.addresses, judge_subnet(3, demand).state) == (2, "wrong")
    (demand,) = list_demands([make_template()])
    assert demand.addresses == 1


def test_the_vpc_of_the_nodes_is_that_of_their_security_groups():
    for name, vpc in {"Group": "vpc-1", "OwnGroup": ""}.items():
        groups = [{"Fn::GetAtt": [name, "GroupId"]}]
        (one,) = list_demands([make_template(SecurityGroupIds=groups)])
        (other,) = list_demands([make_template(NetworkInterfaces=[{"Groups": groups}])])
        assert (one.vpc, other.vpc) == (vpc, vpc)
    (named,) = list_demands([make_template(SecurityGroupIds=["sg-1"])])
    assert named.vpc == ""


def test_a_stack_creates_interfaces_for_mount_targets_and_endpoints():
    assert count_interfaces([make_template()]) == {"subnet-1": 2, "subnet-2": 1}


@pytest.mark.usefixtures("aws")
def test_a_subnet_is_read_with_its_free_addresses():
    clients = {name: boto3.client(name, region_name="us-east-1") for name in ("ec2", "ssm")}
    vpc = clients["ec2"].create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
    small = {"VpcId": vpc, "CidrBlock": "10.7.0.0/28", "AvailabilityZone": "us-east-1b"}
    subnet = clients["ec2"].create_subnet(**small)["Subnet"]["SubnetId"]
    zones = [Zone(subnet=subnet), Zone(subnet="subnet-0123456789abcdef0")]
    demands = [dataclasses.replace(WORKERS, zone=zone) for zone in zones]
    answers = read_answers(clients.__getitem__, demands, [])
    assert answers.subnets == {subnet: Subnet("us-east-1b", vpc, 11)}
    assert [answers.place(zone) for zone in zones] == ["us-east-1b", ""]


# --- Endpoints ----------------------------------------------------------------------------------------

ON = {"enableDnsSupport": True, "enableDnsHostnames": True}
SQS = "com.amazonaws.us-east-1.sqs"


def judge_vpc(attributes=ON, names=None, services=(SQS,)):
    answers = {"vpc-1": VpcAnswer(attributes, names if names is not None else {})}
    return {
        each.subject: (each.state, each.detail, each.remedy)
        for each in judge_vpcs([VpcNeeds("vpc-1", services)], answers)
    }


def test_a_vpc_with_dns_and_free_names_is_ok():
    found = judge_vpc(names={"com.amazonaws.us-east-1.logs": "vpce-1"})
    assert {state for state, _, _ in found.values()} == {"ok"}
    assert list(found) == ["DNS of vpc-1", "private DNS of vpc-1"]
    assert list(judge_vpc(services=())) == ["DNS of vpc-1"]


def test_an_endpoint_with_the_same_private_name_is_wrong():
    state, detail, remedy = judge_vpc(names={SQS: "vpce-1"})["private DNS of vpc-1"]
    assert (state, detail) == ("wrong", f"a service has one private name in a VPC: vpce-1 has that of {SQS}")
    assert remedy.startswith("leave network.isolated out")


@pytest.mark.parametrize("name", ON)
def test_a_dns_attribute_that_is_off_is_wrong(name):
    state, detail, remedy = judge_vpc({**ON, name: False}, services=())["DNS of vpc-1"]
    option = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}[name]
    assert (state, detail) == ("wrong", f"{name} must be on, got off")
    assert remedy == f"aws ec2 modify-vpc-attribute --vpc-id vpc-1 {option}"


def test_what_is_not_shown_is_unknown_and_a_missing_vpc_wrong():
    found = judge_vpc(Refused("no"), Refused("no"))
    assert found["DNS of vpc-1"] == ("unknown", "no", "allow ec2:DescribeVpcAttribute")
    assert found["private DNS of vpc-1"] == ("unknown", "no", "allow ec2:DescribeVpcEndpoints")
    assert judge_vpc(None) == {
        "DNS of vpc-1": ("wrong", "the account has no such VPC in this region", "correct the id")
    }


def make_endpoint(vpc, service, **properties):
    entry = {"VpcId": vpc, "ServiceName": service, "VpcEndpointType": "Interface", "PrivateDnsEnabled": True}
    return {"Type": "AWS::EC2::VPCEndpoint", "Properties": entry | properties}


def test_only_private_names_in_a_vpc_of_the_account_are_looked_for():
    joined = {"Fn::Join": ["", ["com.amazonaws.", {"Ref": "AWS::Region"}, ".logs"]]}
    resources = {
        "Sqs": make_endpoint("vpc-1", SQS),
        "Logs": make_endpoint("vpc-1", joined),
        "Own": make_endpoint({"Ref": "Vpc"}, SQS),
        "Gateway": make_endpoint("vpc-2", SQS, VpcEndpointType="Gateway", PrivateDnsEnabled=False),
    }
    needs = VpcNeeds("vpc-1", (SQS, "com.amazonaws.us-east-1.logs"))
    assert list_vpcs([{"Resources": resources}], [], "us-east-1") == (needs,)
    assert list_vpcs([{}], [WORKERS], "us-east-1") == (VpcNeeds("vpc-1"),)


@pytest.mark.usefixtures("aws")
def test_a_vpc_is_read_with_its_attributes_and_private_names():
    ec2 = boto3.client("ec2", region_name="us-east-1")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
    made = {}
    for service, is_private in {SQS: True, "com.amazonaws.us-east-1.logs": False}.items():
        options = {"VpcEndpointType": "Interface", "PrivateDnsEnabled": is_private}
        made[service] = ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=service, **options)["VpcEndpoint"]
    found = read_vpcs(ec2, [VpcNeeds(vpc, (SQS,)), VpcNeeds("vpc-0123456789abcdef0")])
    assert found[vpc].attributes == {"enableDnsSupport": True, "enableDnsHostnames": False}
    assert found[vpc].names == {SQS: made[SQS]["VpcEndpointId"]}
    assert found["vpc-0123456789abcdef0"] == VpcAnswer(None, {})


# --- File systems -------------------------------------------------------------------------------------

A, B = Zone(name="us-east-1a"), Zone(name="us-east-1b")
IN_ZONES = tuple(dataclasses.replace(WORKERS, zone=zone, candidate=str(number)) for number, zone in enumerate((A, B)))
TARGETS = tuple(MountTarget(zone.name, "vpc-1", "available") for zone in (A, B))


def judge_file_system(targets=TARGETS, *, added=(), demands=IN_ZONES, **answers):
    file_systems = [FileSystem("fs-1", added)]
    (found,) = judge_file_systems(file_systems, {"fs-1": targets}, demands, Answers(**answers))
    return found.state, found.detail, found.remedy


def test_a_mount_target_in_every_zone_is_ok():
    assert judge_file_system() == ("ok", "it has, or gets, a mount target in us-east-1a, us-east-1b", "")
    assert judge_file_system((), added=(A, B))[0] == "ok"
    assert judge_file_system(TARGETS[1:], added=(A,))[0] == "ok"


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        (TARGETS[:1], "us-east-1b missing"),
        ((TARGETS[0], MountTarget("us-east-1b", "vpc-1", "creating")), "us-east-1b creating"),
    ],
)
def test_a_zone_of_a_fallback_without_an_available_mount_target_is_wrong(targets, text):
    state, detail, remedy = judge_file_system(targets)
    assert (state, detail) == ("wrong", f"its mount targets must be available where nodes are, got {text}")
    assert remedy.startswith("add a mount target there")


def test_a_second_mount_target_in_a_zone_is_wrong():
    state, detail, remedy = judge_file_system(added=(A, B))
    assert (state, detail) == ("wrong", "a zone takes one mount target, and us-east-1a has one already")
    assert "security group" in remedy


def test_mount_targets_in_another_vpc_are_wrong():
    targets = tuple(dataclasses.replace(each, vpc="vpc-2") for each in TARGETS)
    for added in ((), (Zone(name="us-east-1c"),)):
        assert judge_file_system(targets, added=added)[:2] == (
            "wrong",
            "its mount targets are in vpc-2, the nodes in vpc-1",
        )


def test_what_is_not_shown_is_unknown_and_a_missing_file_system_wrong():
    assert judge_file_system(Refused("no")) == ("unknown", "no", "allow elasticfilesystem:DescribeMountTargets")
    assert judge_file_system(None)[::2] == ("wrong", "correct the id")
    own = (dataclasses.replace(WORKERS, zone=Zone(index=0)),)
    state, _, remedy = judge_file_system(demands=own, zones=Refused("no"))
    assert (state, "ec2:DescribeAvailabilityZones" in remedy) == ("unknown", True)
    assert judge_file_system(demands=own)[0] == "unknown"


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


@pytest.mark.usefixtures("aws")
def test_mount_targets_are_read_with_zone_vpc_and_state():
    clients = {name: boto3.client(name, region_name="us-east-1") for name in ("ec2", "efs")}
    vpc = clients["ec2"].create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
    place = {"VpcId": vpc, "CidrBlock": "10.7.0.0/28", "AvailabilityZone": "us-east-1b"}
    subnet = clients["ec2"].create_subnet(**place)["Subnet"]["SubnetId"]
    name = clients["efs"].create_file_system(CreationToken="mine")["FileSystemId"]
    clients["efs"].create_mount_target(FileSystemId=name, SubnetId=subnet)
    found = read_mount_targets(clients.__getitem__, [FileSystem(name), FileSystem("fs-0123456789abcdef0")])
    assert found == {name: (MountTarget("us-east-1b", vpc, "available"),), "fs-0123456789abcdef0": None}
