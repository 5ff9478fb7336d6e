"""Changes that a rehearsal makes to a template."""

import copy
import json

import pytest

from cdk_rehearsal.errors import AssemblyError, UnavailableError
from deeplearning_rehearsal.platforms.registry import PLATFORMS, find_platform
from deeplearning_rehearsal.template import apply_overrides


@pytest.fixture
def sample_template():
    """A template with a group of workers."""
    tags = [{"Key": "deeplearning:role", "Value": "worker", "PropagateAtLaunch": True}]
    group = {"MinSize": "1", "MaxSize": "3", "DesiredCapacity": "3", "Tags": tags}
    return {"Resources": {"WorkerGroup": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": group}}}


def test_sets_the_workers_number_and_raises_their_maximum(sample_template):
    before = json.dumps(sample_template)
    changed, listing = apply_overrides(sample_template, workers=40, gpus=1)

    properties = changed["Resources"]["WorkerGroup"]["Properties"]
    assert (properties["DesiredCapacity"], properties["MaxSize"]) == ("40", "40")
    assert listing == {"WorkerGroup.DesiredCapacity": "40", "WorkerGroup.MaxSize": "40"}
    assert json.dumps(sample_template) == before


def test_sets_what_the_stack_asks_for_where_its_groups_ask_for_nothing(sample_template):
    request = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    sample_template["Resources"]["Request"] = request
    del sample_template["Resources"]["WorkerGroup"]["Properties"]["DesiredCapacity"]
    changed, listing = apply_overrides(sample_template, workers=40, gpus=1)
    assert changed["Resources"]["Request"]["Properties"]["Workers"] == "40"
    assert "DesiredCapacity" not in changed["Resources"]["WorkerGroup"]["Properties"]
    assert listing == {"Request.Workers": "40", "WorkerGroup.MaxSize": "40"}


def test_leaves_a_maximum_alone_that_is_high_enough(sample_template):
    changed, listing = apply_overrides(sample_template, workers=0, gpus=1)
    assert changed["Resources"]["WorkerGroup"]["Properties"]["MaxSize"] == "3"
    assert listing == {"WorkerGroup.DesiredCapacity": "0"}


def test_sets_the_number_of_a_stack_whose_workers_have_several_groups(sample_template):
    """Each may be asked for all of them, as candidates of one role are."""
    resources = sample_template["Resources"]
    resources["Request"] = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    resources["Second"] = copy.deepcopy(resources["WorkerGroup"])
    changed, listing = apply_overrides(sample_template, workers=40, gpus=1)
    assert [changed["Resources"][name]["Properties"]["MaxSize"] for name in ("WorkerGroup", "Second")] == ["40", "40"]
    assert listing == {"Request.Workers": "40", "Second.MaxSize": "40", "WorkerGroup.MaxSize": "40"}


def test_needs_workers_to_set_what_the_stack_asks_for(sample_template):
    resources = sample_template["Resources"]
    resources["Request"] = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    del resources["WorkerGroup"]
    with pytest.raises(AssemblyError, match="a group tagged deeplearning:role=worker"):
        apply_overrides(sample_template, workers=1, gpus=1)


def test_needs_one_group_of_workers_to_set_its_size(sample_template):
    del sample_template["Resources"]["WorkerGroup"]
    with pytest.raises(AssemblyError, match="one group tagged deeplearning:role=worker"):
        apply_overrides(sample_template, workers=1, gpus=1)


def test_on_emr_the_core_group_has_the_workers():
    groups = {"MasterInstanceGroup": {"InstanceCount": 1}, "CoreInstanceGroup": {"InstanceCount": 2}}
    template = {"Resources": {"Cluster": {"Type": "AWS::EMR::Cluster", "Properties": {"Instances": groups}}}}
    platform = find_platform(template)
    assert platform is PLATFORMS["emr"]
    assert platform.count_nodes(template) == 3
    changed, listing = apply_overrides(template, workers=4, gpus=1)
    assert listing == {"Cluster.CoreInstanceGroup.InstanceCount": "4"}
    assert platform.count_nodes(changed) == 5
    platform.require_nodes(template, 2)
    with pytest.raises(UnavailableError, match="--nodes must be at least 2 on EMR, the primary and a core node, got 1"):
        platform.require_nodes(template, 1)
