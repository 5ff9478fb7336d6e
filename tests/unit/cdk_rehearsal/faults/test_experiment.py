"""Experiments of AWS FIS: their templates hold before FIS's own service model, and name what a rehearsal strikes."""

import botocore.session
import pytest
from botocore.model import MapShape, StructureShape
from botocore.validate import ParamValidator

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.faults.experiment import make_experiment
from cdk_rehearsal.faults.strike import make_launch_faults
from cdk_rehearsal.referees.lint import lint_template

CREATE = botocore.session.get_session().get_service_model("fis").operation_model("CreateExperimentTemplate").input_shape
FIRST_ZONE, SECOND_ZONE = {"Fn::Select": [0, {"Fn::GetAZs": ""}]}, {"Fn::Select": [1, {"Fn::GetAZs": ""}]}


def make_stack(name="web", subnets=None, **group):
    """Return a stack with a group in two subnets, which it has itself unless some are given."""
    own = [{"Ref": "First"}, {"Ref": "Second"}]
    properties = {"LaunchTemplate": {}, "VPCZoneIdentifier": own if subnets is None else subnets, **group}
    zones = {"First": FIRST_ZONE, "Second": SECOND_ZONE}
    resources = {
        key: {"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": zone}} for key, zone in zones.items()
    }
    resources["Group"] = {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": properties}
    return AssemblyStack(name, "123456789012", "us-east-1", {"Resources": resources}, ())


def read(template):
    """Return the properties of the experiment."""
    return template["Resources"]["Experiment"]["Properties"]


def to_request(value, shape):
    """Return properties of CloudFormation as FIS's API has them; what exists at the deployment alone is a text."""
    if isinstance(value, dict) and any(key.startswith("Fn::") for key in value):
        return "known at the deployment"
    if isinstance(shape, StructureShape):
        names = {key: key[0].lower() + key[1:] for key in value}
        return {name: to_request(value[key], shape.members[name]) for key, name in names.items()}
    if isinstance(shape, MapShape):
        return {key: to_request(each, shape.value) for key, each in value.items()}
    return [to_request(each, shape.member) for each in value] if isinstance(value, list) else value


def find_flaws(template):
    """Return what FIS's service model and CloudFormation's schemas say against a template."""
    request = to_request(read(template), CREATE) | {"clientToken": "token"}
    report = ParamValidator().validate(request, CREATE).generate_report()
    found = [str(each) for each in lint_template(template, regions=["us-east-1"]) if not each.rule.id.startswith("I")]
    return report + "".join(found)


@pytest.mark.parametrize("fault", ["capacity", "instance", "network"])
@pytest.mark.parametrize("stacks", [(make_stack(),), (make_stack("a"), make_stack("b", subnets=["subnet-0a1b2c3d"]))])
def test_the_experiment_of_every_fault_is_one_that_fis_and_cloudformation_take(fault, stacks):
    template = make_experiment(fault, stacks)
    assert find_flaws(template) == ""
    experiment = read(template)
    for action in experiment["Actions"].values():
        assert set(action.get("Targets", {}).values()) <= experiment["Targets"].keys()
        assert set(action.get("StartAfter", ())) <= experiment["Actions"].keys()


def test_a_misspelled_property_of_an_experiment_is_found():
    template = make_experiment("instance", (make_stack(),))
    action = read(template)["Actions"]["end"]
    del action["ActionId"]
    assert "actionId" in find_flaws(template)


def test_an_instance_of_the_first_group_ends_and_the_role_may_end_those_of_its_stack_alone():
    template = make_experiment("instance", (make_stack(), make_stack("later")))
    (target,) = read(template)["Targets"].values()
    assert target["ResourceTags"] == {
        "aws:cloudformation:stack-name": "web",
        "aws:cloudformation:logical-id": "Group",
    }
    assert target["SelectionMode"] == "COUNT(1)"
    (policy,) = template["Resources"]["Role"]["Properties"]["Policies"]
    end, look = policy["PolicyDocument"]["Statement"]
    assert (end["Action"], look["Action"]) == ("ec2:TerminateInstances", "ec2:DescribeInstances")
    assert end["Condition"] == {"StringEquals": {"aws:ResourceTag/aws:cloudformation:stack-name": "web"}}


def test_capacity_is_missing_in_the_zones_of_the_groups_and_something_is_launched_meanwhile():
    actions = read(make_experiment("capacity", (make_stack(),)))["Actions"]
    assert actions["capacity1"]["Parameters"] == {
        "duration": "PT10M",
        "availabilityZoneIdentifiers": {"Fn::Join": [",", [FIRST_ZONE, SECOND_ZONE]]},
    }
    assert actions["end"]["StartAfter"] == ["wait"]
    elsewhere = read(make_experiment("capacity", (make_stack(subnets=["subnet-0a1b2c3d"]),)))["Actions"]
    assert elsewhere["capacity1"]["Parameters"]["availabilityZoneIdentifiers"] == {
        "Fn::Join": [",", {"Fn::GetAZs": ""}]
    }


def test_the_first_subnet_of_the_group_is_cut_off_by_its_tags_or_by_its_id():
    (own,) = read(make_experiment("network", (make_stack(),)))["Targets"].values()
    assert own["ResourceTags"]["aws:cloudformation:logical-id"] == "First"
    exported = make_stack(subnets=[{"Fn::ImportValue": "net:Subnet"}])
    (other,) = read(make_experiment("network", (exported,)))["Targets"].values()
    assert other["ResourceArns"][0]["Fn::Sub"][1] == {"Subnet": {"Fn::ImportValue": "net:Subnet"}}


def test_the_description_says_what_it_costs_and_where_that_is_written():
    two = (make_stack("a"), make_stack("b"))
    for fault, stacks, minutes in (("capacity", two, 22), ("instance", two, 1), ("network", two, 10)):
        description = make_experiment(fault, stacks)["Description"]
        assert f"Action-minutes: {minutes} at most; https://aws.amazon.com/fis/pricing/ names 0.10 USD" in description


def test_what_fis_cannot_strike_is_refused_by_name():
    """AWS FIS Actions reference: missing capacity "only supports Auto Scaling groups using launch templates"."""
    old = make_stack()
    old.template["Resources"]["Group"]["Properties"].pop("LaunchTemplate")
    with pytest.raises(AssemblyError, match=r"for groups with launch templates, got web\.Group without one"):
        make_experiment("capacity", (old,))
    with pytest.raises(
        AssemblyError, match=r"first subnet of web\.Group must be in its template, .* got \{'Ref': 'Given'\}"
    ):
        make_experiment("network", (make_stack(subnets=[{"Ref": "Given"}]),))
    empty = AssemblyStack("none", "123456789012", "us-east-1", {"Resources": {}}, ())
    with pytest.raises(
        AssemblyError, match="strikes an Auto Scaling group of a stack that is not nested, got none in none"
    ):
        make_experiment("instance", (empty,))


def test_missing_capacity_strikes_the_groups_of_the_experiment():
    stacks = (make_stack("a"), make_stack("b"))
    tags = [fault.tags for fault in make_launch_faults("capacity", stacks)]
    targets = read(make_experiment("capacity", stacks))["Targets"]
    wanted = [each["ResourceTags"] for name, each in targets.items() if name.startswith("groups")]
    assert len(tags) == len(wanted)
    assert all(want.items() <= tag.items() for want, tag in zip(wanted, tags, strict=True))
    assert make_launch_faults("instance", stacks) == make_launch_faults(None, stacks) == ()
