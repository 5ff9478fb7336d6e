"""The shared file system is the cluster's own, an existing one, or that of another cluster."""

from typing import Any

import pytest
from aws_cdk import Size
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import DataSource, NodeImage, TrainingCluster
from deeplearning_contract.names import NodeRole

CPU = {"worker_instance_type": "m5.large"}
FILE_SYSTEM = "AWS::EFS::FileSystem"


# --- Throughput ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("throughput", "mode", "mebibytes"),
    [(None, "elastic", None), ("elastic", "elastic", None), ("bursting", "bursting", None)],
)
def test_throughput_is_elastic_unless_asked_otherwise(
    synthesize: Any, throughput: Any, mode: str, mebibytes: int | None
) -> None:
    properties = synthesize(file_system_throughput=throughput, **CPU).only(FILE_SYSTEM)
    assert (properties["ThroughputMode"], properties.get("ProvisionedThroughputInMibps")) == (mode, mebibytes)


def test_a_size_for_each_second_is_provisioned(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    TrainingCluster(stack, "Cluster", file_system_throughput=Size.gibibytes(1), **CPU)
    properties = read_stack(stack).only(FILE_SYSTEM)
    assert (properties["ThroughputMode"], properties["ProvisionedThroughputInMibps"]) == ("provisioned", 1024)


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"file_system_throughput": "fast"},
            "file_system_throughput must be one of elastic, bursting or a Size, got 'fast'; ",
        ),
        (
            {"file_system_throughput": Size.mebibytes(4000)},
            "file_system_throughput must be from 1 to 3414 MiB each second, got 4000 MiB; ",
        ),
        (
            {"file_system_throughput": "bursting", "file_system_id": "fs-0123abcd"},
            "file_system_throughput must be left out with file_system_id, got both; the file system has its own",
        ),
    ],
)
def test_a_throughput_that_cannot_be_is_refused(make_stack: Any, props: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        TrainingCluster(make_stack(), "Cluster", **props)
    assert str(caught.value).startswith(message)


# --- One file system of two clusters ------------------------------------------------------------------


@pytest.fixture
def pair(make_stack: Any, read_stack: Any) -> Any:
    """Return a function that makes two clusters in one stack, the second with the file system of the first."""

    def make(first: dict[str, Any] | None = None, **second: Any) -> Any:
        stack = make_stack()
        one = TrainingCluster(stack, "One", **CPU, **(first or {}))
        props = {"vpc": one.network.vpc, "file_system": one.file_system, **CPU, **second}
        TrainingCluster(stack, "Two", **{name: value for name, value in props.items() if value != "leave out"})
        return read_stack(stack)

    return make


def _user_data(synthesis: Any, cluster: str) -> str:
    """Return the user data of a cluster's workers, found by its logical ids."""
    names = [name for name in synthesis.of_type("AWS::EC2::LaunchTemplate") if name.startswith(cluster)]
    (name,) = (name for name in names if "Workers" in name)
    data = synthesis.template["Resources"][name]["Properties"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]
    return "".join(part if isinstance(part, str) else str(part) for part in data["Fn::Join"][1])


@pytest.mark.defect("D53")
def test_a_second_cluster_mounts_the_first_ones_file_system_through_its_mount_target(pair: Any) -> None:
    synthesis = pair()
    assert (len(synthesis.of_type(FILE_SYSTEM)), len(synthesis.of_type("AWS::EFS::MountTarget"))) == (1, 1)
    (name,) = synthesis.of_type(FILE_SYSTEM)
    for cluster in ("One", "Two"):
        assert name in _user_data(synthesis, cluster)
    (group,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if "OneFileSystem" in name)
    admitted = {
        rule["Properties"]["SourceSecurityGroupId"]["Fn::GetAtt"][0]
        for rule in synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()
        if rule["Properties"]["GroupId"] == {"Fn::GetAtt": [group, "GroupId"]}
    }
    assert {name[:3] for name in admitted} == {"One", "Two"}
    assert len(admitted) == 2


def test_nodes_of_the_second_wait_for_the_file_system_and_those_of_the_first_for_nothing_of_the_second(
    pair: Any,
) -> None:
    synthesis = pair()
    groups = list(synthesis.of_type("AWS::AutoScaling::AutoScalingGroup"))
    first, second = ([name for name in groups if name.startswith(cluster)] for cluster in ("One", "Two"))
    (target,) = synthesis.of_type("AWS::EFS::MountTarget")
    (rule,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroupIngress") if "TwoFileSystemFromNodes" in name)
    for name in second:
        assert {target, rule} <= synthesis.before(name)
    for name in first:
        assert not [found for found in synthesis.before(name) if found.startswith("Two")]
    assert (len(first), len(second)) == (2, 2)


def test_the_second_may_mount_it_elsewhere(pair: Any) -> None:
    synthesis = pair(mount_point="/shared")
    found = {cluster: '"mount_point":"/shared"' in _user_data(synthesis, cluster) for cluster in ("One", "Two")}
    assert found == {"One": False, "Two": True}


def test_both_go_through_one_access_point_where_the_image_has_iam(pair: Any) -> None:
    amazon = {"image": NodeImage.deep_learning_amazon_linux()}
    synthesis = pair(amazon, **amazon)
    assert len(synthesis.of_type("AWS::EFS::AccessPoint")) == 1
    mounting = [
        name
        for name, policy in synthesis.of_type("AWS::IAM::ManagedPolicy").items()
        if "elasticfilesystem:ClientMount" in str(policy)
    ]
    assert sorted(name[:3] for name in mounting) == ["One", "One", "Two", "Two"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"vpc": "leave out"}, "vpc must be that of file_system, got another or none; pass vpc="),
        ({"file_system_id": "fs-0123abcd"}, "file_system_id must be left out with file_system, which has its own, "),
        ({"file_system_throughput": "bursting"}, "file_system_throughput must be left out with file_system, which "),
        (
            {"image": NodeImage.deep_learning_amazon_linux()},
            "image must mount file_system as the cluster does that has made it, nfs4, got efs; take images of one ",
        ),
    ],
)
def test_what_contradicts_the_shared_file_system_is_refused(pair: Any, second: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        pair(**second)
    assert str(caught.value).startswith(message)


def test_nodes_in_another_zone_are_refused(make_stack: Any) -> None:
    stack = make_stack(region="us-east-1")
    vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-east-1a", "us-east-1b"])
    one = TrainingCluster(stack, "One", vpc=vpc, **CPU)
    with pytest.raises(
        ValueError, match="worker_subnet must lie in the zone of file_system, got us-east-1b and us-east"
    ):
        TrainingCluster(stack, "Two", vpc=vpc, file_system=one.file_system, availability_zone="us-east-1b", **CPU)


def test_two_masters_never_stage_into_one_folder(pair: Any) -> None:
    data = [DataSource("train", "team-data", "train/")]
    with pytest.raises(ValueError, match="data must be staged by one cluster of a file system, got 'train' from "):
        pair({"data": data}, data=data)
    pair({"data": data}, data=[DataSource("train", "team-data", "train/", "local")])


@pytest.mark.parametrize("role", list(NodeRole))
def test_existing_file_system_with_a_mount_target_is_mounted_through_it(
    make_stack: Any, read_stack: Any, role: NodeRole
) -> None:
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    TrainingCluster(stack, "Cluster", file_system_id="fs-0123abcd", mount_target_security_group=group, **CPU)
    synthesis = read_stack(stack)
    assert synthesis.settings(role).file_system.source.startswith("fs-0123abcd.efs.")
    assert not synthesis.of_type("AWS::EFS::MountTarget")
