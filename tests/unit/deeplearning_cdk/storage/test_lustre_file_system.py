"""FSx for Lustre is made in the nodes' zone, is linked to the user's bucket, and is there before the nodes are."""

import json

import aws_cdk as cdk
import pytest
from aws_cdk import RemovalPolicy, Size
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk import DataSource, JobEnvironment, Lustre, LustreFileSystem, NodeImage, Spending, Storage
from deeplearning_cdk.storage.lustre import check_links
from deeplearning_cdk.warnings import NO_LUSTRE_CLIENT, add_warnings
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from tests.unit.deeplearning_cdk.clusters import WITH_LUSTRE, plan
from tests.unit.deeplearning_cdk.storage.stores import KEY_ARN, import_vpc, store

FILE_SYSTEM, LINK = "AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation"
RULE = "AWS::EC2::SecurityGroupIngress"
KEPT, GOES = ("RetainExceptOnCreate", "Retain"), ("Delete", "Delete")


@pytest.fixture(scope="module")
def mounting(synthesize):
    """A cluster with a Lustre of its own in a new VPC, and data on it."""
    return synthesize(**WITH_LUSTRE)


def _policies(entry):
    return entry.get("DeletionPolicy"), entry.get("UpdateReplacePolicy")


def test_without_props_it_is_the_smallest_persistent_one_in_the_nodes_subnet(mounting):
    properties = dict(mounting.only(FILE_SYSTEM))
    (group,) = (name for name in mounting.of_type("AWS::EC2::SecurityGroup") if name.startswith("ClusterLustre"))
    (key,) = mounting.of_type("AWS::KMS::Key")
    (cluster,) = properties.pop("Tags")
    assert cluster == {"Key": "deeplearning:cluster", "Value": mounting.cluster_name}
    assert properties == {
        "FileSystemType": "LUSTRE",
        "FileSystemTypeVersion": "2.15",
        "KmsKeyId": {"Fn::GetAtt": [key, "Arn"]},
        "LustreConfiguration": {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        "SecurityGroupIds": [{"Fn::GetAtt": [group, "GroupId"]}],
        "StorageCapacity": 1200,
        "StorageType": "SSD",
        "SubnetIds": mounting.group(NodeRole.WORKER)["Properties"]["VPCZoneIdentifier"],
    }


def test_size_deployment_and_throughput_are_those_that_fsx_has(make_stack, read_stack):
    stack = make_stack()
    vpc = import_vpc(stack)
    for name, configuration in {
        "A": Lustre(storage=Size.gibibytes(1200), throughput=1000),
        "B": Lustre(storage=2400, throughput=500),
        "C": Lustre(storage=Size.gibibytes(7200), throughput=250),
        "D": Lustre(deployment="scratch", storage=Size.tebibytes(1200 / 1024)),
    }.items():
        # FSx refuses a key for scratch storage, and encrypts it with one of its own (FSx for Lustre user guide,
        # encryption at rest), so the cluster's is not passed on.
        store(stack, vpc, name, lustre=configuration)
    found = {name[0]: entry["Properties"] for name, entry in read_stack(stack).of_type(FILE_SYSTEM).items()}
    names = ("DeploymentType", "PerUnitStorageThroughput")
    assert {
        name: (each["StorageCapacity"], *map(each["LustreConfiguration"].get, names), each.get("KmsKeyId"))
        for name, each in found.items()
    } == {
        "A": (1200, "PERSISTENT_2", 1000, KEY_ARN),
        "B": (2400, "PERSISTENT_2", 500, KEY_ARN),
        "C": (7200, "PERSISTENT_2", 250, KEY_ARN),
        "D": (1200, "SCRATCH_2", None, None),
    }


@pytest.mark.parametrize("role", list(NodeRole))
def test_nodes_mount_it_beside_the_shared_file_system_and_none_starts_before_it_can(mounting, role):
    (name,) = mounting.of_type(FILE_SYSTEM)
    settings = mounting.settings(role)
    source = f"<{name}.DNSName>@tcp:/<{name}.LustreMountName>"
    assert settings.needs.lustre == FileSystemSettings("lustre", source, "relatime,flock", "/fsx")
    assert settings.file_system.mount_point == "/efs"
    before = mounting.before(mounting.group_id(role))
    for kind in (FILE_SYSTEM, LINK, RULE):
        assert set(mounting.of_type(kind)) <= before, kind
    (wait,) = mounting.of_type("AWS::CloudFormation::WaitCondition")
    assert name in mounting.before(wait)


# --- Link to a bucket ---------------------------------------------------------------------------------


def test_data_is_a_folder_of_its_name_that_follows_the_bucket_and_does_not_write_it(mounting):
    (name,) = mounting.of_type(FILE_SYSTEM)
    link = dict(mounting.only(LINK))
    assert link.pop("Tags") == [{"Key": "deeplearning:cluster", "Value": mounting.cluster_name}]
    assert link == {
        "BatchImportMetaDataOnCreate": True,
        "DataRepositoryPath": "s3://team-data/coco/train/",
        "FileSystemId": {"Ref": name},
        "FileSystemPath": "/train",
        "S3": {"AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]}},
    }


def test_changes_are_exported_when_asked_to_a_bucket_that_may_be_of_the_same_stack(make_stack, read_stack):
    stack = make_stack()
    data = [DataSource("all", s3.Bucket(stack, "Data"), target="lustre"), DataSource("other", "team-data")]
    store(stack, import_vpc(stack), lustre=Lustre(export=True), data=data)
    synthesis = read_stack(stack)
    (name,) = synthesis.of_type("AWS::S3::Bucket")
    link = synthesis.only(LINK)
    assert link["DataRepositoryPath"] == {"Fn::Join": ["", ["s3://", {"Ref": name}, "/"]]}
    assert link["S3"]["AutoExportPolicy"] == {"Events": ["NEW", "CHANGED", "DELETED"]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("a", "team-data", "coco/"), ("b", "team-data", "coco/train/")),
        (("a", "team-data", ""), ("b", "team-data", "coco/")),
        (("b", "team-data", "coco/"), ("a", "team-data", "coco/")),
    ],
)
def test_data_that_overlaps_in_s3_is_refused_as_fsx_would(first, second):
    with pytest.raises(ValueError, match=r"^storage\.data must not overlap on lustre, got "):
        check_links([DataSource(*first, "lustre"), DataSource(*second, "lustre")])


def test_eight_links_are_taken_and_the_ninth_refused(make_stack, read_stack):
    data = [DataSource(f"part-{k}", "team-data", f"part-{k}/", "lustre") for k in range(9)]
    stack = make_stack()
    vpc = import_vpc(stack)
    shared = LustreFileSystem(stack, "Lustre", vpc=vpc)
    store(stack, vpc, lustre=shared, data=data[:8])
    assert len(read_stack(stack).of_type(LINK)) == 8
    with pytest.raises(ValueError, match=r"^storage\.data must be 8 links at most on lustre, got 9; "):
        store(stack, vpc, "Second", lustre=shared, data=data[8:])


# --- Existing, shared and kept ------------------------------------------------------------------------


def test_an_existing_one_is_mounted_and_nothing_of_it_is_made(make_stack, read_stack):
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
    storage = store(stack, import_vpc(stack), lustre=lustre, data=data)
    source = "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"
    assert storage.lustre_settings == FileSystemSettings("lustre", source, "relatime,flock", "/scratch")
    synthesis = read_stack(stack)
    assert not synthesis.of_type(FILE_SYSTEM)
    assert not synthesis.of_type(LINK)
    assert len([rule for rule in synthesis.of_type(RULE).values() if "sg-0123456789abcdef0" in json.dumps(rule)]) == 4


def test_two_clusters_mount_one_with_the_key_of_the_first_and_the_tag_of_the_last(pair):
    assert (len(pair.of_type(FILE_SYSTEM)), len(pair.of_type(LINK))) == (1, 1)
    assert pair.only(FILE_SYSTEM)["KmsKeyId"]["Fn::GetAtt"][0].startswith("One")
    functions = pair.of_type("AWS::Lambda::Function").items()
    (last,) = (entry for name, entry in functions if name.startswith("TwoCapacityAdjuster"))
    # The one of several clusters counts for the last of them in cost reports.
    cluster = last["Properties"]["Environment"]["Variables"]["DEEPLEARNING_CLUSTER"]
    assert pair.only(FILE_SYSTEM)["Tags"] == [{"Key": "deeplearning:cluster", "Value": cluster}]


def test_one_of_several_clusters_is_kept_with_its_content(pair):
    resources = {name: entry for name, entry in pair.template["Resources"].items() if name.startswith("Lustre")}
    assert {entry["Type"] for entry in resources.values()} == {FILE_SYSTEM, LINK, "AWS::EC2::SecurityGroup", RULE}
    assert {_policies(entry) for entry in resources.values()} == {KEPT}


@pytest.mark.fault(66)
def test_one_in_the_clusters_own_vpc_goes_with_it_and_does_not_hold_its_subnet(mounting):
    own = {name: entry for name, entry in mounting.template["Resources"].items() if name.startswith("ClusterLustre")}
    assert {FILE_SYSTEM, LINK} <= {entry["Type"] for entry in own.values()}
    assert {_policies(entry) for entry in own.values()} <= {GOES, (None, None)}


@pytest.mark.fault(66)
def test_a_clusters_own_one_follows_the_removal_policy_in_the_users_vpc_alone(make_stack, read_stack):
    stack = make_stack()
    vpc = import_vpc(stack)
    values = {"lustre": Lustre(), "data": [DataSource("train", "team-data", "coco/train/", "lustre")]}
    store(stack, vpc, "Mine", **values)
    store(stack, vpc, "Gone", removal_policy=RemovalPolicy.DESTROY, **values)
    store(stack, None, "Made", removal_policy=RemovalPolicy.RETAIN, **values)
    synthesis = read_stack(stack)
    for kind in (FILE_SYSTEM, LINK):
        found = {name[:4]: _policies(entry) for name, entry in synthesis.of_type(kind).items()}
        assert found == {"Mine": KEPT, "Gone": GOES, "Made": GOES}


def test_it_is_in_the_first_private_subnet_by_default(make_stack, read_stack):
    stack = make_stack()
    LustreFileSystem(stack, "First", vpc=import_vpc(stack))
    named = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-1")
    LustreFileSystem(stack, "Named", vpc=import_vpc(stack, "Other"), subnet=named)
    found = {
        name[:5]: entry["Properties"]["SubnetIds"] for name, entry in read_stack(stack).of_type(FILE_SYSTEM).items()
    }
    assert found == {"First": ["subnet-0"], "Named": ["subnet-1"]}


# --- Image --------------------------------------------------------------------------------------------


OWN_CLIENT = {"mount.lustre": ("lustre-client-modules-{kernel}",)}


@pytest.mark.parametrize(
    ("image", "packages"),
    [
        (NodeImage.ubuntu(), None),
        (NodeImage.deep_learning_amazon_linux(), ("lustre-client",)),
        (
            NodeImage.from_ssm_parameter("/team/image", login_user="ubuntu", packages=OWN_CLIENT),
            OWN_CLIENT["mount.lustre"],
        ),
    ],
    ids=["ubuntu", "amazon linux", "own package"],
)
def test_images_without_a_client_of_their_own_are_warned_about(make_stack, image, packages):
    props = {**WITH_LUSTRE, "software.image": image, "software.environment": JobEnvironment.none()}
    stack, found = make_stack(), plan(props)
    add_warnings(stack, found, Spending(), isolated=False, has_lustre=True)
    assert found.image.packages.get("mount.lustre") == packages
    assert any(NO_LUSTRE_CLIENT in str(entry.data) for entry in stack.node.metadata) is (packages is None)


def test_a_warning_names_the_client_and_an_image_without_lustre_needs_none(mounting):
    assert "mount.lustre" not in plan({"software.image": NodeImage.deep_learning_amazon_linux()}).image.packages
    assert "mount.lustre" not in mounting.settings(NodeRole.WORKER).packages
    (warning,) = (text for text in mounting.warnings if "mount.lustre" in text)
    assert "build an image with it as in the FSx for Lustre user guide" in warning


# --- Refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"storage": Size.gibibytes(3000)},
            "lustre.storage must be 1200 GiB or a multiple of 2400 GiB, got 3000 GiB; pass e.g. Size.gibibytes(2400)",
        ),
        ({"storage": 600}, "lustre.storage must be whole GiB from 1200 "),
        (
            {"deployment": "durable"},
            "lustre.deployment must be one of persistent, scratch, got 'durable'; write one of ",
        ),
        ({"throughput": 200}, "lustre.throughput must be 125, 250, 500, 1000 MB/s for each TiB, got 200; take one of "),
        ({"export": "yes"}, "lustre.export must be True or False, got 'yes'; "),
        ({"mount_point": "/usr"}, "lustre.mount_point must not be or lie in a folder of the system, "),
    ],
)
def test_a_file_system_that_fsx_would_refuse_or_nodes_could_not_mount_is_refused_first(values, message):
    with pytest.raises(ValueError, match="must") as caught:
        Lustre(**values)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("shared", "own"), [("/efs", "/efs"), ("/efs", "/efs/fast"), ("/data/all", "/data")])
def test_it_is_mounted_beside_the_shared_file_system(make_stack, shared, own):
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    existing = LustreFileSystem.from_attributes(
        stack, "Lustre", dns_name="fs.example", mount_name="abcdefgh", security_group=group, mount_point=own
    )
    said = f"^storage.mount_point must not overlap with that of storage.lustre, got {shared} and {own}; "
    for lustre in (Lustre(mount_point=own), existing):
        with pytest.raises(ValueError, match=said):
            Storage(mount_point=shared, lustre=lustre)


def test_a_key_and_a_subnet_want_what_they_belong_to(make_stack):
    stack = make_stack()
    vpc, key = import_vpc(stack), kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    scratch = Lustre(deployment="scratch")
    with pytest.raises(ValueError, match=r"^encryption_key must be left out with deployment scratch, "):
        LustreFileSystem(stack, "Scratch", vpc=vpc, configuration=scratch, encryption_key=key)
    bare = ec2.Vpc.from_vpc_attributes(stack, "Bare", vpc_id="vpc-1", availability_zones=["us-east-1a"])
    with pytest.raises(ValueError, match=r"^subnet must be given when the vpc has no private subnet, got none; "):
        LustreFileSystem(stack, "Subnet", vpc=bare)
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    with pytest.raises(ValueError, match="mount_name must be as `aws fsx describe-file-systems` shows it, got 'a b'; "):
        LustreFileSystem.from_attributes(stack, "X", dns_name="fs.example", mount_name="a b", security_group=group)


def test_it_is_encrypted_with_the_users_key_where_one_is_given_and_never_with_one_of_another_stack(
    make_app, read_stack
):
    app = make_app()
    there, here = cdk.Stack(app, "There"), cdk.Stack(app, "Here")
    vpc, key = import_vpc(there), kms.Key(there, "Mine")
    mine = LustreFileSystem(there, "Keyed", vpc=vpc, encryption_key=key)
    plain = LustreFileSystem(there, "Plain", vpc=vpc)
    nodes = ec2.SecurityGroup.from_security_group_id(here, "Nodes", "sg-0123456789abcdef0")
    for lustre, scope in ((mine, Construct(there, "Cluster")), (plain, Construct(here, "Cluster"))):
        lustre.attach(scope, nodes, key=kms.Key.from_key_arn(scope, "Key", KEY_ARN))
    found = {
        name[:5]: entry["Properties"].get("KmsKeyId") for name, entry in read_stack(there).of_type(FILE_SYSTEM).items()
    }
    (name,) = read_stack(there).of_type("AWS::KMS::Key")
    assert found == {"Keyed": {"Ref": name}, "Plain": None}
