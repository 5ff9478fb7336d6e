"""Reading a cloud assembly, and what a rehearsal changes in its template."""

import copy
import json
import os

import pytest

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.embedded_aws.cloudformation.asset_upload import zip_folder
from cdk_rehearsal.errors import AssemblyError
from deeplearning_rehearsal.template.overrides import Overrides, apply_overrides


def test_takes_place_and_assets_from_the_manifest(assemble, sample_template, tmp_path):
    stack = read_stack(assemble(tmp_path / "here", sample_template, "aws://unknown-account/eu-west-1"), None)

    assert (stack.name, stack.account, stack.region) == ("sample", "123456789012", "eu-west-1")
    assert [(asset.packaging, asset.key) for asset in stack.assets] == [("zip", "sample-function.zip")]


def test_says_which_stacks_there_are(assemble, sample_template, tmp_path):
    folder = assemble(tmp_path / "here", sample_template)
    with pytest.raises(AssemblyError, match=r"stack must name one of \['sample'\], got 'other'"):
        read_stack(folder, "other")
    with pytest.raises(AssemblyError, match=r"readable manifest\.json"):
        read_stack(tmp_path, None)


def test_says_which_asset_is_missing(assemble, sample_template, tmp_path):
    folder = assemble(tmp_path / "here", sample_template)
    (folder / "asset.sample").rename(folder / "elsewhere")
    with pytest.raises(AssemblyError, match="asset must exist"):
        read_stack(folder, None)


def test_zips_the_same_files_to_the_same_bytes(tmp_path):
    for name, order in (("one", "ab"), ("two", "ba")):
        (tmp_path / name / "sub").mkdir(parents=True)
        for letter in order:
            (tmp_path / name / "sub" / letter).write_text(letter)
        os.utime(tmp_path / name / "sub" / "a", (0, len(name + order)))
    os.utime(tmp_path / "two" / "sub" / "a", (1e9, 1e9))

    assert zip_folder(tmp_path / "one") == zip_folder(tmp_path / "two")


def test_sets_the_workers_number_and_raises_their_maximum(sample_template):
    before = json.dumps(sample_template)
    changed, listing = apply_overrides(sample_template, Overrides(worker_desired_capacity=40))

    properties = changed["Resources"]["WorkerGroup"]["Properties"]
    assert (properties["DesiredCapacity"], properties["MaxSize"]) == ("40", "40")
    assert listing == {"WorkerGroup.DesiredCapacity": "40", "WorkerGroup.MaxSize": "40"}
    assert json.dumps(sample_template) == before


def test_sets_what_the_stack_asks_for_where_its_groups_ask_for_nothing(sample_template):
    request = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    sample_template["Resources"]["Request"] = request
    del sample_template["Resources"]["WorkerGroup"]["Properties"]["DesiredCapacity"]
    changed, listing = apply_overrides(sample_template, Overrides(worker_desired_capacity=40))
    assert changed["Resources"]["Request"]["Properties"]["Workers"] == "40"
    assert "DesiredCapacity" not in changed["Resources"]["WorkerGroup"]["Properties"]
    assert listing == {"Request.Workers": "40", "WorkerGroup.MaxSize": "40"}


def test_leaves_a_maximum_alone_that_is_high_enough(sample_template):
    changed, listing = apply_overrides(sample_template, Overrides(worker_desired_capacity=0))
    assert changed["Resources"]["WorkerGroup"]["Properties"]["MaxSize"] == "3"
    assert listing == {"WorkerGroup.DesiredCapacity": "0"}


def test_sets_the_number_of_a_stack_whose_workers_have_several_groups(sample_template):
    """Each may be asked for all of them, as candidates of one role are."""
    resources = sample_template["Resources"]
    resources["Request"] = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    resources["Second"] = copy.deepcopy(resources["WorkerGroup"])
    changed, listing = apply_overrides(sample_template, Overrides(worker_desired_capacity=40))
    assert [changed["Resources"][name]["Properties"]["MaxSize"] for name in ("WorkerGroup", "Second")] == ["40", "40"]
    assert listing == {"Request.Workers": "40", "Second.MaxSize": "40", "WorkerGroup.MaxSize": "40"}


def test_needs_workers_to_set_what_the_stack_asks_for(sample_template):
    resources = sample_template["Resources"]
    resources["Request"] = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "3"}}
    del resources["WorkerGroup"]
    with pytest.raises(AssemblyError, match="a group tagged deeplearning:role=worker"):
        apply_overrides(sample_template, Overrides(worker_desired_capacity=1))


def test_needs_one_group_of_workers_to_set_its_size(sample_template):
    del sample_template["Resources"]["WorkerGroup"]
    with pytest.raises(AssemblyError, match="one group tagged deeplearning:role=worker"):
        apply_overrides(sample_template, Overrides(worker_desired_capacity=1))
