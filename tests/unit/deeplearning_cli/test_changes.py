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


def make_group(kind, template="Template", **properties):
    reference = {
        "LaunchTemplateId" if "AutoScaling" in kind else "Id": {"Ref": template},
        "Version": {"Fn::GetAtt": [template, "LatestVersionNumber"]},
    }
    return kind, {"LaunchTemplate": reference, **properties}


def make_launch_template(**data):
    return "AWS::EC2::LaunchTemplate", {"LaunchTemplateData": data}


SCALING, NODE_GROUP = "AWS::AutoScaling::AutoScalingGroup", "AWS::EKS::Nodegroup"
OTHER_DISK = (make_launch_template(Disk=200), make_launch_template(Disk=300))


def test_a_new_launch_template_is_explained_for_the_nodes_that_run():
    """EC2 Auto Scaling API reference, UpdateAutoScalingGroup: existing instances keep their configuration."""
    changes = compare_templates(
        *(make_template(Template=template, Group=make_group(SCALING)) for template in OTHER_DISK)
    )
    lines = render_changes("training", changes)
    assert "  Group  AWS::AutoScaling::AutoScalingGroup  by LaunchTemplate.Version" in lines
    assert any("deeplearning-cdk upgrade" in line for line in lines)
    assert not any(change.is_harmful for change in changes)


# --- EKS ----------------------------------------------------------------------------------------------


def change_node_group(templates, one, other):
    changes = compare_templates(
        *(
            make_template(Template=template, Group=make_group(NODE_GROUP, **properties))
            for template, properties in zip(templates, (one, other), strict=True)
        )
    )
    [change] = [change for change in changes if change.logical_id == "Group"]
    return change


def test_a_new_launch_template_replaces_every_node_of_a_node_group_on_eks():
    """EKS user guide, "Customize managed nodes with launch templates": all nodes are recycled at another version."""
    change = change_node_group(OTHER_DISK, {}, {})
    assert (change.effect, change.properties) == (Effect.UPDATE, ("LaunchTemplate.Version",))
    assert change.ends_nodes
    assert change.ends_jobs


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
    change = change_node_group(OTHER_DISK, {}, properties)
    assert change.is_refused
    assert any("deploy twice" in outcome.note for outcome in change.outcomes)
    alone = change_node_group((OTHER_DISK[0], OTHER_DISK[0]), {}, properties)
    assert not alone.is_refused
    assert not alone.ends_nodes


@pytest.mark.parametrize("name", ["DesiredSize", "MaxSize"])
def test_a_smaller_node_group_ends_nodes_and_a_larger_one_does_not(name):
    smaller, larger = (
        change_node_group(
            (OTHER_DISK[0], OTHER_DISK[0]), {"ScalingConfig": {name: 3}}, {"ScalingConfig": {name: count}}
        )
        for count in (2, 4)
    )
    assert (smaller.ends_nodes, larger.ends_nodes) == (True, False)


def test_sizes_of_a_node_group_that_was_created_smaller_end_what_was_started_by_hand():
    """EKS API reference, UpdateNodegroupConfig: the desired size is that of the request, whatever runs."""
    same = (OTHER_DISK[0], OTHER_DISK[0])
    created = {"MinSize": 0, "DesiredSize": 0, "MaxSize": 2}
    change = change_node_group(same, {"ScalingConfig": created}, {"ScalingConfig": {**created, "MaxSize": 4}})
    assert change.ends_nodes
    assert any("set initial_members" in outcome.note for outcome in change.outcomes)
    whole = {"ScalingConfig": {"MinSize": 0, "DesiredSize": 4, "MaxSize": 4}}
    assert not change_node_group(same, {"ScalingConfig": created}, whole).ends_nodes
    assert not change_node_group(same, {"ScalingConfig": created}, {"ScalingConfig": created, "Labels": {}}).ends_nodes


@pytest.mark.parametrize(
    "name", ["AmiType", "CapacityType", "DiskSize", "InstanceTypes", "NodeRole", "Subnets", "NodegroupName"]
)
def test_a_replaced_node_group_ends_its_nodes(name):
    """CloudFormation's schema of the node group, createOnlyProperties."""
    change = change_node_group((OTHER_DISK[0], OTHER_DISK[0]), {name: "a"}, {name: "b"})
    assert (change.effect, change.ends_nodes, change.ends_jobs) == (Effect.REPLACE, True, True)


@pytest.mark.parametrize(
    ("version", "is_refused"), [("1.35", False), ("1.36", True), ("1.33", True)], ids=["next", "two ahead", "back"]
)
def test_kubernetes_goes_one_version_ahead_and_never_back(version, is_refused):
    """EKS user guide, "Update existing cluster to new Kubernetes version": one minor version, without a way back."""
    change = change_of(("AWS::EKS::Cluster", {"Version": "1.34"}), ("AWS::EKS::Cluster", {"Version": version}))
    assert change.is_refused == is_refused
    said = " ".join(outcome.note for outcome in change.outcomes)
    assert ("never back" in said) if is_refused else ("cannot be undone" in said)


# --- Replacements beside the former resource ----------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("AWS::EKS::Cluster", {"Name": "it", "RoleArn": "a"}, {"Name": "it", "RoleArn": "b"}),
        ("AWS::Backup::BackupVault", {"BackupVaultName": "it"}, {"BackupVaultName": "it", "EncryptionKeyArn": "b"}),
        ("AWS::EC2::Subnet", {"CidrBlock": "c", "AvailabilityZone": "a"}, {"CidrBlock": "c", "AvailabilityZone": "b"}),
        ("AWS::EFS::MountTarget", {"FileSystemId": "f", "SubnetId": "a"}, {"FileSystemId": "f", "SubnetId": "b"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_replacement_that_cannot_exist_beside_the_former_one_is_refused(kind, one, other):
    """
    CloudFormation creates the new resource first, and refuses to replace a custom-named one (AWS knowledge center,
    "cloudformation-custom-name"); EFS has one mount target in a zone and one VPC (EFS API reference,
    CreateMountTarget); two subnets of a VPC have different addresses (VPC user guide, "Subnet CIDR blocks").
    """
    change = change_of((kind, one), (kind, other))
    assert (change.effect, change.is_refused) == (Effect.REFUSE, True)


def test_a_mount_target_of_a_replaced_file_system_is_replaced_with_it_and_breaks_the_mounts():
    """EFS user guide, "Creating or deleting mount targets": a deletion forcibly breaks any mounts through it."""
    file_systems = (FILE_SYSTEM, (FILE_SYSTEM[0], FILE_SYSTEM[1] | {"KmsKeyId": "other"}))
    changes = compare_templates(
        *(make_template(FileSystem=each, Subnet=SUBNET, Target=TARGET_OF_SUBNET) for each in file_systems)
    )
    assert [(change.logical_id, change.effect, change.ends_jobs) for change in changes] == [
        ("FileSystem", Effect.REPLACE, True),
        ("Target", Effect.REPLACE, True),
    ]


# --- Rights and notebooks -----------------------------------------------------------------------------


def make_role(service, *resources):
    trust = {"Statement": [{"Effect": "Allow", "Principal": {"Service": service}}]}
    statement = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": list(resources)}
    policy = {"Roles": [{"Ref": "Role"}], "PolicyDocument": {"Statement": [statement]}}
    return {
        "Role": ("AWS::IAM::Role", {"AssumeRolePolicyDocument": trust}),
        "Rights": ("AWS::IAM::ManagedPolicy", policy),
    }


@pytest.mark.parametrize(
    ("service", "before", "after", "ends"),
    [
        ("sagemaker.amazonaws.com", ("a",), ("b",), True),
        ("pods.eks.amazonaws.com", ("a",), ("b",), True),
        ("ec2.amazonaws.com", ("a",), ("a", "b"), False),
        ("lambda.amazonaws.com", ("a",), ("b",), False),
    ],
)
def test_a_role_of_jobs_that_loses_a_right_ends_the_jobs_that_use_it(service, before, after, ends):
    changes = compare_templates(
        make_template(**make_role(service, *before)), make_template(**make_role(service, *after))
    )
    assert any(change.ends_jobs for change in changes) == ends


@pytest.mark.parametrize(
    ("service", "platform", "ends"),
    [
        ("ec2.amazonaws.com", {"Group": (SCALING, {})}, False),
        ("pods.eks.amazonaws.com", {}, True),
        ("sagemaker.amazonaws.com", {}, True),
    ],
)
def test_former_programs_are_needed_where_a_container_fetches_them_again(service, platform, ends):
    """A node has fetched its programs; a replaced pod or a restart on spot capacity fetches those of its job."""
    one, other = (make_role(service, f"arn:aws:s3:::cdk-hnb659fds-assets-1/{name}.zip") for name in "ab")
    changes = compare_templates(make_template(**one, **platform), make_template(**other, **platform))
    assert any(change.ends_jobs for change in changes) == ends


@pytest.mark.parametrize(
    ("other", "loses_data"), [({"InstanceType": "b"}, False), ({"SubnetId": "b"}, True)], ids=["update", "replacement"]
)
def test_a_changed_notebook_instance_stops_and_a_replaced_one_loses_its_files(other, loses_data):
    """SageMaker API reference, UpdateNotebookInstance: it must be stopped; CloudFormation's schema, createOnly."""
    kind, former = "AWS::SageMaker::NotebookInstance", {"InstanceType": "a", "SubnetId": "a"}
    change = change_of((kind, former), (kind, former | other))
    assert (change.ends_jobs, change.loses_data) == (True, loses_data)


def test_lustre_only_grows():
    """FSx for Lustre user guide, "Managing storage capacity": increase only."""
    kind = "AWS::FSx::FileSystem"
    smaller, larger = (
        change_of((kind, {"StorageCapacity": 2400}), (kind, {"StorageCapacity": size})) for size in (1200, 4800)
    )
    assert (smaller.is_refused, larger.is_harmful) == (True, False)


@pytest.mark.parametrize("name", ["DEEPLEARNING_STOP_AFTER_SECONDS", "DEEPLEARNING_BUDGET_TOPIC_ARN"])
def test_a_new_limit_of_spending_may_end_the_nodes_at_once(name):
    kind = "AWS::Lambda::Function"
    change = change_of((kind, {}), (kind, {"Environment": {"Variables": {name: "3600"}}}))
    assert change.ends_nodes


@pytest.mark.parametrize(
    "paths", [{"VPCZoneIdentifier": ["b"]}, {"MixedInstancesPolicy": {"a": 1}}, {"MaxSize": "2"}], ids=str
)
def test_a_changed_group_ends_the_nodes_that_no_longer_match(paths):
    """
    EC2 Auto Scaling API reference, UpdateAutoScalingGroup: a lower maximum scales in, and other purchase options may
    replace instances; user guide, "Add and remove Availability Zones": instances of a removed zone end.
    """
    former = {"MaxSize": "3", "VPCZoneIdentifier": ["a"]}
    change = change_of((SCALING, former), (SCALING, former | paths))
    assert (change.effect, change.ends_nodes) == (Effect.UPDATE, True)


# --- Capacity -----------------------------------------------------------------------------------------


def _request(workers, timeout="600"):
    return ("Custom::RequestedCapacity", {"Master": "1", "Workers": workers, "ServiceTimeout": timeout})


def test_fewer_workers_end_nodes():
    assert change_of(_request("5"), _request("3")).ends_nodes


def test_another_count_of_workers_is_explained():
    change = change_of(_request("3"), _request("5"))
    assert (change.effect, change.is_harmful) == (Effect.UPDATE, False)
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
    assert lines[-1].startswith("nodes: Group would be replaced or deleted, with any node in it")


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
        (make_emr(TerminationProtected=True), 0, ("nodes, jobs and data stay as they are",)),
    ],
    ids=["one more member", "another type", "another subnet", "another name", "protection"],
)
def test_the_command_says_what_becomes_of_a_cluster_on_emr(changed, capsys, after, code, said):
    assert run(*changed(make_emr(), after)) == code
    printed = capsys.readouterr().out
    assert all(part in printed for part in said), printed
