"""Auto Scaling refuses a group whose launch template cannot be launched, before anything is launched."""

import re
from types import SimpleNamespace

import boto3
import moto
import pytest

from cdk_rehearsal.embedded_aws.ec2.launch_check import check_launch

WORKER = {"deeplearning:role": "worker"}

SHOWN = {"InstanceMetadataTags": "enabled"}
REFUSED = "You must use a valid fully-formed launch template. "


@pytest.fixture
def fail(deploy_template, sample_template):
    """Return a function that deploys the sample with a changed template of the workers, and returns why it failed."""

    def deploy(change=None, **options):
        sample_template["Resources"]["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= change or {}
        cloud = deploy_template(sample_template, **options)
        outcome = cloud.end()
        assert outcome["status"] == "ROLLBACK_COMPLETE"
        failed = [entry["logical_id"] for entry in outcome["resources"] if entry["reason"] == outcome["reason"]]
        assert [name for name in failed if name.endswith("Group")]
        assert cloud.seen("launched for worker") == []
        return outcome["reason"]

    return deploy


@pytest.fixture(scope="module")
def check():
    """Return a function that makes the dry run of a sound launch with changes, against a moto in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        with moto.mock_aws():
            ec2 = boto3.client("ec2", region_name="us-east-1")
            data = {
                "ImageId": ec2.describe_images()["Images"][0]["ImageId"],
                "InstanceType": "c5.large",
                "SecurityGroupIds": [ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]],
            }
            subnets = [ec2.describe_subnets()["Subnets"][0]["SubnetId"]]
            group = SimpleNamespace(name="workers", zones=["us-east-1a"], own_tags={}, launch_tags={"team/name": "x"})
            group.subnet_ids = subnets
            group.launch_configuration = None
            clients = {"ec2": ec2, "iam": boto3.client("iam", region_name="us-east-1")}
            yield lambda change: check_launch(group, data | change, SimpleNamespace(client=clients.__getitem__), [])


def test_a_template_that_cannot_be_launched_fails_the_group(fail):
    assert fail({"KeyName": "nobodys"}) == f"{REFUSED}The key pair 'nobodys' does not exist"


def test_a_sound_launch_is_not_refused(check):
    check({})


def card(**values):
    return {"DeviceIndex": 0, **values}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"KeyName": "nobodys"}, "The key pair 'nobodys' does not exist"),
        ({"ImageId": "ami-0123456789abcdef0"}, "The image id '[ami-0123456789abcdef0]' does not exist"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "The security group 'sg-0123456789abcdef0' does not exist"),
        (
            {"IamInstanceProfile": {"Name": "nobodys"}},
            "Value (nobodys) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
        ),
        ({"InstanceType": "m6g.large"}, "The architecture 'arm64' of the specified instance type does not match"),
        ({"MetadataOptions": SHOWN}, "'team/name' is not a valid tag key."),
        ({"InstanceType": "c5.huge"}, "Invalid value 'c5.huge' for InstanceType."),
        (
            {"NetworkInterfaces": [card()]},
            "When a network interface is provided, the security groups must be a part",
        ),
        ({"SecurityGroupIds": [], "NetworkInterfaces": [card(), card()]}, "requires a unique device index"),
        ({"SecurityGroupIds": [], "NetworkInterfaces": [card(DeviceIndex=1)]}, "A primary network interface must have"),
        (
            {
                "SecurityGroupIds": [],
                "NetworkInterfaces": [card(AssociatePublicIpAddress=True), card(DeviceIndex=1)],
            },
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple",
        ),
        (
            {"SecurityGroupIds": [], "NetworkInterfaces": [card(), card(DeviceIndex=1, NetworkCardIndex=31)]},
            "Network card index 31 is not valid for the instance type 'c5.large'",
        ),
        (
            {"SecurityGroupIds": [], "NetworkInterfaces": [card(InterfaceType="efa")]},
            "1 EFA interfaces are not supported by the instance type 'c5.large'",
        ),
    ],
)
def test_an_impossible_launch_is_refused_in_auto_scalings_words(check, change, words):
    with pytest.raises(ValueError, match=f"^{re.escape(REFUSED)}.*{re.escape(words)}"):
        check(change)


def test_security_groups_of_another_vpc_are_refused(fail, sample_template):
    resources = sample_template["Resources"]
    resources["Elsewhere"] = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.8.0.0/16"}}
    group = {"GroupDescription": "elsewhere", "VpcId": {"Ref": "Elsewhere"}}
    resources["Foreign"] = {"Type": "AWS::EC2::SecurityGroup", "Properties": group}
    assert fail({"SecurityGroupIds": [{"Fn::GetAtt": ["Foreign", "GroupId"]}]}) == (
        "One or more security groups in the launch template are not linked to the VPCs configured in the Auto Scaling "
        "group"
    )


FAMILY = "/aws/service/deeplearning/ami/x86_64"
SMALL_AL2023 = {
    "ImageId": f"resolve:ssm:{FAMILY}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 50}}],
}
BLOCK = {"MarketType": "capacity-block"}
TARGET = {"CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}}


# The group itself is taken by Auto Scaling; only a launch would fail, and none may come in a rehearsal.
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"InstanceType": "t3.large", "Placement": {"GroupName": "near"}},
            "Cluster placement groups are not supported",
        ),
        ({"InstanceType": "hpc6a.48xlarge", "InstanceMarketOptions": {"MarketType": "spot"}}, "'hpc6a.48xlarge' is an"),
        ({"InstanceMarketOptions": BLOCK, "CapacityReservationSpecification": TARGET}, "The market type (purchasing)"),
        ({"InstanceType": "p5.48xlarge", "InstanceMarketOptions": BLOCK}, "The market type (purchasing) option is not"),
        (SMALL_AL2023, "is smaller than snapshot"),
    ],
)
def test_a_group_of_which_no_launch_can_succeed_is_reported_though_nobody_asks_for_it(
    deploy_template, sample_template, change, words
):
    del sample_template["Resources"]["WorkerGroup"]["Properties"]["DesiredCapacity"]
    sample_template["Resources"]["WorkerTemplate"]["Properties"]["LaunchTemplateData"] |= change
    cloud = deploy_template(sample_template)
    kind = change.get("InstanceType", "c5.large")
    found = cloud.observation(f"no launch of WorkerGroup ({kind} in us-east-1a) can succeed: ")
    assert words in found["text"]
    cloud.observation("WorkerGroup CREATE_COMPLETE")


# The sources: CloudFormation user guide, "Resource tag" (tags of a stack are on its resources, and those of a group on
# its instances), and EC2 user guide, "View tags for your EC2 instances using instance metadata" (the keys that fail).
@pytest.mark.parametrize("key", ["Cost Center", "team/name", ".", "..", "_index"])
def test_a_tag_of_the_stack_that_instance_metadata_refuses_fails_the_group(fail, key):
    assert fail({"MetadataOptions": SHOWN}, tags={key: "x"}).startswith(f"{REFUSED}'{key}' is not a valid tag key.")


def test_instances_and_other_resources_have_the_tags_of_the_stack(deploy_template, sample_template):
    for name in ("WorkerTemplate", "MasterTemplate"):
        sample_template["Resources"][name]["Properties"]["LaunchTemplateData"]["MetadataOptions"] = SHOWN
    sample_template["Resources"]["WorkerGroup"]["Properties"]["Tags"] += [
        {"Key": "team", "Value": "own", "PropagateAtLaunch": True}
    ]
    cloud = deploy_template(sample_template, tags={"team": "vision", "cost:center": "ml"})
    assert cloud.machine("master")["tags"].items() >= {"team": "vision", "cost:center": "ml"}.items()
    # A tag of the resource takes the place of that of the stack.
    assert cloud.machine("worker")["tags"].items() >= {"team": "own", "cost:center": "ml"}.items()
    (vpc,) = cloud.client("ec2").describe_vpcs(Filters=[{"Name": "tag:cost:center", "Values": ["ml"]}])["Vpcs"]
    assert vpc["VpcId"] == cloud.physical_id("Vpc")


def test_a_space_in_a_key_is_taken_where_instance_metadata_shows_no_tags(deploy_template, sample_template):
    cloud = deploy_template(sample_template, tags={"Cost Center": "ml"})
    assert cloud.machine("master")["tags"]["Cost Center"] == "ml"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidAMIID.NotFound", "The image id '[ami-0123456789abcdef0]' does not exist"),
        ("VcpuLimitExceeded", "You have requested more vCPU capacity than your current vCPU limit of 0 allows"),
    ],
)
def test_a_missing_image_or_a_used_up_quota_may_fail_the_group(fail, code, message):
    fault = {"code": code, "tags": WORKER, "at_creation": True, "message": message}
    assert fail(faults=[fault]) == REFUSED + message


@pytest.mark.parametrize("code", ["InvalidAMIID.NotFound", "VcpuLimitExceeded"])
def test_the_same_may_be_found_by_the_first_launch_alone(start_cloud, asking_assembly, code):
    cloud = start_cloud(faults=[{"code": code, "tags": WORKER, "message": "words of EC2."}])
    cloud.deploy(asking_assembly)
    cloud.ask("WorkerGroup", 1)
    cloud.observation(f"launch failed: {code}")
