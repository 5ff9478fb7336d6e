"""
The orders in which CloudFormation may create and delete resources, and the errors of services for what came too early.

"The order of creation, update, and deletion is not deterministic" without `DependsOn` (CloudFormation template
reference, "DependsOn attribute"). Each error has an issue or page as its source.
"""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_rehearsal.embedded_aws.cloudformation.template import draw_order
from tests.real_time import GENEROUS_SECONDS

NETWORK = {
    "Vpc": ("EC2::VPC", {"CidrBlock": "10.9.0.0/16"}),
    "Gateway": ("EC2::InternetGateway", {}),
    "Attachment": (
        "EC2::VPCGatewayAttachment",
        {"VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}},
    ),
    "Table": ("EC2::RouteTable", {"VpcId": {"Ref": "Vpc"}}),
    "Route": (
        "EC2::Route",
        {
            "RouteTableId": {"Ref": "Table"},
            "DestinationCidrBlock": "0.0.0.0/0",
            "GatewayId": {"Ref": "Gateway"},
        },
    ),
    "Subnet": ("EC2::Subnet", {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.9.0.0/24"}),
    "Address": ("EC2::EIP", {"Domain": "vpc"}),
    "Nat": (
        "EC2::NatGateway",
        {"AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]}, "SubnetId": {"Ref": "Subnet"}},
    ),
}
FLOWS = {
    "Group": ("Logs::LogGroup", {}),
    "Role": (
        "IAM::Role",
        {
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Action": "sts:AssumeRole",
                        "Principal": {"Service": "vpc-flow-logs.amazonaws.com"},
                    }
                ],
            }
        },
    ),
    "Policy": (
        "IAM::Policy",
        {
            "PolicyName": "delivery",
            "Roles": [{"Ref": "Role"}],
            "PolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "logs:*", "Resource": "*"}],
            },
        },
    ),
    "Flows": (
        "EC2::FlowLog",
        {
            "ResourceType": "VPC",
            "ResourceId": {"Ref": "Vpc"},
            "TrafficType": "ALL",
            "LogGroupName": {"Ref": "Group"},
            "DeliverLogsPermissionArn": {"Fn::GetAtt": ["Role", "Arn"]},
        },
    ),
}
NEEDS = {"Route": "Attachment", "Nat": "Attachment", "Flows": "Policy"}


TRY_ALL = """
import json, sys
from cdk_rehearsal import try_orders
json.dump({folder: try_orders(folder, 5) for folder in sys.argv[1:]}, sys.stdout)
"""


@pytest.fixture(scope="module")
def failures(assemble, tmp_path_factory):
    """The failures in five orders of the sample network, by the dependency that it lacks; all in one process."""
    folder, tried = tmp_path_factory.mktemp("assemblies"), {}
    for lacking in ("", *NEEDS):
        resources = {
            key: {"Type": f"AWS::{kind}", "Properties": properties}
            | ({"DependsOn": NEEDS[key]} if key in NEEDS and key != lacking else {})
            for key, (kind, properties) in (NETWORK | FLOWS).items()
        }
        tried[lacking] = str(assemble(folder / f"without-{lacking}", {"Resources": resources}))
    command = [sys.executable, "-c", TRY_ALL, *tried.values()]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=GENEROUS_SECONDS, check=True)
    found = json.loads(ended.stdout)
    return {lacking: found[assembly] for lacking, assembly in tried.items()}


def test_a_stack_with_all_its_dependencies_is_created_and_deleted_in_every_order(failures):
    assert failures[""] == []


@pytest.mark.parametrize(
    ("lacking", "error"),
    [
        # aws/aws-cdk issue 1140.
        ("Route", "belong to different networks"),
        # giantswarm/aws-operator pull request 1234.
        ("Nat", "is in state failed and hence failed to stabilize. Detailed failure message: Network vpc-"),
        # VPC user guide, "IAM role for publishing flow logs to CloudWatch Logs".
        ("Flows", "denied logs:DescribeLogStreams: User: arn:aws:sts::123456789012:assumed-role/"),
    ],
)
def test_a_missing_dependency_is_named_with_the_seed_of_the_order_that_it_fails(failures, lacking, error):
    assert failures[lacking]
    assert all(failure.startswith("seed ") and error in failure for failure in failures[lacking])


TRY_WITH_DEFECT = """
import sys
from moto.sqs.models import SQSBackend
from cdk_rehearsal.embedded_aws.resources import CREATORS
from cdk_rehearsal.main import main

def fail(*_, **__):
    raise TypeError("planted")

SQSBackend.create_queue = CREATORS["AWS::SNS::Topic"] = fail
sys.exit(main([sys.argv[1], "--orders", "1", "--no-referees"]))
"""


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("AWS::SQS::Queue", "Made: the rehearsal could not carry out sqs.CreateQueue, AWS may: TypeError: planted"),
        ("AWS::SNS::Topic", "Made: the rehearsal could not create AWS::SNS::Topic, AWS may: TypeError: planted"),
    ],
)
def test_a_defect_of_the_rehearsal_is_no_failure_of_the_stack(assemble, tmp_path, kind, said):
    assembly = assemble(tmp_path / "app", {"Resources": {"Made": {"Type": kind}}})
    command = [sys.executable, "-c", TRY_WITH_DEFECT, str(assembly)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS_SECONDS, check=False)
    assert ended.returncode == 2, ended.stderr
    assert f"no verdict: the rehearsal failed because of its own limits, AWS may not:\n  {said}" in ended.stderr


@given(st.dictionaries(st.integers(0, 30), st.sets(st.integers(0, 30))), st.integers(0, 1000))
def test_an_order_has_every_name_once_and_after_its_needs(graph, seed):
    needs = {
        str(name): {str(other) for other in others if other < name and other in graph} for name, others in graph.items()
    }
    order = draw_order(needs, seed)
    assert sorted(order) == sorted(needs)
    assert all(order.index(other) < order.index(name) for name in needs for other in needs[name])
    assert order == draw_order(needs, seed)
