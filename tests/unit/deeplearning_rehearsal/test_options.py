"""Options of the command line reach the enclosed process, and the template's own limits are kept."""

from pathlib import Path

import pytest

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.platforms.ec2 import WORKER_MINIMUM_VARIABLE, Ec2Platform


def _template(fewest):
    def group(desired):
        return {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {"DesiredCapacity": desired}}

    variables = {WORKER_MINIMUM_VARIABLE: fewest}
    return {
        "Resources": {
            "Master": group("1"),
            "Workers": group("3"),
            "Other": {"Type": "AWS::Lambda::Function", "Properties": {}},
            "Adjuster": {"Type": "AWS::Lambda::Function", "Properties": {"Environment": {"Variables": variables}}},
        }
    }


def test_options_survive_the_way_into_the_enclosed_process():
    options = RehearsalOptions(
        assembly=Path("/a/cdk.out"),
        stack=None,
        nodes=3,
        gpus_per_node=2,
        expect="formed",
        minutes=0.5,
        keep=True,
        json=False,
        out=Path("/a/out"),
        cache=Path("/cache"),
    )
    assert RehearsalOptions.from_json(options.to_json()) == options
    assert (options.cache, options.work) == (Path("/cache"), Path("/a/out/lab"))


def test_a_fault_case_has_a_folder_of_its_own_and_shares_the_cache():
    options = RehearsalOptions(
        assembly=Path("/a/cdk.out"),
        expect="failed",
        out=Path("/a/out"),
        cache=Path("/cache"),
        case="/cases/own.py::quota",
    )
    assert RehearsalOptions.from_json(options.to_json()) == options
    assert (options.folder, options.work) == (Path("/a/out/quota"), Path("/a/out/quota/lab"))
    assert options.cache == Path("/cache")


def test_requested_nodes_are_those_of_all_groups():
    assert Ec2Platform().count_nodes(_template("1")) == 4


def test_nodes_that_the_stack_asks_for_are_counted_whatever_its_groups_say():
    template = _template("1")
    for name in ("Master", "Workers"):
        template["Resources"][name]["Properties"] = {"MinSize": "0"}
    assert Ec2Platform().count_nodes(template) == 0
    request = {"Type": "Custom::RequestedCapacity", "Properties": {"Master": "1", "Workers": "5"}}
    template["Resources"]["Request"] = request
    assert Ec2Platform().count_nodes(template) == 6


def test_fewer_nodes_than_the_stack_is_content_with_are_refused_before_anything_is_deployed():
    with pytest.raises(UnavailableError) as caught:
        Ec2Platform().require_nodes(_template("2"), 2)
    assert str(caught.value) == (
        "--nodes must be at least 3, the master and the stack's workers.min_capacity of 2, got 2; "
        "raise it, or synthesize with a lower workers.min_capacity"
    )


@pytest.mark.parametrize(("fewest", "nodes"), [("2", 3), ("0", 1), ({"Ref": "Fewest"}, 1), (None, 1)])
def test_sizes_that_may_form_are_not_refused(fewest, nodes):
    Ec2Platform().require_nodes(_template(fewest), nodes)
