"""Regions: a misspelt one is refused with the nearest names, and a new one is taken with a warning."""

import pytest

from deeplearning_cdk import InstanceTypeFacts, Network, NodeImage, TrainingCluster
from deeplearning_cdk.eks.training import EksTraining
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.props.regions import find_partition, list_regions, may_be_region, suggest_regions
from deeplearning_cdk.sagemaker.training import SageMakerTraining
from stacks.context import read_choices
from tests.unit.deeplearning_cdk.clusters import warn

MISSPELT = {
    "us-esat-1": "us-east-1",
    "us-east1": "us-east-1",
    "US-EAST-1": "us-east-1",
    "us-east-1a": "us-east-1",
    "us-east-0": "us-east-1",
    "uss-east-1": "us-east-1",
    "su-east-1": "us-east-1",
    "eu-wset-1": "eu-west-1",
    "ap-souheast-2": "ap-southeast-2",
    "us-gvo-west-1": "us-gov-west-1",
    "cn-nort-1": "cn-north-1",
}
NEW = ("us-east-3", "ap-southeast-9", "sa-west-1", "nz-north-1", "us-gov-central-1")
"""Names as AWS may give them to regions, as it did with mx-central-1 and ap-east-2."""


@pytest.mark.parametrize(("region", "nearest"), MISSPELT.items())
def test_a_misspelt_region_is_refused_with_the_nearest_names(region, nearest):
    with pytest.raises(ValueError, match=rf"^regions must be AWS regions, got '{region}'; write .*{nearest}"):
        read_choices({"regions": f"eu-west-1,{region}"})
    assert suggest_regions(region).startswith(nearest)


@pytest.mark.parametrize("region", [*NEW, "us-east-1", "cn-northwest-1", "us-isob-east-1", "eusc-de-east-1"])
def test_a_region_that_is_known_or_may_be_new_is_taken(region):
    assert [choice.region for choice in read_choices({"regions": region})] == [region]


def test_every_region_of_the_cdk_may_be_one():
    assert len(list_regions()) > 40
    assert all(may_be_region(region) for region in list_regions())


@pytest.mark.parametrize("platform", [TrainingCluster, EmrTraining, SageMakerTraining, EksTraining])
def test_a_stack_in_a_misspelt_region_is_refused(make_stack, platform):
    with pytest.raises(ValueError, match=r"^env\.region must be an AWS region, got 'us-esat-1'; write us-east-1"):
        platform(make_stack(region="us-esat-1"), "Cluster")


def test_misspelt_regions_of_images_types_and_zones_are_refused():
    with pytest.raises(ValueError, match="must be a region of AWS, got 'us-esat-1'"):
        NodeImage.from_ami_id({"us-esat-1": "ami-00000001"}, login_user="ubuntu")
    with pytest.raises(ValueError, match="must be a region of AWS, got 'us-esat-1'"):
        InstanceTypeFacts(name="p9.48xlarge", regions=("us-esat-1",))
    with pytest.raises(ValueError, match="must begin with the name of an AWS region, got 'us-esat-1a'"):
        Network(availability_zone="us-esat-1a")
    for zone in ("us-east-1a", "us-west-2-lax-1a", "us-east-1-wl1-bos-wlz-1", "us-gov-west-1b", "us-east-3a"):
        assert Network(availability_zone=zone).zone == zone


@pytest.mark.parametrize(("region", "is_warned"), [("us-east-3", True), ("us-east-1", False), (None, False)])
def test_a_region_that_this_release_does_not_know_gets_a_warning(make_stack, region, is_warned):
    warnings = warn(make_stack(region=region), {"workers.instance_type": "m5.large"})
    assert bool([text for text in warnings if f"this release knows no region {region}" in text]) is is_warned


@pytest.mark.parametrize("region", ["cn-north-1", "us-gov-west-1", "us-west-1", "us-east-3"])
def test_a_type_is_proposed_in_regions_of_the_same_partition_only(make_stack, region):
    warnings = warn(make_stack(region=region), {"workers.instance_type": "g5.12xlarge"})
    (text,) = (text for text in warnings if "offered in" in text)
    named = {each for each in list_regions() if each in text.replace(region, "")}
    is_standard = find_partition(region) == "aws"
    assert {find_partition(each) for each in named} == ({"aws"} if is_standard else set())
    assert ("`aws ec2 describe-instance-type-offerings --region" in text) is not is_standard
