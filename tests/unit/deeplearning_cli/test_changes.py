"""A deployment's effects are said before it happens, by CloudFormation's own rules."""

import argparse
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cli.changes import command
from deeplearning_cli.changes.command import render_changes
from deeplearning_cli.changes.effects import Effect
from deeplearning_cli.changes.templates import compare_templates, find_differences
from tests.unit.deeplearning_cli.replacement_rules import TARGET, make_rules


def make_template(**resources):
    return {
        "Resources": {name: dict(zip(("Type", "Properties"), entry, strict=False)) for name, entry in resources.items()}
    }


SUBNET = ("AWS::EC2::Subnet", {"AvailabilityZone": "a", "Tags": [{"Key": "Name", "Value": "x"}]})
TARGET_OF_SUBNET = ("AWS::EFS::MountTarget", {"SubnetId": {"Ref": "Subnet"}, "FileSystemId": {"Ref": "FileSystem"}})
FILE_SYSTEM = ("AWS::EFS::FileSystem", {"Encrypted": True, "KmsKeyId": "k", "ThroughputMode": "elastic"})


GROUP, NODE_GROUP, CLUSTER = "AWS::AutoScaling::AutoScalingGroup", "AWS::EKS::Nodegroup", "AWS::EKS::Cluster"
NOTEBOOK, LUSTRE, FUNCTION = "AWS::SageMaker::NotebookInstance", "AWS::FSx::FileSystem", "AWS::Lambda::Function"
REQUEST, WAIT = "Custom::RequestedCapacity", "AWS::CloudFormation::WaitCondition"
SIZES = {"MinSize": 0, "DesiredSize": 0, "MaxSize": 2}
NODES = {"MaxSize": "3", "VPCZoneIdentifier": ["a"]}


def change_of(before, after):
    [change] = compare_templates(make_template(It=before), make_template(It=after))
    return change


def test_the_rules_are_those_of_cloudformations_schemas():
    assert json.loads(TARGET.read_text()) == make_rules()


def compare_lines(before, after):
    """Return the lines about two templates."""
    return render_changes("training", compare_templates(before, after))


def test_equal_templates_change_nothing():
    template = make_template(Subnet=SUBNET, Target=TARGET_OF_SUBNET)
    assert compare_lines(template, template) == ["training: nothing changes"]


UPDATED, REPLACED, REFUSED = {"effect": Effect.UPDATE}, {"effect": Effect.REPLACE}, {"effect": Effect.REFUSE}
UPDATES = {
    "throughput": (*FILE_SYSTEM, {"ThroughputMode": "bursting"}, UPDATED | {"loses_data": False}),
    "key": (*FILE_SYSTEM, {"KmsKeyId": "other"}, REPLACED | {"properties": ("KmsKeyId",), "loses_data": True}),
    "setup time": (WAIT, {"Timeout": "1"}, {"Timeout": "2"}, REFUSED),
    "more workers": (REQUEST, {"Workers": "3"}, {"Workers": "5"}, UPDATED | {"is_harmful": False}),
    "fewer workers": (REQUEST, {"Workers": "5"}, {"Workers": "3"}, {"ends_nodes": True}),
    # SageMaker API reference, UpdateNotebookInstance: it must be stopped; CloudFormation's schema, createOnly.
    "notebook updated": (
        NOTEBOOK,
        {"InstanceType": "a"},
        {"InstanceType": "b"},
        {"ends_jobs": True, "loses_data": False},
    ),
    "notebook replaced": (NOTEBOOK, {"SubnetId": "a"}, {"SubnetId": "b"}, {"ends_jobs": True, "loses_data": True}),
    # FSx for Lustre user guide, "Managing storage capacity": increase only.
    "smaller Lustre": (LUSTRE, {"StorageCapacity": 2400}, {"StorageCapacity": 1200}, {"is_refused": True}),
    "larger Lustre": (LUSTRE, {"StorageCapacity": 2400}, {"StorageCapacity": 4800}, {"is_harmful": False}),
    **{
        f"limit {name}": (FUNCTION, {}, {"Environment": {"Variables": {name: "3600"}}}, {"ends_nodes": True})
        for name in ("DEEPLEARNING_STOP_AFTER_SECONDS", "DEEPLEARNING_BUDGET_TOPIC_ARN")
    },
    # EC2 Auto Scaling API reference, UpdateAutoScalingGroup: a lower maximum scales in, and other purchase options may
    # replace instances; user guide, "Add and remove Availability Zones": instances of a removed zone end.
    "zones of nodes": (GROUP, NODES, {"VPCZoneIdentifier": ["b"]}, UPDATED | {"ends_nodes": True}),
    "market of nodes": (GROUP, NODES, {"MixedInstancesPolicy": {"a": 1}}, UPDATED | {"ends_nodes": True}),
    "most nodes": (GROUP, NODES, {"MaxSize": "2"}, UPDATED | {"ends_nodes": True}),
    # CloudFormation creates the new resource first, and refuses to replace a custom-named one (AWS knowledge center,
    # "cloudformation-custom-name"); EFS has one mount target in a zone and one VPC (EFS API reference,
    # CreateMountTarget); two subnets of a VPC have different addresses (VPC user guide, "Subnet CIDR blocks").
    "named cluster": (CLUSTER, {"Name": "it", "RoleArn": "a"}, {"RoleArn": "b"}, REFUSED | {"is_refused": True}),
    "named vault": ("AWS::Backup::BackupVault", {"BackupVaultName": "it"}, {"EncryptionKeyArn": "b"}, REFUSED),
    "subnet of addresses": (SUBNET[0], {"CidrBlock": "c", "AvailabilityZone": "a"}, {"AvailabilityZone": "b"}, REFUSED),
    "mount target": (TARGET_OF_SUBNET[0], {"FileSystemId": "f", "SubnetId": "a"}, {"SubnetId": "b"}, REFUSED),
    # CloudFormation's schema of the node group, createOnlyProperties.
    **{
        f"node group's {name}": (
            NODE_GROUP,
            {name: "a"},
            {name: "b"},
            REPLACED | {"ends_nodes": True, "ends_jobs": True},
        )
        for name in ("AmiType", "CapacityType", "DiskSize", "InstanceTypes", "NodeRole", "Subnets", "NodegroupName")
    },
    **{
        f"node group's {name} {count}": (
            NODE_GROUP,
            {"ScalingConfig": {name: 3}},
            {"ScalingConfig": {name: count}},
            {"ends_nodes": count < 3, "is_refused": False},
        )
        for name in ("DesiredSize", "MaxSize")
        for count in (2, 4)
    },
    # EKS API reference, UpdateNodegroupConfig: the desired size is that of the request, whatever runs.
    "sizes that were created smaller": (
        NODE_GROUP,
        {"ScalingConfig": SIZES},
        {"ScalingConfig": SIZES | {"MaxSize": 4}},
        {"ends_nodes": True},
    ),
    "whole sizes": (
        NODE_GROUP,
        {"ScalingConfig": SIZES},
        {"ScalingConfig": SIZES | {"DesiredSize": 4, "MaxSize": 4}},
        {"ends_nodes": False},
    ),
    "labels beside sizes": (NODE_GROUP, {"ScalingConfig": SIZES}, {"Labels": {}}, {"ends_nodes": False}),
}
"""Change -> type, properties, those that change, and what becomes of it; the source is above the rows."""


@pytest.mark.parametrize(("kind", "former", "changed", "expected"), UPDATES.values(), ids=UPDATES)
def test_a_changed_property_has_the_effect_that_its_service_documents(kind, former, changed, expected):
    change = change_of((kind, former), (kind, former | changed))
    assert {name: getattr(change, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("kind", "former", "changed", "is_refused", "said"),
    [
        (CLUSTER, {"Version": "1.34"}, {"Version": "1.35"}, False, "cannot be undone"),
        (CLUSTER, {"Version": "1.34"}, {"Version": "1.36"}, True, "never back"),
        (CLUSTER, {"Version": "1.34"}, {"Version": "1.33"}, True, "never back"),
        (NODE_GROUP, {"ScalingConfig": SIZES}, {"ScalingConfig": SIZES | {"MaxSize": 4}}, False, "set initial_members"),
    ],
    ids=["next", "two ahead", "back", "sizes"],
)
def test_a_change_on_eks_is_explained(kind, former, changed, is_refused, said):
    """EKS user guide, "Update existing cluster to new Kubernetes version": one minor version, without a way back."""
    change = change_of((kind, former), (kind, former | changed))
    assert change.is_refused == is_refused
    assert said in " ".join(outcome.note for outcome in change.outcomes)


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("Subnet", SUBNET, SUBNET[1] | {"AvailabilityZone": "b"}),
        # EFS user guide, "Creating or deleting mount targets": a deletion forcibly breaks any mounts through it.
        ("FileSystem", FILE_SYSTEM, FILE_SYSTEM[1] | {"KmsKeyId": "other"}),
    ],
)
def test_a_reference_to_a_replaced_resource_replaces_the_referrer_and_breaks_its_mounts(name, one, other):
    former = {"FileSystem": FILE_SYSTEM, "Subnet": SUBNET, "Target": TARGET_OF_SUBNET}
    changes = compare_templates(make_template(**former), make_template(**former | {name: (one[0], other)}))
    assert [(change.logical_id, change.effect) for change in changes] == [
        (name, Effect.REPLACE),
        ("Target", Effect.REPLACE),
    ]
    assert all(change.ends_jobs for change in changes)


def test_a_resource_that_leaves_the_template_is_deleted_or_left_behind_by_its_policy():
    kinds = {"Log": "AWS::Logs::LogGroup", "Queue": "AWS::SQS::Queue", "Table": "AWS::DynamoDB::Table"}
    template = make_template(**{name: (kind, {}) for name, kind in kinds.items()})
    template["Resources"]["Log"]["DeletionPolicy"] = "Retain"
    changes = compare_templates(template, make_template())
    assert {change.logical_id: (change.effect, change.loses_data) for change in changes} == {
        "Log": (Effect.KEEP, False),
        "Queue": (Effect.DELETE, False),
        "Table": (Effect.DELETE, True),
    }


# --- Launch templates ---------------------------------------------------------------------------------


def change_template(kind, one=100, other=200, **properties):
    """Return the changes of a group and of the disk of its launch template."""
    reference = {
        "LaunchTemplateId" if kind == GROUP else "Id": {"Ref": "Template"},
        "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
    }
    former, changed = (
        make_template(
            Template=("AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"Disk": disk}}),
            Group=(kind, {"LaunchTemplate": reference, **more}),
        )
        for disk, more in ((one, {}), (other, properties))
    )
    return compare_templates(former, changed)


def test_a_new_launch_template_is_explained_for_the_nodes_that_run():
    """EC2 Auto Scaling API reference, UpdateAutoScalingGroup: existing instances keep their configuration."""
    changes = change_template(GROUP)
    lines = render_changes("training", changes)
    assert "  Group  AWS::AutoScaling::AutoScalingGroup  by LaunchTemplate.Version" in lines
    assert any("deeplearning-cdk upgrade" in line for line in lines)
    assert not any(change.is_harmful for change in changes)


def test_a_new_launch_template_replaces_every_node_of_a_node_group_on_eks():
    """EKS user guide, "Customize managed nodes with launch templates": all nodes are recycled at another version."""
    (change,) = (each for each in change_template(NODE_GROUP) if each.logical_id == "Group")
    assert (change.effect, change.properties) == (Effect.UPDATE, ("LaunchTemplate.Version",))
    assert (change.ends_nodes, change.ends_jobs) == (True, True)


@pytest.mark.parametrize(
    "properties",
    [
        {"ScalingConfig": {"DesiredSize": 3}},
        {"Labels": {"a": "b"}},
        {"Taints": []},
        {"Tags": {"team": "vision"}},
        {"UpdateConfig": {"MaxUnavailable": 2}},
        {"NodeRepairConfig": {"Enabled": False}},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_eks_refuses_a_launch_template_with_any_other_update_in_one_deployment(properties):
    """Issue 1258 of aws/containers-roadmap: "Version and ReleaseVersion updates cannot be combined with other"."""
    (change,) = (each for each in change_template(NODE_GROUP, **properties) if each.logical_id == "Group")
    assert change.is_refused
    assert any("deploy twice" in outcome.note for outcome in change.outcomes)
    (alone,) = change_template(NODE_GROUP, 100, 100, **properties)
    assert (alone.is_refused, alone.ends_nodes) == (False, False)


# --- Rights -----------------------------------------------------------------------------------------


def make_role(service, *resources):
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": service}}]}
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": list(resources)}
    policy = {"Roles": [{"Ref": "Role"}], "PolicyDocument": {"Statement": [statement]}}
    return {
        "Role": ("AWS::IAM::Role", {"AssumeRolePolicyDocument": trust}),
        "Rights": ("AWS::IAM::ManagedPolicy", policy),
    }


ASSETS = ("arn:aws:s3:::cdk-hnb659fds-assets-1/a.zip",), ("arn:aws:s3:::cdk-hnb659fds-assets-1/b.zip",)


@pytest.mark.parametrize(
    ("service", "before", "after", "platform", "ends"),
    [
        ("sagemaker.amazonaws.com", ("a",), ("b",), {}, True),
        ("pods.eks.amazonaws.com", ("a",), ("b",), {}, True),
        ("ec2.amazonaws.com", ("a",), ("a", "b"), {}, False),
        ("lambda.amazonaws.com", ("a",), ("b",), {}, False),
        # A node has fetched its programs; a replaced pod or a restart on spot capacity fetches those of its job.
        ("ec2.amazonaws.com", *ASSETS, {"Group": (GROUP, {})}, False),
        ("pods.eks.amazonaws.com", *ASSETS, {}, True),
        ("sagemaker.amazonaws.com", *ASSETS, {}, True),
    ],
)
def test_a_role_of_jobs_that_loses_a_right_ends_the_jobs_that_use_it(service, before, after, platform, ends):
    one, other = (make_template(**make_role(service, *rights), **platform) for rights in (before, after))
    assert any(change.ends_jobs for change in compare_templates(one, other)) == ends


# --- What is printed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "start", "parts"),
    [
        (
            {"It": (REQUEST, {"Workers": "3"})},
            {"It": (REQUEST, {"Workers": "5"})},
            "capacity:",
            ("set once", "by hand"),
        ),
        ({"It": (REQUEST, {"Timeout": "6"})}, {"It": (REQUEST, {"Timeout": "7"})}, "capacity:", None),
        # An upgrade from a template whose groups asked for themselves.
        (
            {"It": (GROUP, {"DesiredCapacity": "3", "MaxSize": "3"})},
            {"It": (GROUP, {"MaxSize": "3"}), "Request": (REQUEST, {"Workers": "3"})},
            "capacity:",
            ("stays as it is",),
        ),
        ({"Group": (GROUP, {})}, {}, "nodes: Group would be replaced or deleted, with any node in it", ()),
        (
            {"A": (GROUP, {"MaxSize": "3"}), "B": (GROUP, {"Cooldown": "3"})},
            {"A": (GROUP, {"MaxSize": "5"}), "B": (GROUP, {"Cooldown": "5"})},
            "",
            ("limits", "stays as it was adjusted"),
        ),
    ],
    ids=["another count", "the same count", "the first request", "no group", "limits"],
)
def test_the_sizes_of_groups_are_explained(before, after, start, parts):
    lines = compare_lines(make_template(**before), make_template(**after))
    found = [line for line in lines if line.startswith(start)]
    assert any(all(part in line for part in parts) for line in found) if parts is not None else found == []


VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(before=VALUES, after=VALUES)
def test_values_differ_somewhere_exactly_when_they_are_not_equal(before, after):
    same = json.dumps(before, sort_keys=True) == json.dumps(after, sort_keys=True)
    assert (list(find_differences({"It": before}, {"It": after})) == []) == (same or before == after)


@pytest.fixture
def run(tmp_path):
    """Return a function that compares a deployed template with the one of an assembly."""

    def compare(before, after, **options):
        properties = {"templateFile": "training.template.json"}
        artifacts = {"training": {"type": "aws:cloudformation:stack", "properties": properties}}
        (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
        (tmp_path / "training.template.json").write_text(json.dumps(after))
        deployed = tmp_path / "deployed.json"
        deployed.write_text(json.dumps(before))
        arguments = {"assembly": str(tmp_path), "stack": None, "deployed": str(deployed), "json": False}
        return command.run(argparse.Namespace(**arguments | options))

    return compare


def test_the_command_prints_json_and_ends_with_0_when_nothing_goes(run, capsys):
    before, after = make_template(It=FILE_SYSTEM), make_template(It=FILE_SYSTEM, Log=("AWS::Logs::LogGroup", {}))
    assert run(before, after, json=True) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert entry["effect"] == "create"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"assembly": "/nowhere"},
            "must be the folder of a synthesized app, got /nowhere, which does not exist; run: CDK",
        ),
        ({"stack": "other"}, "stack must name one of training, got 'other'"),
        ({"deployed": "/nowhere"}, "--deployed must be a template in JSON"),
    ],
)
def test_a_failed_comparison_is_reported_with_a_remedy(run, capsys, options, said):
    assert run(make_template(), make_template(), **options) == 2
    assert said in capsys.readouterr().err


def make_emr(**changes):
    instances = {
        "CoreInstanceGroup": {"InstanceCount": 2, "InstanceType": "m5.xlarge"},
        "Ec2SubnetId": "subnet-1",
        "TerminationProtected": False,
    }
    return "AWS::EMR::Cluster", {"Name": "training", "Instances": instances | changes}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            FILE_SYSTEM,
            (FILE_SYSTEM[0], FILE_SYSTEM[1] | {"KmsKeyId": "other"}),
            ("! It  AWS::EFS::FileSystem  by KmsKeyId", "DATA: It would be replaced or deleted"),
        ),
        (
            make_emr(),
            make_emr(CoreInstanceGroup={"InstanceCount": 3, "InstanceType": "m5.xlarge"}),
            ("updated in place:", "EMR: the group is resized in place; a new instance joins by itself"),
        ),
        (
            make_emr(),
            make_emr(CoreInstanceGroup={"InstanceCount": 2, "InstanceType": "m5.2xlarge"}),
            ("replaced by new ones, if CloudFormation finds it necessary:", "! It", "ends with its jobs and its HDFS"),
        ),
        (make_emr(), make_emr(Ec2SubnetId="subnet-2"), ("! It", "takes the quota of both")),
        (
            make_emr(),
            ("AWS::EMR::Cluster", {"Name": "other"}),
            ("replaced by new ones:", "! It", "by Instances, Name"),
        ),
        (make_emr(), make_emr(TerminationProtected=True), ("nodes, jobs and data stay as they are",)),
    ],
    ids=["a file system", "one more member", "another type", "another subnet", "another name", "protection"],
)
def test_the_command_says_what_becomes_of_data_and_of_a_cluster_on_emr(run, capsys, before, after, said):
    status = run(make_template(It=before), make_template(It=after))
    printed = capsys.readouterr().out
    assert all(part in printed for part in said), printed
    assert status == ("! It" in printed)
