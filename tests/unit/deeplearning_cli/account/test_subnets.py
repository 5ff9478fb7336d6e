"""Subnets of the account have free addresses for all nodes of a candidate, and are in the VPC of the nodes."""

import dataclasses

import boto3
import moto
import pytest

from deeplearning_cli.account.answers import Answers, Refused, Subnet, read_answers
from deeplearning_cli.account.demand import NodeDemand, Zone, list_demands
from deeplearning_cli.account.subnets import count_interfaces, judge_subnets
from deeplearning_contract.names import CANDIDATE_TAG, ROLE_TAG

WORKERS = NodeDemand("Workers", "worker", "0", "p5.48xlarge", 3, Zone(subnet="subnet-1"), vpc="vpc-1")
MASTER = dataclasses.replace(WORKERS, group="Master", role="master", count=1)
FALLBACK = dataclasses.replace(WORKERS, group="Others", candidate="us-east-1a-p4d.24xlarge", count=5)


def judge_one(free, *demands, interfaces=0, vpc="vpc-1"):
    answers = Answers(subnets={"subnet-1": Subnet("us-east-1a", vpc, free)})
    (found,) = judge_subnets(demands, {"subnet-1": interfaces}, answers)
    return found


@pytest.mark.parametrize(("free", "state"), [(4, "ok"), (3, "wrong")])
def test_a_subnet_has_an_address_for_each_node_of_a_candidate(free, state):
    found = judge_one(free, MASTER, WORKERS)
    assert (found.state, found.detail) == (state, f"{free} addresses are free, the stack takes 4")
    assert bool(found.remedy) == (state == "wrong")


@pytest.mark.parametrize(("free", "state"), [(5, "ok"), (4, "wrong")])
def test_candidates_in_one_subnet_launch_one_at_a_time(free, state):
    assert judge_one(free, MASTER, WORKERS, FALLBACK).state == state


@pytest.mark.parametrize(("free", "state"), [(11, "ok"), (10, "wrong")])
def test_endpoints_and_mount_targets_take_addresses_too(free, state):
    found = judge_one(free, MASTER, WORKERS, interfaces=7)
    assert (found.state, "takes 11, 7 of them for endpoints" in found.detail) == (state, True)


def test_a_subnet_of_another_vpc_is_wrong():
    found = judge_one(99, WORKERS, vpc="vpc-2")
    assert (found.state, found.detail) == ("wrong", "it is in vpc-2, the nodes are for vpc-1")
    assert judge_one(99, dataclasses.replace(WORKERS, vpc=""), vpc="vpc-2").state == "ok"


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
    assert (demand.addresses, judge_one(3, demand).state) == (2, "wrong")
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


def test_a_subnet_is_read_with_its_free_addresses(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
        clients = {name: boto3.client(name, region_name="us-east-1") for name in ("ec2", "ssm")}
        vpc = clients["ec2"].create_vpc(CidrBlock="10.7.0.0/24")["Vpc"]["VpcId"]
        small = {"VpcId": vpc, "CidrBlock": "10.7.0.0/28", "AvailabilityZone": "us-east-1b"}
        subnet = clients["ec2"].create_subnet(**small)["Subnet"]["SubnetId"]
        zones = [Zone(subnet=subnet), Zone(subnet="subnet-0123456789abcdef0")]
        demands = [dataclasses.replace(WORKERS, zone=zone) for zone in zones]
        answers = read_answers(clients.__getitem__, demands, [])
    assert answers.subnets == {subnet: Subnet("us-east-1b", vpc, 11)}
    assert [answers.place(zone) for zone in zones] == ["us-east-1b", ""]
