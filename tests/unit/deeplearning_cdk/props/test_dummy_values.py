"""
An app that looks things up in the account synthesizes before the CDK CLI has found them, and after.

The first run sees dummy values; its assembly names what is missing, and the CLI writes that to `cdk.context.json`.
"""

import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm

from deeplearning_cdk import JobEnvironment, Lustre, Network, NodeImage, TrainingCluster
from deeplearning_cdk.network.addresses import check_subnet
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.props.check import is_dummy_value
from tests.unit.deeplearning_cdk.clusters import plan, props_of

ACCOUNT, REGION = "111122223333", "us-east-1"
VPC_KEY = (
    f"vpc-provider:account={ACCOUNT}:filter.vpc-id=vpc-0123456789abcdef0:region={REGION}:returnAsymmetricSubnets=true"
)


def _subnets(kind, ids, zones):
    return {
        "name": kind,
        "type": kind,
        "subnets": [
            {
                "subnetId": f"subnet-{ids}{zone}",
                "routeTableId": f"rtb-{ids}{zone}",
                "availabilityZone": f"{REGION}{zone}",
                "cidr": f"10.{ids}.{number}.0/27",
            }
            for number, zone in enumerate(zones)
        ],
    }


FILE_SYSTEM_KEY = f"ssm:account={ACCOUNT}:parameterName=/team/file-system:region={REGION}"
CACHED = {
    VPC_KEY: {
        "vpcId": "vpc-0123456789abcdef0",
        "vpcCidrBlock": "10.0.0.0/8",
        "availabilityZones": [],
        "subnetGroups": [_subnets("Private", "1", "ab"), _subnets("Public", "2", "ab")],
    },
    FILE_SYSTEM_KEY: "fs-0123abcd",
}
"""Values that the CLI writes to cdk.context.json."""


@pytest.fixture
def look_up(make_app):
    """Return a function from a cached context to a stack and its VPC, which is looked up."""

    def make(context):
        stack = cdk.Stack(make_app(**context), "Stack", env=cdk.Environment(account=ACCOUNT, region=REGION))
        return stack, ec2.Vpc.from_lookup(stack, "Mine", vpc_id="vpc-0123456789abcdef0")

    return make


@pytest.mark.parametrize(("context", "missing"), [({}, {VPC_KEY, FILE_SYSTEM_KEY}), (CACHED, set())])
def test_a_cluster_requests_missing_look_ups_and_uses_present_ones(look_up, context, missing):
    stack, vpc = look_up(context)
    props = {
        "workers.instance_type": "m5.large",
        "workers.desired_capacity": 18,
        "master.ssh_peer": "203.0.113.0/24",
        "network.vpc": vpc,
        "network.availability_zone": "us-east-1b",
        "network.isolated": True,
        "software.environment": JobEnvironment.from_container("team/train:1"),
        "software.image": NodeImage.ubuntu(has_packages=True),
        "storage.file_system": ssm.StringParameter.value_from_lookup(stack, "/team/file-system"),
        "storage.lustre": Lustre(),
    }
    TrainingCluster(stack, "Cluster", **props_of(props))
    artifact = stack.node.root.synth().get_stack_by_name("Stack")
    manifest = json.loads((Path(artifact.assembly.directory) / "manifest.json").read_text())
    assert {entry["key"] for entry in manifest.get("missing", [])} == missing
    if not missing:
        resources = artifact.template["Resources"].values()
        subnets = [entry["Properties"].get("VPCZoneIdentifier") for entry in resources if "Properties" in entry]
        assert sorted(found for found in subnets if found) == [["subnet-1b"], ["subnet-2b"]]
        assert "fs-0123abcd" in str(artifact.template)
        # What else is told here saves a cluster: warnings about isolated nodes and Lustre stand at the cluster.
        warnings = str([message.entry.data for message in artifact.messages])
        assert "environmentWithoutInternet" in warnings
        assert "lustreClientNotInstalled" in warnings


@pytest.mark.parametrize("zone", [None, "us-east-1b"])
@pytest.mark.parametrize("public_master", [False, True])
@pytest.mark.parametrize("isolated", [False, True])
def test_nodes_are_in_the_zones_subnets_of_a_vpc_that_is_looked_up(look_up, zone, *, public_master, isolated):
    for context in ({}, CACHED):
        stack, vpc = look_up(context)
        chosen = Network(vpc=vpc, availability_zone=zone, isolated=isolated)
        network = ClusterNetwork(stack, "Network", chosen, public_master=public_master)
    letter = (zone or "us-east-1a")[-1]
    assert network.worker_subnet.subnet_id == f"subnet-1{letter}"
    assert network.master_subnet.subnet_id == f"subnet-{2 if public_master else 1}{letter}"


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"workers.desired_capacity": 26},
            r"must not exceed the 25 addresses that network\.worker_subnet 10\.1\.0\.0/27 has",
        ),
        (
            {"network.availability_zone": "us-east-1c"},
            r"network\.worker_subnet must be given when network\.vpc has no private subnet in us-east-1c",
        ),
    ],
)
def test_looked_up_values_are_checked(look_up, props, message):
    stack, vpc = look_up(CACHED)
    with pytest.raises(ValueError, match=message):
        TrainingCluster(stack, "Cluster", **props_of({"network.vpc": vpc, **props}))


def test_a_network_of_an_own_subnet_may_be_written_with_host_bits(make_stack):
    subnet = ec2.Subnet.from_subnet_attributes(
        make_stack(), "Mine", subnet_id="subnet-0", availability_zone="us-east-1a", ipv4_cidr_block="10.1.0.7/27"
    )
    with pytest.raises(
        ValueError, match=r"must not exceed the 25 addresses that network\.worker_subnet 10\.1\.0\.7/27 has"
    ):
        check_subnet(subnet, has_master=True, master=plan().master, most_workers=26, is_public=False, isolated=False)


@pytest.mark.parametrize("value", ["us-east-1a", "10.0.0.0/16", "fs-0123abcd", "ami-12345678", "", None, 5])
def test_a_real_value_is_no_dummy_value(value):
    assert not is_dummy_value(value)
