"""FSx for Lustre is made in the nodes' zone, is linked to the user's bucket, and is there before the nodes are."""

import json
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, LustreFileSystem, NodeImage, TrainingCluster
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings

FILE_SYSTEM, LINK = "AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation"
RULE = "AWS::EC2::SecurityGroupIngress"
CPU = {"worker_instance_type": "m5.large"}
WITH_DATA: dict[str, Any] = {**CPU, "data": [DataSource("train", "team-data", "coco/train/", "lustre")]}


@pytest.fixture
def mount(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> Callable[..., Any]:
    """Return a function from props of the file system to the synthesis of a cluster that mounts it."""

    def make(cluster: dict[str, Any] | None = None, **props: Any) -> Any:
        stack = make_stack()
        TrainingCluster(stack, "Cluster", lustre=LustreFileSystem(stack, "Lustre", **props), **(cluster or CPU))
        return read_stack(stack)

    return make


def test_without_props_it_is_the_smallest_persistent_one_in_the_nodes_subnet(mount: Any) -> None:
    synthesis = mount()
    properties = synthesis.only(FILE_SYSTEM)
    (group,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if name.startswith("Lustre"))
    workers = synthesis.group(NodeRole.WORKER)["Properties"]["VPCZoneIdentifier"]
    (key,) = synthesis.of_type("AWS::KMS::Key")
    (cluster,) = properties.pop("Tags")
    assert cluster["Key"] == "deeplearning:cluster"
    assert properties == {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "KmsKeyId": {"Fn::GetAtt": [key, "Arn"]},
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        "SecurityGroupIds": [{"Fn::GetAtt": [group, "GroupId"]}],
        "StorageCapacity": 1200,
        "StorageType": "SSD",
        "SubnetIds": workers,
    }
    assert not synthesis.of_type(LINK)


def test_scratch_storage_has_its_own_throughput(mount: Any) -> None:
    properties = mount(deployment="scratch", storage=Size.tebibytes(1200 / 1024)).only(FILE_SYSTEM)
    assert properties["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2"}
    # FSx refuses a key for it, and encrypts it with one of its own (FSx for Lustre user guide, encryption at rest).
    assert "KmsKeyId" not in properties


@pytest.mark.parametrize(("gibibytes", "throughput"), [(1200, 1000), (2400, 500), (7200, 250)])
def test_size_and_throughput_are_those_that_fsx_has(mount: Any, gibibytes: int, throughput: int) -> None:
    properties = mount(storage=Size.gibibytes(gibibytes), throughput=throughput).only(FILE_SYSTEM)
    assert properties["StorageCapacity"] == gibibytes
    assert properties["LustreConfiguration"]["PerUnitStorageThroughput"] == throughput


@pytest.mark.parametrize("role", list(NodeRole))
def test_nodes_mount_it_by_its_name_beside_the_shared_file_system(mount: Any, role: NodeRole) -> None:
    synthesis = mount()
    (name,) = synthesis.of_type(FILE_SYSTEM)
    settings = synthesis.settings(role)
    source = f"<{name}.DNSName>@tcp:/<{name}.LustreMountName>"
    assert settings.needs.lustre == FileSystemSettings("lustre", source, "relatime,flock", "/fsx")
    assert settings.file_system.mount_point == "/efs"


def test_clients_and_servers_reach_each_other_on_lustres_ports_and_no_others(mount: Any) -> None:
    synthesis = mount()
    (own,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if name.startswith("Lustre"))
    (nodes,) = (name for name in synthesis.of_type("AWS::EC2::SecurityGroup") if "NodesSecurityGroup" in name)
    rules = [
        (
            entry["GroupId"]["Fn::GetAtt"][0],
            entry["SourceSecurityGroupId"]["Fn::GetAtt"][0],
            entry["FromPort"],
            entry["ToPort"],
        )
        for entry in (rule["Properties"] for rule in synthesis.of_type(RULE).values())
        if own in json.dumps(entry)
    ]
    pairs = [(own, own), (own, nodes), (nodes, own)]
    assert sorted(rules) == sorted((*pair, *ports) for pair in pairs for ports in ((988, 988), (1018, 1023)))
    assert all(rule["Properties"]["IpProtocol"] in ("tcp", "-1") for rule in synthesis.of_type(RULE).values())


@pytest.mark.parametrize("role", list(NodeRole))
def test_no_node_starts_before_it_can_mount_it(mount: Any, role: NodeRole) -> None:
    synthesis = mount(WITH_DATA)
    before = synthesis.before(synthesis.group_id(role))
    for kind in (FILE_SYSTEM, LINK, RULE):
        assert set(synthesis.of_type(kind)) <= before, kind
    (wait,) = synthesis.of_type("AWS::CloudFormation::WaitCondition")
    assert set(synthesis.of_type(FILE_SYSTEM)) <= synthesis.before(wait)


# --- Link to a bucket ---------------------------------------------------------------------------------


def test_data_is_a_folder_of_its_name_that_follows_the_bucket_and_does_not_write_it(mount: Any) -> None:
    synthesis = mount(WITH_DATA)
    (name,) = synthesis.of_type(FILE_SYSTEM)
    link = synthesis.only(LINK)
    (cluster,) = link.pop("Tags")
    assert cluster["Key"] == "deeplearning:cluster"
    assert link == {
        "BatchImportMetaDataOnCreate": True,
        "DataRepositoryPath": "s3://team-data/coco/train/",
        "FileSystemId": {"Ref": name},
        "FileSystemPath": "/train",
        "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}},
    }


def test_changes_are_exported_when_asked(mount: Any) -> None:
    assert mount(WITH_DATA, export=True).only(LINK)["S3"]["AutoExportPolicy"] == {
        "Events": ["NEW", "CHANGED", "DELETED"]
    }


def test_data_with_other_targets_is_not_linked(mount: Any) -> None:
    assert not mount({**CPU, "data": [DataSource("train", "team-data", "coco/train/")]}).of_type(LINK)


def test_a_bucket_of_the_same_stack_is_linked_by_its_name(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    bucket = s3.Bucket(stack, "Data")
    data = [DataSource("all", bucket, target="lustre")]
    TrainingCluster(stack, "Cluster", lustre=LustreFileSystem(stack, "Lustre"), data=data, **CPU)
    synthesis = read_stack(stack)
    (name,) = synthesis.of_type("AWS::S3::Bucket")
    assert synthesis.only(LINK)["DataRepositoryPath"] == {"Fn::Join": ["", ["s3://", {"Ref": name}, "/"]]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "team-data", "coco/"), ("b", "team-data", "coco/train/")),
        (("a", "team-data", ""), ("b", "team-data", "coco/")),
        (("b", "team-data", "coco/"), ("a", "team-data", "coco/")),
    ],
)
def test_data_that_overlaps_in_s3_is_refused_as_fsx_would(mount: Any, first: Any, second: Any) -> None:
    data = [DataSource(*first, "lustre"), DataSource(*second, "lustre")]
    with pytest.raises(ValueError, match="data must not overlap on lustre, got "):
        mount({**CPU, "data": data})


def test_eight_links_are_taken_and_the_ninth_refused(mount: Any) -> None:
    data = [DataSource(f"part-{k}", "team-data", f"part-{k}/", "lustre") for k in range(9)]
    assert len(mount({**CPU, "data": data[:8]}).of_type(LINK)) == 8
    with pytest.raises(ValueError, match="data must be 8 links at most on lustre, got 9; "):
        mount({**CPU, "data": data})


# --- Existing, shared and kept ------------------------------------------------------------------------


def _vpc(stack: cdk.Stack) -> ec2.Vpc:
    return ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)


def test_an_existing_one_is_mounted_and_nothing_of_it_is_made(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    lustre = LustreFileSystem.from_attributes(
        stack,
        "Lustre",
        dns_name="fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0"),
        mount_point="/scratch",
    )
    data = [DataSource("train", "whatever", "train/", "lustre")]
    TrainingCluster(stack, "Cluster", lustre=lustre, data=data, **CPU)
    synthesis = read_stack(stack)
    assert not synthesis.of_type(FILE_SYSTEM)
    assert not synthesis.of_type(LINK)
    source = "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"
    assert synthesis.settings(NodeRole.WORKER).needs.lustre == FileSystemSettings(
        "lustre", source, "relatime,flock", "/scratch"
    )
    assert len([rule for rule in synthesis.of_type(RULE).values() if "sg-0123456789abcdef0" in json.dumps(rule)]) == 4


def test_two_clusters_mount_one_and_neither_waits_for_the_other(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    vpc = _vpc(stack)
    lustre = LustreFileSystem(stack, "Lustre", vpc=vpc)
    for name in ("First", "Second"):
        TrainingCluster(stack, name, vpc=vpc, lustre=lustre, **WITH_DATA)
    synthesis = read_stack(stack)
    assert (len(synthesis.of_type(FILE_SYSTEM)), len(synthesis.of_type(LINK))) == (1, 1)
    groups = [name for name in synthesis.of_type("AWS::AutoScaling::AutoScalingGroup") if name.startswith("First")]
    assert len(groups) == 2
    assert not [found for name in groups for found in synthesis.before(name) if found.startswith("Second")]


def test_one_in_the_users_vpc_is_kept_with_all_that_it_holds(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    vpc = _vpc(stack)
    lustre = LustreFileSystem(stack, "Lustre", vpc=vpc)
    TrainingCluster(stack, "Cluster", vpc=vpc, lustre=lustre, **WITH_DATA)
    resources = read_stack(stack).template["Resources"]
    kept = {name for name, entry in resources.items() if entry.get("DeletionPolicy") == "RetainExceptOnCreate"}
    assert {resources[name]["Type"] for name in kept if name.startswith("Lustre")} == {
        FILE_SYSTEM,
        LINK,
        "AWS::EC2::SecurityGroup",
        RULE,
    }


@pytest.mark.fault(66)
def test_one_in_the_clusters_own_vpc_goes_with_it_and_does_not_hold_its_subnet(mount: Any) -> None:
    (entry,) = mount().of_type(FILE_SYSTEM).values()
    assert entry["DeletionPolicy"] == "Delete"
    with pytest.raises(ValueError, match="vpc must be given with the removal_policy RETAIN, got none; "):
        mount(removal_policy=RemovalPolicy.RETAIN)


def test_one_that_nobody_mounts_and_that_has_no_vpc_is_refused(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    LustreFileSystem(stack, "Lustre")
    with pytest.raises(RuntimeError, match="lustre must have a network, got none for Stack/Lustre; "):
        read_stack(stack)


@pytest.mark.fault(67)

# --- Image --------------------------------------------------------------------------------------------


def test_amazon_linux_installs_its_client_and_other_images_are_warned_about(mount: Any) -> None:
    amazon = mount({"image": NodeImage.deep_learning_amazon_linux(), "worker_instance_type": "g5.12xlarge"})
    assert amazon.settings(NodeRole.WORKER).packages["mount.lustre"] == ("lustre-client",)
    assert not [text for text in amazon.warnings if "mount.lustre" in text]
    ubuntu = mount()
    assert "mount.lustre" not in ubuntu.settings(NodeRole.WORKER).packages
    (warning,) = (text for text in ubuntu.warnings if "mount.lustre" in text)
    assert "make an image with it as the FSx for Lustre user guide says" in warning


def test_an_image_that_says_where_its_client_comes_from_is_believed(mount: Any) -> None:
    packages = {"mount.lustre": ("lustre-client-modules-{kernel}",)}
    image = NodeImage.from_ssm_parameter("/team/image", login_user="ubuntu", packages=packages)
    synthesis = mount({**CPU, "image": image})
    assert synthesis.settings(NodeRole.MASTER).packages == packages
    assert not [text for text in synthesis.warnings if "mount.lustre" in text]


# --- Refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"storage": Size.gibibytes(3000)},
            "storage must be 1200 GiB or a multiple of 2400 GiB, got 3000 GiB; pass e.g. Size.gibibytes(2400)",
        ),
        ({"storage": Size.gibibytes(600)}, "storage must be whole GiB from 1200 "),
        ({"deployment": "durable"}, "deployment must be one of persistent, scratch, got 'durable'; write one of them"),
        ({"throughput": 200}, "throughput must be 125, 250, 500, 1000 MB/s for each TiB, got 200; take one of them"),
        ({"deployment": "scratch", "throughput": 125}, "throughput must be left out with deployment scratch, "),
        (
            {"mount_point": "/usr"},
            "mount_point must not be or lie in a folder of the system, ",
        ),
        ({"mount_point": "/efs"}, "mount_point must lie beside that of lustre, got /efs and /efs; "),
        ({"mount_point": "/efs/fast"}, "mount_point must lie beside that of lustre, got /efs and /efs/fast; "),
    ],
)
def test_what_fsx_would_refuse_or_nodes_could_not_mount_is_refused_first(
    mount: Any, props: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        mount(**props)
    assert str(caught.value).startswith(message)


def test_a_key_and_a_subnet_want_what_they_belong_to(make_stack: Any) -> None:
    stack = make_stack()
    with pytest.raises(ValueError, match="encryption_key must be left out with deployment scratch, "):
        LustreFileSystem(stack, "Scratch", deployment="scratch", encryption_key=kms.Key(stack, "Key"))
    with pytest.raises(ValueError, match="vpc must be given with subnet, got none; "):
        LustreFileSystem(stack, "Subnet", subnet=_vpc(stack).private_subnets[0])
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    with pytest.raises(ValueError, match="mount_name must be as `aws fsx describe-file-systems` shows it, got 'a b'; "):
        LustreFileSystem.from_attributes(stack, "X", dns_name="fs.example", mount_name="a b", security_group=group)


def test_it_is_encrypted_with_the_users_key_where_one_is_given(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    lustre = LustreFileSystem(stack, "Lustre", encryption_key=kms.Key(stack, "Key"))
    TrainingCluster(stack, "Cluster", lustre=lustre, **CPU)
    (key,) = (name for name in read_stack(stack).of_type("AWS::KMS::Key") if name.startswith("Key"))
    assert read_stack(stack).only(FILE_SYSTEM)["KmsKeyId"] == {"Ref": key}


def test_one_of_two_clusters_is_encrypted_with_the_key_of_the_first(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    lustre = LustreFileSystem(stack, "Lustre")
    one = TrainingCluster(stack, "One", lustre=lustre, **CPU)
    TrainingCluster(stack, "Two", vpc=one.network.vpc, lustre=lustre, **CPU)
    key = read_stack(stack).only(FILE_SYSTEM)["KmsKeyId"]["Fn::GetAtt"][0]
    assert key.startswith("One")


def test_one_of_another_stack_keeps_the_accounts_key(make_app: Any, read_stack: Any) -> None:
    app = make_app()
    there, here = (cdk.Stack(app, name, env=cdk.Environment(region="us-east-1")) for name in ("There", "Here"))
    vpc = ec2.Vpc(there, "Vpc", max_azs=1)
    lustre = LustreFileSystem(there, "Lustre", vpc=vpc)
    TrainingCluster(here, "Cluster", vpc=vpc, lustre=lustre, **CPU)
    assert "KmsKeyId" not in read_stack(there).only(FILE_SYSTEM)
