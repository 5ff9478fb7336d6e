"""Templates that the rehearsal refuses, and proof that its table of supported resources is true."""

import pytest

from cdk_rehearsal.embedded_aws.resources import CREATORS
from cdk_rehearsal.embedded_aws.resources.simple import Simple
from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.referees.resource_support import load_support, require_support


def find_gaps(template):
    """Return what is refused of a template."""
    with pytest.raises(UnsupportedError) as error:
        require_support(template)
    return error.value.findings


def test_has_a_creator_for_every_type_of_the_table_and_no_other():
    assert set(load_support()) == set(CREATORS)


@pytest.mark.parametrize("kind", sorted(load_support()))
def test_gives_a_reason_for_everything_that_has_no_effect(kind):
    support = load_support()[kind]
    assert all(len(reason.split()) >= 4 for reason in support.without_effect.values())
    assert not set(support.acts) & set(support.without_effect)


def test_types_of_a_single_call_have_no_property_without_effect():
    """`Simple` passes each property on."""
    rows = [kind for kind, creator in CREATORS.items() if isinstance(creator, Simple)]
    assert rows
    assert not any(load_support()[kind].without_effect for kind in rows)


def test_accepts_the_sample(sample_template):
    require_support(sample_template)


def test_lists_everything_that_it_lacks_at_once(sample_template):
    resources = sample_template["Resources"]
    resources["Bucket"] = {"Type": "AWS::ECR::Repository"}
    resources["Alien"] = {"Type": "AWS::Alien::Thing", "Properties": {"ServiceToken": "x"}}
    resources["Queue"]["Properties"]["RedriveAllowPolicy"] = {}
    resources["WorkerGroup"]["CreationPolicy"] = {"StartFleet": True}
    resources["WorkerTemplate"]["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpProtocolIpv6"] = "enabled"
    resources["MasterTemplate"]["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"] = "optional"
    sample_template["Transform"] = "AWS::LanguageExtensions"
    sample_template["Outputs"]["Arn"] = {"Value": {"Fn::GetAtt": ["Vpc", "Ipv6CidrBlocks"]}}
    sample_template["Outputs"]["Length"] = {"Value": {"Fn::Length": [1, 2]}}
    sample_template["Outputs"]["Nobody"] = {"Value": {"Ref": "Nobody"}}

    template = "AWS::EC2::LaunchTemplate property LaunchTemplateData.MetadataOptions"
    assert find_gaps(sample_template) == (
        "Alien: type AWS::Alien::Thing",
        "Bucket: type AWS::ECR::Repository",
        f"MasterTemplate: {template}.HttpTokens = 'optional' (only 'required')",
        "Queue: AWS::SQS::Queue property RedriveAllowPolicy",
        "Vpc: AWS::EC2::VPC attribute Fn::GetAtt Ipv6CidrBlocks",
        "WorkerGroup: AWS::AutoScaling::AutoScalingGroup attribute CreationPolicy StartFleet",
        f"WorkerTemplate: {template}.HttpProtocolIpv6",
        "function Fn::Length",
        "reference to Nobody, which the template does not define",
        "template section Transform",
    )


@pytest.mark.parametrize("kind", ["Custom::Thing", "AWS::CloudFormation::CustomResource"])
def test_a_custom_resource_of_any_name_has_the_properties_and_attributes_that_its_function_gives_it(kind):
    resources = {"Thing": {"Type": kind, "Properties": {"ServiceToken": "x", "Any": {"Nested": [1]}}}}
    require_support({"Resources": resources, "Outputs": {"Any": {"Value": {"Fn::GetAtt": ["Thing", "Some"]}}}})


def test_looks_into_both_branches_of_a_condition(sample_template):
    properties = sample_template["Resources"]["WorkerTemplate"]["Properties"]["LaunchTemplateData"]
    properties["MetadataOptions"] = {"Fn::If": ["Any", {"HttpTokens": "required"}, {"HttpProtocolIpv6": "enabled"}]}
    properties["KeyName"] = {"Fn::If": ["Any", "mine", {"Ref": "AWS::NoValue"}]}

    (gap,) = find_gaps(sample_template)
    assert gap.endswith("property LaunchTemplateData.MetadataOptions.HttpProtocolIpv6")


def test_refuses_more_resources_than_cloudformation_takes():
    resources = {f"Handle{number}": {"Type": "AWS::CloudFormation::WaitConditionHandle"} for number in range(501)}
    assert find_gaps({"Resources": resources}) == ("501 resources; CloudFormation takes at most 500",)
