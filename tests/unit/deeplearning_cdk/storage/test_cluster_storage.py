"""The shared file system is the cluster's own, an existing one, or that of another cluster."""

import json

import aws_cdk as cdk
import pytest
from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import DataSource, NodeImage, SharedFileSystem, Storage, TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import props_of
from tests.unit.deeplearning_cdk.storage.stores import import_vpc, store

CPU = {"workers.instance_type": "m5.large"}
FILE_SYSTEM = "AWS::EFS::FileSystem"


# --- Throughput ---------------------------------------------------------------------------------------


@pytest.mark.fault(62)
def test_throughput_is_elastic_by_default_and_a_size_per_second_is_provisioned(make_stack, read_stack):
    stack = make_stack()
    vpc = import_vpc(stack)
    for name, throughput in (("A", None), ("B", "elastic"), ("C", "bursting"), ("D", Size.gibibytes(1))):
        store(stack, vpc, name, throughput=throughput)
    found = {name[0]: entry["Properties"] for name, entry in read_stack(stack).of_type(FILE_SYSTEM).items()}
    assert {
        name: (each["ThroughputMode"], each.get("ProvisionedThroughputInMibps")) for name, each in found.items()
    } == {
        "A": ("elastic", None),
        "B": ("elastic", None),
        "C": ("bursting", None),
        "D": ("provisioned", 1024),
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"throughput": "fast"}, "storage.throughput must be one of elastic, bursting or a Size, got 'fast'; "),
        (
            {"throughput": Size.mebibytes(4000)},
            "storage.throughput must be from 1 to 3414 MiB each second, got 4000 MiB; ",
        ),
    ],
)
def test_a_throughput_that_cannot_be_is_refused(values, message):
    with pytest.raises(ValueError, match="must") as caught:
        Storage(**values)
    assert str(caught.value).startswith(message)


# --- One file system of two clusters ------------------------------------------------------------------


def _user_data(synthesis, cluster):
    """Return the user data of a cluster's workers, found by its logical ids."""
    names = [name for name in synthesis.of_type("AWS::EC2::LaunchTemplate") if name.startswith(cluster)]
    (name,) = (name for name in names if "Workers" in name)
    data = synthesis.template["Resources"][name]["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]
    return "".join(part if isinstance(part, str) else str(part) for part in data["Fn::Join"][1])


@pytest.mark.defect("D53")
def test_a_second_cluster_mounts_the_first_ones_file_system_through_its_mount_target(pair):
    assert (len(pair.of_type(FILE_SYSTEM)), len(pair.of_type("AWS::EFS::MountTarget"))) == (1, 1)
    (name,) = pair.of_type(FILE_SYSTEM)
    for cluster, is_elsewhere in (("One", False), ("Two", True)):
        assert name in _user_data(pair, cluster)
        assert ('"mount_point":"/shared"' in _user_data(pair, cluster)) is is_elsewhere
    (group,) = (name for name in pair.of_type("AWS::EC2::SecurityGroup") if "OneFileSystem" in name)
    admitted = {
        rule["Properties"]["SourceSecurityGroupId"]["Fn::GetAtt"][0]
        for rule in pair.of_type("AWS::EC2::SecurityGroupIngress").values()
        if rule["Properties"]["GroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    }
    assert sorted(name[:3] for name in admitted) == ["One", "Two"]
    # All go through one access point where the image has IAM.
    assert len(pair.of_type("AWS::EFS::AccessPoint")) == 1
    policies = pair.of_type("AWS::IAM::ManagedPolicy").items()
    mounting = [name for name, policy in policies if "elasticfilesystem:ClientMount" in str(policy)]
    assert sorted(name[:3] for name in mounting) == ["One", "One", "Two", "Two"]


def test_nodes_of_the_second_wait_for_the_file_system_and_those_of_the_first_for_nothing_of_the_second(pair):
    groups = list(pair.of_type("AWS::AutoScaling::AutoScalingGroup"))
    first, second = ([name for name in groups if name.startswith(cluster)] for cluster in ("One", "Two"))
    (target,) = pair.of_type("AWS::EFS::MountTarget")
    (rule,) = (name for name in pair.of_type("AWS::EC2::SecurityGroupIngress") if "TwoFileSystemFromNodes" in name)
    for name in second:
        assert {target, rule} <= pair.before(name)
    for name in first:
        assert not [found for found in pair.before(name) if found.startswith("Two")]
    assert (len(first), len(second)) == (2, 2)


def test_props_that_contradict_the_shared_file_system_are_refused(make_stack):
    stack = make_stack(region="us-east-1")
    vpc, other = import_vpc(stack), import_vpc(stack, "Other")
    shared = SharedFileSystem(stack, "Shared", vpc=vpc, subnet=vpc.private_subnets[0])
    with pytest.raises(
        ValueError, match=r"^network\.vpc must be the VPC of storage\.file_system, got another or none; pass N"
    ):
        store(stack, other, "Elsewhere", file_system=shared)
    message = r"^software\.image must have the file_system_mode nfs4 of storage\.file_system, got efs; use images "
    with pytest.raises(ValueError, match=message):
        store(stack, vpc, "WithIam", "efs", file_system=shared)


def test_nodes_in_another_zone_are_refused(make_stack):
    stack = make_stack(region="us-east-1")
    subnet = import_vpc(stack, zone="us-east-1b").private_subnets[0]
    shared = SharedFileSystem(stack, "Shared", vpc=import_vpc(cdk.Stack(stack, "There")), subnet=subnet)
    said = r"^network\.worker_subnet must lie in the zone of storage\.file_system, got us-east-1a and us-east-1b; pass "
    with pytest.raises(ValueError, match=said):
        store(stack, shared.vpc, file_system=shared)


def test_two_masters_never_stage_into_one_folder(make_stack):
    stack = make_stack()
    vpc = import_vpc(stack)
    first = store(stack, vpc, "First", data=[DataSource("train", "team-data", "train/")])
    local = DataSource("train", "team-data", "train/", "local")
    store(stack, vpc, "Local", file_system=first.file_system, data=[local])
    said = (
        r"storage\.data must be staged by one cluster of a file system, got 'train' from Stack/Second and Stack/First; "
    )
    with pytest.raises(ValueError, match=said):
        store(stack, vpc, "Second", file_system=first.file_system, data=[DataSource("train", "team-data", "train/")])


# --- The file system of a cluster in another app ------------------------------------------------------


def _take(stack, vpc, **values):
    return SharedFileSystem.from_shared_file_system_attributes(
        stack,
        "Theirs",
        file_system_id="fs-0123abcd",
        vpc=vpc,
        subnet=vpc.private_subnets[0],
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0"),
        **values,
    )


def test_the_file_system_of_another_app_is_mounted_with_plain_nfs_and_only_a_rule_is_made(make_stack, read_stack):
    stack = make_stack()
    vpc = import_vpc(stack)
    theirs = _take(stack, vpc)
    storage = store(stack, vpc, file_system=theirs)
    assert (storage.file_system, storage.settings.kind) == (theirs, "nfs4")
    assert storage.settings.source.startswith("fs-0123abcd.efs.")
    assert theirs.mount_statements() == []
    synthesis = read_stack(stack)
    assert not [entry for entry in synthesis.template["Resources"].values() if entry["Type"].startswith("AWS::EFS")]
    rules = [entry["Properties"] for entry in synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()]
    (nfs,) = [rule for rule in rules if rule["GroupId"] == "sg-0123456789abcdef0"]
    assert "NodesSecurityGroup" in json.dumps(nfs["SourceSecurityGroupId"])
    assert (nfs["FromPort"], nfs["ToPort"]) == (2049, 2049)


def test_the_file_system_of_another_app_with_iam_is_mounted_through_its_access_point_and_no_other(
    make_stack, read_stack
):
    stack = make_stack()
    vpc = import_vpc(stack)
    theirs = _take(stack, vpc, access_point_id="fsap-0123456789abcdef0")
    image = {"software.image": NodeImage.deep_learning_amazon_linux()}
    props = {"network.vpc": vpc, "storage.file_system": theirs, **image, **CPU}
    TrainingCluster(stack, "Cluster", **props_of(props))
    synthesis = read_stack(stack)
    assert not [entry for entry in synthesis.template["Resources"].values() if entry["Type"].startswith("AWS::EFS")]
    partition, region, account = ({"Ref": f"AWS::{name}"} for name in ("Partition", "Region", "AccountId"))
    parts = ["arn:", partition, ":elasticfilesystem:", region, ":", account, ":access-point/fsap-0123456789abcdef0"]
    arn = {"Fn::Join": ["", parts]}
    for role, part in ((NodeRole.MASTER, "MasterRole"), (NodeRole.WORKER, "WorkerRole")):
        settings = synthesis.settings(role).file_system
        assert (settings.kind, settings.source) == ("efs", "fs-0123abcd:/")
        assert settings.options == "tls,iam,accesspoint=fsap-0123456789abcdef0"
        (mount,) = [each for each in synthesis.statements(part) if "elasticfilesystem:" in str(each["Action"])]
        assert mount["Action"] == ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"]
        assert "file-system/${Id}" in str(mount["Resource"])
        assert mount["Condition"] == {"StringEquals": {"elasticfilesystem:AccessPointArn": arn}}
    with pytest.raises(
        ValueError, match=r"^software\.image must have the file_system_mode efs of storage\.file_system, got nfs4; "
    ):
        store(stack, vpc, "Plain", file_system=theirs)


def test_an_invalid_access_point_is_refused(make_stack):
    stack = make_stack()
    with pytest.raises(
        ValueError, match=r"^access_point_id must be fsap- and hex digits, got 'fs-0123abcd'; list yours "
    ):
        _take(stack, import_vpc(stack), access_point_id="fs-0123abcd")
