"""
A user's VPC without a gateway endpoint of S3 is warned about.

Gateway endpoints "come at no additional charge" (AWS Prescriptive Guidance, startup security baseline, WKLD.12,
docs.aws.amazon.com/prescriptive-guidance/latest/aws-startup-security-baseline/wkld-12.html); a NAT gateway charges for
each gigabyte.
"""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import Network
from deeplearning_cdk.network.cluster_network import ClusterNetwork

S3, DYNAMODB = ec2.GatewayVpcEndpointAwsService.S3, ec2.GatewayVpcEndpointAwsService.DYNAMODB


@pytest.fixture
def warn(make_stack, read_stack):
    """Return a function from what is done to a VPC after the network is made to the warnings about its endpoints."""

    def make(alter=None, **values):
        stack = make_stack()
        vpc = ec2.Vpc(stack, "Mine", max_azs=1, restrict_default_security_group=False)
        ClusterNetwork(stack, "Network", Network(vpc=vpc, **values))
        if alter is not None:
            alter(stack, vpc)
        return [text for text in read_stack(stack).warnings if "gateway endpoint of S3" in text]

    return make


@pytest.mark.defect("D57")
def test_a_vpc_without_the_endpoint_is_warned_about_once_with_the_way_to_add_it(warn):
    (warning,) = warn()
    assert "vpc.add_gateway_endpoint(" in warning
    assert "deeplearning_cdk:noGatewayEndpoint" in warning


@pytest.mark.parametrize(
    "alter",
    [
        lambda _, vpc: vpc.add_gateway_endpoint("S3", service=S3),
        lambda stack, vpc: ec2.GatewayVpcEndpoint(stack, "S3", vpc=vpc, service=S3),
        lambda stack, vpc: ec2.CfnVPCEndpoint(
            stack, "S3", vpc_id=vpc.vpc_id, service_name=cdk.Fn.sub("com.amazonaws.${AWS::Region}.s3")
        ),
    ],
    ids=["of the vpc", "beside it", "as a resource"],
)
def test_an_endpoint_that_is_made_after_the_network_is_seen(warn, alter):
    assert warn(alter) == []


def test_an_endpoint_of_another_service_is_none_of_s3(warn):
    assert len(warn(lambda _, vpc: vpc.add_gateway_endpoint("Table", service=DYNAMODB))) == 1


def test_isolated_nodes_get_the_endpoint(warn):
    assert warn(isolated=True) == []


def test_the_vpc_of_another_cluster_has_the_endpoint_and_a_new_one_too(make_stack, read_stack):
    stack = make_stack()
    first = ClusterNetwork(stack, "First", Network())
    ClusterNetwork(stack, "Second", Network(vpc=first.vpc))
    assert not [text for text in read_stack(stack).warnings if "gateway endpoint of S3" in text]


def test_a_user_who_has_the_endpoint_elsewhere_acknowledges_the_warning(make_stack, read_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Mine",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["us-east-1a"],
        private_subnet_ids=["subnet-0"],
        private_subnet_route_table_ids=["rtb-0"],
    )
    network = ClusterNetwork(stack, "Network", Network(vpc=vpc))
    cdk.Annotations.of(network).acknowledge_warning("deeplearning_cdk:noGatewayEndpoint", "the landing zone has it")
    assert not [text for text in read_stack(stack).warnings if "gateway endpoint of S3" in text]
