"""A deployment's effects are said before it happens, by CloudFormation's own rules."""

import argparse
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cli import changes as command
from deeplearning_cli.changes import render_changes
from deeplearning_cli.template_changes import Effect, compare_templates, find_differences
from tests.unit.deeplearning_cli.replacement_rules import TARGET, make_rules


def make_template(**resources):
    return {
        "Resources": {name: dict(zip(("Type", "Properties"), entry, strict=False)) for name, entry in resources.items()}
    }


SUBNET = ("AWS::EC2::Subnet", {"AvailabilityZone": "a", "Tags": [{"Key": "Name", "Value": "x"}]})
TARGET_OF_SUBNET = ("AWS::EFS::MountTarget", {"SubnetId": {"Ref": "Subnet"}, "FileSystemId": {"Ref": "FileSystem"}})
FILE_SYSTEM = ("AWS::EFS::FileSystem", {"Encrypted": True, "KmsKeyId": "k", "ThroughputMode": "elastic"})


def change_of(before, after):
    [change] = compare_templates(make_template(It=before), make_template(It=after))
    return change


def test_the_rules_are_those_of_cloudformations_schemas():
    assert json.loads(TARGET.read_text()) == make_rules()


def test_equal_templates_change_nothing():
    template = make_template(Subnet=SUBNET, Target=TARGET_OF_SUBNET)
    assert compare_templates(template, template) == ()
    assert render_changes("training", ()) == ["training: nothing changes"]


def test_a_property_that_can_be_updated_updates_in_place():
    change = change_of(FILE_SYSTEM, (FILE_SYSTEM[0], FILE_SYSTEM[1] | {"ThroughputMode": "bursting"}))
    assert (change.effect, change.properties, change.loses_data) == (Effect.UPDATE, ("ThroughputMode",), False)


def test_a_property_that_cannot_be_updated_replaces_and_loses_the_data():
    change = change_of(FILE_SYSTEM, (FILE_SYSTEM[0], FILE_SYSTEM[1] | {"KmsKeyId": "other"}))
    assert (change.effect, change.properties, change.loses_data) == (Effect.REPLACE, ("KmsKeyId",), True)


def test_a_reference_to_a_replaced_resource_replaces_the_referrer_if_the_property_does():
    other = (SUBNET[0], SUBNET[1] | {"AvailabilityZone": "b"})
    changes = compare_templates(
        make_template(FileSystem=FILE_SYSTEM, Subnet=SUBNET, Target=TARGET_OF_SUBNET),
        make_template(FileSystem=FILE_SYSTEM, Subnet=other, Target=TARGET_OF_SUBNET),
    )
    assert [(change.logical_id, change.effect) for change in changes] == [
        ("Subnet", Effect.REPLACE),
        ("Target", Effect.REPLACE),
    ]


def test_a_resource_that_leaves_the_template_is_deleted_or_left_behind_by_its_policy():
    template = make_template(Log=("AWS::Logs::LogGroup", {}), Queue=("AWS::SQS::Queue", {}))
    template["Resources"]["Log"]["DeletionPolicy"] = "Retain"
    changes = compare_templates(template, make_template())
    assert {change.logical_id: change.effect for change in changes} == {"Log": Effect.KEEP, "Queue": Effect.DELETE}


def test_a_state_table_that_leaves_the_template_loses_its_data():
    [change] = compare_templates(make_template(Table=("AWS::DynamoDB::Table", {})), make_template())
    assert change.loses_data


def test_another_setup_time_is_refused_before_cloudformation_does():
    change = change_of(
        ("AWS::CloudFormation::WaitCondition", {"Timeout": "1"}),
        ("AWS::CloudFormation::WaitCondition", {"Timeout": "2"}),
    )
    assert change.effect is Effect.REFUSE


def test_a_new_launch_template_is_explained_for_the_nodes_that_run():
    lines = render_changes(
        "training",
        [
            change_of(
                ("AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"ImageId": "a"}}),
                ("AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"ImageId": "b"}}),
            )
        ],
    )
    assert "  It  AWS::EC2::LaunchTemplate  by LaunchTemplateData.ImageId" in lines
    assert any("deeplearning-cdk upgrade" in line for line in lines)


def _request(workers, timeout="600"):
    return ("Custom::RequestedCapacity", {"Master": "1", "Workers": workers, "ServiceTimeout": timeout})


def test_another_count_of_workers_is_explained():
    change = change_of(_request("3"), _request("5"))
    assert change.effect is Effect.UPDATE
    [line] = [line for line in render_changes("training", [change]) if line.startswith("capacity:")]
    assert "set once" in line
    assert "by hand" in line


def test_a_request_for_the_same_counts_explains_that_sizes_stay():
    lines = render_changes("training", [change_of(_request("3"), _request("3", timeout="700"))])
    assert not any(line.startswith("capacity:") for line in lines)


def test_the_first_request_of_a_cluster_that_runs_is_explained():
    """An upgrade from a template whose groups asked for themselves."""
    before = make_template(It=("AWS::AutoScaling::AutoScalingGroup", {"DesiredCapacity": "3", "MaxSize": "3"}))
    after = make_template(It=("AWS::AutoScaling::AutoScalingGroup", {"MaxSize": "3"}), Request=_request("3"))
    [line] = [
        line for line in render_changes("training", compare_templates(before, after)) if line.startswith("capacity:")
    ]
    assert "stays as it is" in line


def test_a_group_that_goes_is_said_to_take_its_nodes_along():
    before = make_template(Group=("AWS::AutoScaling::AutoScalingGroup", {"MinSize": "0"}))
    lines = render_changes("training", compare_templates(before, make_template()))
    assert lines[-1].startswith("nodes: Group would be deleted, with any node in it")


def test_the_limits_of_any_group_are_explained():
    kind = "AWS::AutoScaling::AutoScalingGroup"
    before = make_template(A=(kind, {"MaxSize": "3"}), B=(kind, {"Cooldown": "3"}))
    after = make_template(A=(kind, {"MaxSize": "5"}), B=(kind, {"Cooldown": "5"}))
    lines = render_changes("training", compare_templates(before, after))
    assert any("limits" in line and "stays as it was adjusted" in line for line in lines)


VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(before=VALUES, after=VALUES)
def test_values_differ_somewhere_exactly_when_they_are_not_equal(before, after):
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (list(find_differences({"It": before}, {"It": after})) == []) == (same or before == after)


@pytest.fixture
def assembly(tmp_path):
    def write(template):
        artifacts = {
            "training": {
                "type": "aws:cloudformation:stack",
                "properties": {"templateFile": "training.template.json"},
            }
        }
        (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
        (tmp_path / "training.template.json").write_text(json.dumps(template))
        return tmp_path

    return write


def run(assembly, deployed, **more):
    arguments = {"assembly": str(assembly), "stack": None, "deployed": str(deployed), "json": False} | more
    return command.run(argparse.Namespace(**arguments))


def test_the_command_ends_with_1_when_data_would_go_and_names_it(assembly, tmp_path, capsys):
    folder = assembly(make_template(It=(FILE_SYSTEM[0], FILE_SYSTEM[1] | {"KmsKeyId": "other"})))
    deployed = tmp_path / "deployed.json"
    deployed.write_text(json.dumps(make_template(It=FILE_SYSTEM)))
    assert run(folder, deployed) == 1
    printed = capsys.readouterr().out
    assert "! It  AWS::EFS::FileSystem  by KmsKeyId" in printed
    assert "DATA: It would be replaced or deleted" in printed


def test_the_command_ends_with_0_and_json_when_nothing_goes(assembly, tmp_path, capsys):
    folder = assembly(make_template(It=FILE_SYSTEM, Log=("AWS::Logs::LogGroup", {})))
    deployed = tmp_path / "deployed.json"
    deployed.write_text(json.dumps(make_template(It=FILE_SYSTEM)))
    assert run(folder, deployed, json=True) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry["effect"] == "create"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"assembly": "/nowhere"},
            "must be the folder of a synthesized app, got /nowhere, which does not exist; run: CDK",
        ),
        ({"stack": "other"}, "stack must name one of training, got 'other'"),
        ({"deployed": "/nowhere"}, "--deployed must be a template in JSON"),
    ],
)
def test_a_failed_comparison_is_reported_with_a_remedy(assembly, tmp_path, capsys, change, said):
    folder = assembly(make_template())
    assert run(**({"assembly": folder, "deployed": tmp_path / "manifest.json"} | change)) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def changed(assembly, tmp_path):
    """Return a function from a deployed resource and the wanted one to an assembly and a deployed template."""

    def make(before, after):
        deployed = tmp_path / "deployed.json"
        deployed.write_text(json.dumps(make_template(It=before)))
        return assembly(make_template(It=after)), deployed

    return make


# --- EMR ----------------------------------------------------------------------------------------------


def make_emr(**changes):
    instances = {
        "CoreInstanceGroup": {"InstanceCount": 2, "InstanceType": "m5.xlarge"},
        "Ec2SubnetId": "subnet-1",
        "TerminationProtected": False,
    }
    return "AWS::EMR::Cluster", {"Name": "training", "Instances": instances | changes}


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        (
            make_emr(CoreInstanceGroup={"InstanceCount": 3, "InstanceType": "m5.xlarge"}),
            0,
            ("updated in place:", "EMR: the group is resized in place; a new instance joins by itself"),
        ),
        (
            make_emr(CoreInstanceGroup={"InstanceCount": 2, "InstanceType": "m5.2xlarge"}),
            1,
            ("replaced by new ones, if CloudFormation finds it necessary:", "! It", "ends with its jobs and its HDFS"),
        ),
        (make_emr(Ec2SubnetId="subnet-2"), 1, ("! It", "takes the quota of both")),
        (("AWS::EMR::Cluster", {"Name": "other"}), 1, ("replaced by new ones:", "! It", "by Instances, Name")),
        (make_emr(TerminationProtected=True), 0, ("nodes and data stay as they are",)),
    ],
    ids=["one more member", "another type", "another subnet", "another name", "protection"],
)
def test_the_command_says_what_becomes_of_a_cluster_on_emr(changed, capsys, after, code, said):
    assert run(*changed(make_emr(), after)) == code
    printed = capsys.readouterr().out
    assert all(part in printed for part in said), printed
