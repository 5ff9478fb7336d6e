"""
An app that looks things up in the account synthesizes before the CDK CLI has found them, and after.

The first run sees stand-ins; its assembly names what is missing, and the CLI writes that to `cdk.context.json`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm

from deeplearning_cdk import JobEnvironment, LustreFileSystem, NodeImage, TrainingCluster
from deeplearning_cdk.props.looked_up import is_stand_in

ACCOUNT, REGION = "111122223333", "us-east-1"
CPU = {"worker_instance_type": "m5.large"}
VPC_KEY = (
    f"vpc-provider:account={ACCOUNT}:filter.vpc-id=vpc-0123456789abcdef0:region={REGION}:returnAsymmetricSubnets=true"
)


def _subnets(kind: str, ids: str, zones: str) -> dict[str, Any]:
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


CACHED = {
    VPC_KEY: {
        "vpcId": "vpc-0123456789abcdef0",
        "vpcCidrBlock": "10.0.0.0/8",
        "availabilityZones": [],
        "subnetGroups": [_subnets("Private", "1", "ab"), _subnets("Public", "2", "ab")],
    }
}
"""What the CLI writes to cdk.context.json."""


@pytest.fixture
def look_up(make_app: Callable[..., cdk.App]) -> Callable[..., Any]:
    """Return a function from a cached context and props to the assembly of a cluster in a VPC that is looked up."""

    def make(context: dict[str, Any], *, has_lustre: bool = False, **props: Any) -> Any:
        app = make_app(**context)
        stack = cdk.Stack(app, "Stack", env=cdk.Environment(account=ACCOUNT, region=REGION))
        vpc = ec2.Vpc.from_lookup(stack, "Mine", vpc_id="vpc-0123456789abcdef0")
        more = {"lustre": LustreFileSystem(stack, "Lustre")} if has_lustre else {}
        TrainingCluster(stack, "Cluster", vpc=vpc, **CPU, **props, **more)
        return app.synth().get_stack_by_name("Stack")

    return make


@pytest.fixture
def read_missing() -> Callable[[Any], list[str]]:
    """Return a function from a stack's artifact to the keys of the context that its assembly asks the CLI for."""

    def read(artifact: Any) -> list[str]:
        manifest = json.loads((Path(artifact.assembly.directory) / "manifest.json").read_text())
        return [entry["key"] for entry in manifest.get("missing", [])]

    return read


PLACES: dict[str, dict[str, Any]] = {
    "plain": {},
    "in a zone": {"availability_zone": "us-east-1b"},
    "public master": {"ssh_peer": "203.0.113.0/24", "availability_zone": "us-east-1b"},
    "isolated": {
        "isolated": True,
        "environment": JobEnvironment.none(),
        "efa": False,
        "image": NodeImage.ubuntu(has_packages=True),
    },
    "many workers": {"worker_desired_capacity": 24},
    "lustre": {"has_lustre": True},
}


@pytest.mark.parametrize("props", PLACES.values(), ids=PLACES)
def test_a_vpc_that_is_not_looked_up_yet_is_asked_for(look_up: Any, read_missing: Any, props: dict[str, Any]) -> None:
    assert read_missing(look_up({}, **props)) == [VPC_KEY]


@pytest.mark.parametrize("props", PLACES.values(), ids=PLACES)
def test_a_vpc_that_was_looked_up_is_taken(look_up: Any, read_missing: Any, props: dict[str, Any]) -> None:
    artifact = look_up(CACHED, **props)
    assert read_missing(artifact) == []
    groups = [
        entry["Properties"]["VPCZoneIdentifier"]
        for entry in artifact.template["Resources"].values()
        if entry["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    ]
    zone = props.get("availability_zone", "us-east-1a")[-1]
    expected = [[f"subnet-2{zone}"], [f"subnet-1{zone}"]] if "ssh_peer" in props else [[f"subnet-1{zone}"]] * 2
    assert sorted(groups, reverse=True) == expected


def test_what_was_looked_up_is_checked(look_up: Any) -> None:
    with pytest.raises(ValueError, match=r"must not exceed the 25 addresses that worker_subnet 10\.1\.0\.0/27 has"):
        look_up(CACHED, worker_desired_capacity=26)
    with pytest.raises(
        ValueError, match="worker_subnet must be given when the vpc has no private subnet in us-east-1c"
    ):
        look_up(CACHED, availability_zone="us-east-1c")


def test_a_network_of_an_own_subnet_may_be_written_with_host_bits(make_app: Callable[..., cdk.App]) -> None:
    stack = cdk.Stack(make_app(), "Stack")
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Mine",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["us-east-1a"],
        private_subnet_ids=["subnet-0"],
        private_subnet_route_table_ids=["rtb-0"],
        private_subnet_ipv4_cidr_blocks=["10.1.0.7/27"],
    )
    with pytest.raises(ValueError, match=r"must not exceed the 25 addresses that worker_subnet 10\.1\.0\.7/27 has"):
        TrainingCluster(stack, "Cluster", vpc=vpc, worker_desired_capacity=26, **CPU)


def test_a_file_system_whose_id_is_a_parameter_is_asked_for(
    make_app: Callable[..., cdk.App], read_missing: Any
) -> None:
    app = make_app()
    stack = cdk.Stack(app, "Stack", env=cdk.Environment(account=ACCOUNT, region=REGION))
    file_system_id = ssm.StringParameter.value_from_lookup(stack, "/team/file-system")
    TrainingCluster(stack, "Cluster", file_system_id=file_system_id, **CPU)
    # The zones are those that the CDK asks for with any new VPC.
    keys = [key for key in read_missing(app.synth().get_stack_by_name("Stack")) if not key.startswith("availability-")]
    assert keys == [f"ssm:account={ACCOUNT}:parameterName=/team/file-system:region={REGION}"]


@pytest.mark.parametrize("value", ["us-east-1a", "10.0.0.0/16", "fs-0123abcd", "ami-12345678", "", None, 5])
def test_what_is_real_is_no_stand_in(value: object) -> None:
    assert not is_stand_in(value)
