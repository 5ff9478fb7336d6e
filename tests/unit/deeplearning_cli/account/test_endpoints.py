"""Private names of endpoints need the DNS attributes of their VPC, and one endpoint has them."""

import boto3
import moto
import pytest

from deeplearning_cli.account.answers import Refused
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.endpoints import VpcAnswer, VpcNeeds, judge_vpcs, list_vpcs, read_vpcs

ON = {"enableDnsSupport": True, "enableDnsHostnames": True}
SQS = "com.amazonaws.us-east-1.sqs"
WORKERS = NodeDemand("Workers", "worker", "0", "p5.48xlarge", 3, vpc="vpc-1")


def judge_one(attributes=ON, names=None, services=(SQS,)):
    answers = {"vpc-1": VpcAnswer(attributes, names if names is not None else {})}
    return {
        each.subject: (each.state, each.detail, each.remedy)
        for each in judge_vpcs([VpcNeeds("vpc-1", services)], answers)
    }


def test_a_vpc_with_dns_and_free_names_is_ok():
    found = judge_one(names={"com.amazonaws.us-east-1.logs": "vpce-1"})
    assert {state for state, _, _ in found.values()} == {"ok"}
    assert list(found) == ["DNS of vpc-1", "private DNS of vpc-1"]
    assert list(judge_one(services=())) == ["DNS of vpc-1"]


def test_an_endpoint_with_the_same_private_name_is_wrong():
    state, detail, remedy = judge_one(names={SQS: "vpce-1"})["private DNS of vpc-1"]
    assert (state, detail) == ("wrong", f"a service has one private name in a VPC: vpce-1 has that of {SQS}")
    assert remedy.startswith("leave network.isolated out")


@pytest.mark.parametrize("name", ON)
def test_a_dns_attribute_that_is_off_is_wrong(name):
    state, detail, remedy = judge_one({**ON, name: False}, services=())["DNS of vpc-1"]
    option = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}[name]
    assert (state, detail) == ("wrong", f"{name} must be on, got off")
    assert remedy == f"aws ec2 modify-vpc-attribute --vpc-id vpc-1 {option}"


def test_what_is_not_shown_is_unknown_and_a_missing_vpc_wrong():
    found = judge_one(Refused("no"), Refused("no"))
    assert found["DNS of vpc-1"] == ("unknown", "no", "allow ec2:DescribeVpcAttribute")
    assert found["private DNS of vpc-1"] == ("unknown", "no", "allow ec2:DescribeVpcEndpoints")
    assert judge_one(None) == {
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


def test_a_vpc_is_read_with_its_attributes_and_private_names(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with moto.mock_aws():
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
