"""Updates of custom resources: their functions see `Update` for any property, and again when one is rolled back."""

import json
import shutil

import pytest
from botocore.exceptions import ClientError

from deeplearning_cdk.coordination.payload import pack_image_pin
from tests.embedded_aws.conftest import HERE

PARAMETER = "/team/images/training"
FIRST, NEWER = "ami-00000000000000001", "ami-00000000000000002"
READ = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"}


def pin(**changes):
    """Return a resource whose function is the product's own, which reads an image's parameter."""
    properties = {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Parameter": PARAMETER, "Release": "1"}
    return {"Type": "Custom::PinnedImage", "DependsOn": ["Formation"], "Properties": properties | changes}


def allow(action):
    """Return a managed policy of the function's role."""
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
    return {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {"PolicyDocument": document, "Roles": [{"Ref": "FunctionRole"}]},
    }


def write(value):
    return {"Type": "AWS::SSM::Parameter", "Properties": {"Name": "/mine/document", "Type": "String", "Value": value}}


@pytest.fixture(scope="module")
def deploy(start_cloud, assemble, tmp_path_factory):
    """Return the function that deploys the sample with two pinned images, whose parameter then names a newer one."""

    def start():
        template = json.loads((HERE / "sample_template.json").read_text())
        resources = template["Resources"]
        resources["Function"]["Properties"] |= {"Handler": "image_pin.handler.handle", "Environment": {"Variables": {}}}
        resources["FunctionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(READ)
        resources |= {"Image": pin(), "Other": pin(), "Rights": allow("sqs:SendMessage"), "Document": write("first")}
        template["Outputs"] = {
            "Image": {"Value": {"Fn::GetAtt": ["Image", "ImageId"]}},
            "Pin": {"Value": {"Ref": "Other"}},
        }
        folder = assemble(tmp_path_factory.mktemp("assembly") / "cdk.out", template)
        shutil.rmtree(folder / "asset.sample")
        shutil.unpack_archive(pack_image_pin().path, folder / "asset.sample")
        cloud = start_cloud()
        cloud.deploy(folder)
        cloud.observation("Handle CREATE_COMPLETE")
        name_image(cloud, FIRST)
        cloud.complete()
        name_image(cloud, NEWER)
        cloud.template = template
        return cloud

    return start


@pytest.fixture
def cloud(share, deploy):
    """The deployed sample, whose tests leave the images as they are."""
    return share("sample", deploy)


def name_image(cloud, image):
    cloud.client("ssm").put_parameter(Name=PARAMETER, Type="String", Value=image, Overwrite=True)


def update(cloud, **resources):
    """Update the stack with other resources, and return its status with the image of the first."""
    template = {**cloud.template, "Resources": cloud.template["Resources"] | resources}
    cloud.client("cloudformation").update_stack(StackName="sample", TemplateBody=json.dumps(template))
    outcome = cloud.end()
    return outcome["status"], outcome["outputs"]["Image"]


@pytest.mark.fault(67)
def test_an_update_that_is_rolled_back_brings_the_image_back(cloud):
    """Of two changed resources the second fails; both functions see `Update` with the old properties again."""
    changed = update(cloud, Image=pin(Release="2"), Other=pin(Parameter="/team/absent"))
    assert changed == ("UPDATE_ROLLBACK_COMPLETE", FIRST)


def test_an_update_that_the_rehearsal_does_not_know_is_refused(cloud):
    with pytest.raises(ClientError, match="adds and removes none, got changes of Topic"):
        update(cloud, Topic={"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "other"}})


def test_policy_and_parameter_are_updated_in_place(cloud):
    """IAM makes another version of the policy the default one (CloudFormation template reference, ManagedPolicy)."""
    update(cloud, Rights=allow("sqs:ReceiveMessage"), Document=write("second"))
    update(cloud, Rights=allow("sqs:DeleteMessage"), Document=write("third"))
    iam, arn = cloud.client("iam"), cloud.physical_id("Rights")
    versions = iam.list_policy_versions(PolicyArn=arn)["Versions"]
    assert [version["IsDefaultVersion"] for version in versions].count(True) == 1
    assert len(versions) == 2
    (chosen,) = [version["VersionId"] for version in versions if version["IsDefaultVersion"]]
    document = iam.get_policy_version(PolicyArn=arn, VersionId=chosen)["PolicyVersion"]["Document"]
    assert document["Statement"][0]["Action"] == "sqs:DeleteMessage"
    assert cloud.client("ssm").get_parameter(Name="/mine/document")["Parameter"]["Value"] == "third"


def test_other_property_of_an_updated_resource_is_refused_by_name(cloud):
    changed = write("second")
    changed["Properties"]["Type"] = "StringList"
    assert update(cloud, Document=changed)[0].startswith("UPDATE_ROLLBACK")
    assert "updates Value of this resource alone, got Type" in cloud.command("wait", seconds=0)["reason"]


def test_ref_of_a_custom_resource_returns_the_physical_id_of_its_function(deploy):
    """
    The user guide: for a resource `Ref` returns "a value that you can typically use to refer to that resource, such as
    a physical ID" (docs.aws.amazon.com, intrinsic-function-reference-ref).
    """
    cloud = deploy()
    first = cloud.command("wait", seconds=0)["outputs"]["Pin"]
    assert first.partition("@")[0] == FIRST
    assert cloud.physical_id("Other") == first
    update(cloud, Other=pin(Release="2"))
    newer = cloud.command("wait", seconds=0)["outputs"]["Pin"]
    assert [entry.partition("@")[0] for entry in newer.split(",")] == [NEWER, FIRST]
    assert cloud.physical_id("Other") == newer


@pytest.mark.fault(67)
def test_another_time_limit_keeps_the_image_and_another_release_takes_the_newer(deploy):
    """CloudFormation sends `Update` for any property (CloudFormation user guide, "Custom resource request types")."""
    cloud = deploy()
    assert update(cloud, Image=pin(ServiceTimeout="3000")) == ("UPDATE_COMPLETE", FIRST)
    assert update(cloud, Image=pin(Release="2")) == ("UPDATE_COMPLETE", NEWER)


def test_group_launches_from_the_new_template_and_keeps_its_instances(deploy):
    """Auto Scaling user guide, "Launch templates": instances that run are not affected by another version."""
    cloud = deploy()
    before, _ = cloud.machine("worker")["instance_id"], cloud.machine("worker")
    template = json.loads(json.dumps(cloud.template["Resources"]["WorkerTemplate"]))
    template["Properties"]["LaunchTemplateData"]["InstanceType"] = "c5.xlarge"
    assert update(cloud, WorkerTemplate=template)[0] == "UPDATE_COMPLETE"
    assert cloud.client("ec2").describe_instances(InstanceIds=[before])["Reservations"]
    cloud.ask("WorkerGroup", 3)
    assert cloud.machine("worker")["instance_type"] == "c5.xlarge"
