"""Updates of custom resources: their functions see `Update` for any property, and again when one is rolled back."""

import json
import shutil

import pytest
from botocore.exceptions import ClientError

from deeplearning_cdk.coordination.payload import pack_image_pin

PARAMETER = "/team/images/training"
FIRST, NEWER = "ami-00000000000000001", "ami-00000000000000002"
READ = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"}


def pin(**changes):
    """Return a resource whose function is the product's own, which reads an image's parameter."""
    properties = {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Parameter": PARAMETER, "Release": "1"}
    return {"Type": "Custom::PinnedImage", "DependsOn": ["Formation"], "Properties": properties | changes}


@pytest.fixture
def cloud(start_cloud, assemble, sample_template, tmp_path):
    """Deploy the sample with two pinned images, then let their parameter name a newer one."""
    resources = sample_template["Resources"]
    resources["Function"]["Properties"] |= {"Handler": "image_pin.handler.handle", "Environment": {"Variables": {}}}
    resources["FunctionRole"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"].append(READ)
    resources |= {"Image": pin(), "Other": pin()}
    sample_template["Outputs"] = {
        "Image": {"Value": {"Fn::GetAtt": ["Image", "ImageId"]}},
        "Pin": {"Value": {"Ref": "Other"}},
    }
    folder = assemble(tmp_path / "cdk.out", sample_template)
    shutil.rmtree(folder / "asset.sample")
    shutil.unpack_archive(pack_image_pin().path, folder / "asset.sample")
    cloud = start_cloud()
    cloud.deploy(folder)
    cloud.observation("Handle CREATE_COMPLETE")
    name_image(cloud, FIRST)
    cloud.complete()
    name_image(cloud, NEWER)
    cloud.template = sample_template
    return cloud


def name_image(cloud, image):
    cloud.client("ssm").put_parameter(Name=PARAMETER, Type="String", Value=image, Overwrite=True)


def update(cloud, **resources):
    """Update the stack with other resources, and return its status with the image of the first."""
    template = {**cloud.template, "Resources": cloud.template["Resources"] | resources}
    cloud.client("cloudformation").update_stack(StackName="sample", TemplateBody=json.dumps(template))
    outcome = cloud.end()
    return outcome["status"], outcome["outputs"]["Image"]


def test_ref_of_a_custom_resource_returns_the_physical_id_of_its_function(cloud):
    """
    The user guide: for a resource `Ref` returns "a value that you can typically use to refer to that resource, such as
    a physical ID" (docs.aws.amazon.com, intrinsic-function-reference-ref).
    """
    first = cloud.command("wait", seconds=0)["outputs"]["Pin"]
    assert first.partition("@")[0] == FIRST
    assert cloud.physical_id("Other") == first
    update(cloud, Other=pin(Release="2"))
    newer = cloud.command("wait", seconds=0)["outputs"]["Pin"]
    assert [entry.partition("@")[0] for entry in newer.split(",")] == [NEWER, FIRST]
    assert cloud.physical_id("Other") == newer


@pytest.mark.fault(67)
def test_another_time_limit_keeps_the_image_and_another_release_takes_the_newer(cloud):
    """CloudFormation sends `Update` for any property (CloudFormation user guide, "Custom resource request types")."""
    assert update(cloud, Image=pin(ServiceTimeout="3000")) == ("UPDATE_COMPLETE", FIRST)
    assert update(cloud, Image=pin(Release="2")) == ("UPDATE_COMPLETE", NEWER)


@pytest.mark.fault(67)
def test_an_update_that_is_rolled_back_brings_the_image_back(cloud):
    """Of two changed resources the second fails; both functions see `Update` with the old properties again."""
    changed = update(cloud, Image=pin(Release="2"), Other=pin(Parameter="/team/absent"))
    assert changed == ("UPDATE_ROLLBACK_COMPLETE", FIRST)


def test_an_update_that_the_rehearsal_does_not_know_is_refused(cloud):
    with pytest.raises(ClientError, match="node groups of EKS alone, got changes of Topic"):
        update(cloud, Topic={"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "other"}})
