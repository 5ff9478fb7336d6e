"""Every field of every value reaches the template: each leaves its own trace there, which is absent without it."""

import json
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk import Candidate, JobEnvironment, Lustre, NodeImage, Purchase, TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, VALUES, props_of

MASTER, WORKER = NodeRole
GROUP_ID, TOPIC = "sg-0123456789abcdef0", "arn:aws:sns:us-east-1:111122223333:mine"


def _group(synthesis, role):
    return synthesis.group(role)["Properties"]


def _volume(synthesis, role):
    (volume,) = synthesis.launch_data(role)["BlockDeviceMappings"]
    return int(volume["Ebs"]["VolumeSize"])


def _texts(synthesis, kind):
    """Return the properties of all resources of a type as text."""
    return json.dumps([entry.get("Properties", {}) for entry in synthesis.of_type(kind).values()])


def _adjuster(synthesis):
    return synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]


def _zones(synthesis):
    return {
        json.dumps(each["Properties"]["AvailabilityZone"]) for each in synthesis.of_type("AWS::EC2::Subnet").values()
    }


def _lustre(synthesis):
    return synthesis.only("AWS::FSx::FileSystem")


def _role_of(synthesis, group):
    return json.dumps(synthesis.part("AWS::IAM::InstanceProfile", f"Nodes{group}Instance")["Properties"]["Roles"])


TRACES: dict[str, Callable[[Any], bool]] = {
    "workers.instance_type": lambda s: s.launch_data(WORKER)["InstanceType"] == "p4d.24xlarge",
    "workers.min_capacity": lambda s: _adjuster(s)["DEEPLEARNING_WORKER_MIN_CAPACITY"] == "2",
    "workers.desired_capacity": lambda s: s.only("Custom::RequestedCapacity")["Workers"] == "4",
    "workers.max_capacity": lambda s: _group(s, WORKER)["MaxSize"] == "8",
    "workers.purchase": lambda s: "12.5" in json.dumps(s.launch_data(WORKER).get("InstanceMarketOptions")),
    "workers.fallbacks": lambda s: "0,us-east-1b-p4d.24xlarge-spot-" in _adjuster(s)["DEEPLEARNING_CANDIDATES"],
    "workers.patience": lambda s: _adjuster(s)["DEEPLEARNING_PATIENCE_SECONDS"] == "90",
    "workers.volume_size": lambda s: _volume(s, WORKER) == 300,
    "workers.setup_script": lambda s: s.settings(WORKER).setup_script is not None,
    "workers.role": lambda s: "Trainers" in _role_of(s, "Workers"),
    "master.instance_type": lambda s: s.launch_data(MASTER)["InstanceType"] == "m5.2xlarge",
    "master.purchase": lambda s: "cr-0123456789abcdef0" in json.dumps(_group(s, MASTER)),
    "master.volume_size": lambda s: _volume(s, MASTER) == 200,
    "master.setup_script": lambda s: s.settings(MASTER).setup_script is not None,
    "master.run_script": lambda s: s.settings(MASTER).run_script is not None,
    "master.ssh_peer": lambda s: "203.0.113.7/32" in _texts(s, "AWS::EC2::SecurityGroup"),
    "master.role": lambda s: "Leader" in _role_of(s, "Master"),
    "network.vpc": lambda s: not [name for name in s.of_type("AWS::EC2::VPC") if name.startswith("Cluster")],
    "network.cidr": lambda s: s.only("AWS::EC2::VPC")["CidrBlock"] == "10.42.0.0/16",
    "network.availability_zone": lambda s: _zones(s) == {'"us-east-1b"'},
    "network.worker_subnet": lambda s: "Chosen" in json.dumps(_group(s, WORKER)["VPCZoneIdentifier"]),
    "network.master_subnet": lambda s: "Other" in json.dumps(_group(s, MASTER)["VPCZoneIdentifier"]),
    "network.isolated": lambda s: '"Interface"' in _texts(s, "AWS::EC2::VPCEndpoint"),
    "network.efa": lambda s: '"efa' not in json.dumps([s.launch_data(role)["NetworkInterfaces"] for role in NodeRole]),
    "network.security_groups": lambda s: "sg-0a1b2c3d" in json.dumps(s.launch_data(WORKER)["NetworkInterfaces"]),
    "software.image": lambda s: s.only("Custom::PinnedImage")["Parameter"] == "/team/ubuntu",
    "software.image_release": lambda s: s.only("Custom::PinnedImage")["Release"] == "2026-11-22",
    "software.environment": lambda s: s.settings(WORKER).needs.environment.kind == "requirements",
    "software.environment_cache": lambda s: s.settings(WORKER).needs.environment.cache is not None,
    "storage.file_system": lambda s: not s.of_type("AWS::EFS::FileSystem"),
    "storage.mount_point": lambda s: s.settings(WORKER).file_system.mount_point == EVERYTHING["storage.mount_point"],
    "storage.throughput": lambda s: s.only("AWS::EFS::FileSystem")["ProvisionedThroughputInMibps"] == 128,
    "storage.backup": lambda s: not s.of_type("AWS::Backup::BackupPlan"),
    "storage.removal_policy": lambda s: s.part("AWS::EFS::FileSystem", "")["DeletionPolicy"] == "Delete",
    "storage.lustre": lambda s: s.settings(WORKER).needs.lustre is not None,
    "storage.data": lambda s: len(s.settings(WORKER).needs.data) == 4,
    "storage.lustre.storage": lambda s: _lustre(s)["StorageCapacity"] == 2400,
    "storage.lustre.deployment": lambda s: _lustre(s)["LustreConfiguration"]["DeploymentType"] == "SCRATCH_2",
    "storage.lustre.throughput": lambda s: _lustre(s)["LustreConfiguration"]["PerUnitStorageThroughput"] == 250,
    "storage.lustre.export": lambda s: "AutoExportPolicy" in _texts(s, "AWS::FSx::DataRepositoryAssociation"),
    "storage.lustre.mount_point": lambda s: s.settings(WORKER).needs.lustre.mount_point == "/scratch",
    "spending.stop_when_idle": lambda s: s.settings(MASTER).stop_when_idle_seconds == 1800,
    "spending.stop_after": lambda s: _adjuster(s)["DEEPLEARNING_STOP_AFTER_SECONDS"] == "3600",
    "spending.monthly_budget_usd": lambda s: s.only("AWS::Budgets::Budget")["Budget"]["BudgetLimit"]["Amount"] == 500,
    "spending.budget_stops": lambda s: "DEEPLEARNING_BUDGET_TOPIC_ARN" in _adjuster(s),
    "key_pair": lambda s: all(s.launch_data(role).get("KeyName") == "mine" for role in NodeRole),
    "encryption_key": lambda s: not s.of_type("AWS::KMS::Key"),
    "alarm_topic": lambda s: TOPIC in _texts(s, "AWS::CloudWatch::Alarm"),
    "setup_timeout": lambda s: s.only("AWS::CloudFormation::WaitCondition")["Timeout"] == "1200",
}
"""Change that each field makes in a template."""

OWN = ("network.vpc", "network.worker_subnet", "network.master_subnet", "network.isolated", "network.security_groups")
OWN += ("workers.role", "master.role", "storage.file_system", "storage.lustre.deployment")
OWN += ("encryption_key", "alarm_topic")
"""Props whose values are made in an app before the cluster, and props that work only with those."""
SEARCH = {
    "workers.instance_type": "p4d.24xlarge",
    "network.availability_zone": "us-east-1b",
    "workers.fallbacks": [Candidate(purchase=Purchase.spot())],
    "workers.patience": Duration.seconds(90),
}
"""Values of a cluster with fallbacks."""


@pytest.fixture(scope="module")
def in_the_users_vpc(make_app, read_stack):
    """Return a synthesized cluster that stands on what its user has."""
    stack = cdk.Stack(make_app(), "Stack")
    zone, ec2_service = "us-east-1a", iam.ServicePrincipal("ec2.amazonaws.com")
    vpc = ec2.Vpc(stack, "Vpc", availability_zones=[zone], nat_gateways=0, restrict_default_security_group=False)
    subnets = [
        ec2.PrivateSubnet(stack, name, vpc_id=vpc.vpc_id, availability_zone=zone, cidr_block=f"10.0.{place}.0/24")
        for place, name in enumerate(("Chosen", "Other"), 200)
    ]
    group = ec2.SecurityGroup.from_security_group_id(stack, "Mount", GROUP_ID)
    further = ec2.SecurityGroup.from_security_group_id(stack, "Further", "sg-0a1b2c3d")
    files = efs.FileSystem.from_file_system_attributes(
        stack, "Files", file_system_id="fs-0123456789abcdef0", security_group=group
    )
    props = {
        "workers.instance_type": "m5.large",
        "workers.role": iam.Role(stack, "Trainers", assumed_by=ec2_service),
        "master.role": iam.Role(stack, "Leader", assumed_by=ec2_service),
        "network.vpc": vpc,
        "network.worker_subnet": subnets[0],
        "network.master_subnet": subnets[1],
        "network.isolated": True,
        "network.security_groups": [further],
        "software.image": NodeImage.ubuntu(has_packages=True),
        "software.environment": JobEnvironment.none(),
        "storage.file_system": files,
        "storage.lustre": Lustre(deployment="scratch"),
        "encryption_key": kms.Key.from_key_arn(stack, "Key", "arn:aws:kms:us-east-1:111122223333:key/mine"),
        "alarm_topic": sns.Topic.from_topic_arn(stack, "Topic", TOPIC),
    }
    TrainingCluster(stack, "Cluster", **props_of(props))
    return read_stack(stack)


def _is_there(trace, synthesis):
    try:
        return trace(synthesis)
    except (AttributeError, KeyError, ValueError):
        return False


def test_every_field_has_a_trace():
    named = {f"{value}.{field.name}" for value, make in VALUES.items() for field in fields(make)}
    plain = {*list(signature(TrainingCluster.__init__).parameters)[3:]} - set(VALUES)
    assert named | plain | {f"storage.lustre.{field.name}" for field in fields(Lustre)} == set(TRACES)


@pytest.mark.parametrize("field", TRACES)
def test_the_trace_of_a_field_is_in_the_template_with_it_and_absent_without(synthesize, in_the_users_vpc, field):
    given = SEARCH if field in ("workers.fallbacks", "workers.patience") else EVERYTHING
    assert _is_there(TRACES[field], in_the_users_vpc if field in OWN else synthesize(**given))
    assert not _is_there(TRACES[field], synthesize())


@pytest.mark.defect("D53")
def test_the_mount_targets_of_a_users_file_system_admit_the_nodes(in_the_users_vpc):
    assert not in_the_users_vpc.of_type("AWS::EFS::MountTarget")
    assert f'"GroupId": "{GROUP_ID}"' in _texts(in_the_users_vpc, "AWS::EC2::SecurityGroupIngress")
    assert in_the_users_vpc.settings(MASTER).file_system.source.startswith("fs-0123456789abcdef0.efs.")


# --- Names of the CDK --------------------------------------------------------------------------------


def test_a_nested_dict_in_pythons_spelling_would_be_lost_and_every_test_here_refuses_it(make_stack):
    owner = {"owner_uid": "1", "owner_gid": "1", "permissions": "0755"}
    with pytest.raises(AssertionError, match=r"would lose .*creation_info"):
        efs.CfnAccessPoint(
            make_stack(), "Point", file_system_id="fs-1", root_directory={"path": "/a", "creation_info": owner}
        )
