"""What a user has already is taken by its CDK interface: file systems, roles and security groups."""

import json
from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import NodeImage, TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.foreign_dependencies import find_foreign_dependencies

CPU = {"worker_instance_type": "m5.large"}
ROLE_ARN = "arn:aws:iam::111122223333:role/team/trainers"
GROUP = "AWS::AutoScaling::AutoScalingGroup"


def _make_vpc(stack: cdk.Stack) -> ec2.Vpc:
    return ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)


def _make_role(scope: cdk.Stack, name: str = "Mine") -> iam.Role:
    return iam.Role(scope, name, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def _actions(statements: list[Any]) -> list[Any]:
    return [statement["Action"] for statement in statements]


# --- File systems -------------------------------------------------------------------------------------


def test_a_file_system_of_the_app_is_mounted_once_its_mount_target_is_there(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    vpc = _make_vpc(stack)
    mine = efs.FileSystem(stack, "Mine", vpc=vpc, allow_anonymous_access=True)
    TrainingCluster(stack, "Cluster", vpc=vpc, file_system=mine, **CPU)
    synthesis = read_stack(stack)
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    (target,) = synthesis.of_type("AWS::EFS::MountTarget")
    for role in NodeRole:
        assert synthesis.settings(role).file_system.source.startswith(f"<{file_system}>.efs.")
        assert target in synthesis.before(synthesis.group_id(role))
    rules = [rule["Properties"] for rule in synthesis.of_type("AWS::EC2::SecurityGroupIngress").values()]
    (nfs,) = [rule for rule in rules if rule.get("FromPort") == 2049]
    assert "MineEfsSecurityGroup" in json.dumps(nfs["GroupId"])
    assert "NodesSecurityGroup" in json.dumps(nfs["SourceSecurityGroupId"])
    # The user's is the user's to back up.
    selection = synthesis.only("AWS::Backup::BackupSelection")["BackupSelection"]["Resources"]
    assert file_system not in json.dumps(selection)


def test_a_file_system_without_the_vpc_of_its_mount_targets_is_refused(make_stack: Any) -> None:
    stack = make_stack()
    mine = efs.FileSystem(stack, "Mine", vpc=_make_vpc(stack), allow_anonymous_access=True)
    with pytest.raises(ValueError, match=r"^vpc must be given with file_system, got none; pass the VPC in which its "):
        TrainingCluster(stack, "Cluster", file_system=mine, **CPU)


def test_a_file_system_in_another_vpc_of_the_app_is_refused(make_stack: Any) -> None:
    stack = make_stack()
    mine = efs.FileSystem(stack, "Mine", vpc=_make_vpc(stack), allow_anonymous_access=True)
    other = ec2.Vpc(stack, "Other", max_azs=1, restrict_default_security_group=False)
    with pytest.raises(ValueError, match=r"^vpc must be that of file_system, got .*/Other; pass the VPC in which its "):
        TrainingCluster(stack, "Cluster", vpc=other, file_system=mine, **CPU)


def test_an_imported_file_system_is_mounted_with_iam_by_an_image_that_can(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")
    mine = efs.FileSystem.from_file_system_attributes(
        stack, "Mine", file_system_id="fs-0123456789abcdef0", security_group=group
    )
    image = NodeImage.deep_learning_amazon_linux()
    TrainingCluster(stack, "Cluster", vpc=_make_vpc(stack), file_system=mine, image=image, **CPU)
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::EFS::MountTarget")
    assert synthesis.only("AWS::EFS::AccessPoint")["FileSystemId"] == "fs-0123456789abcdef0"
    assert [s for s in synthesis.statements("WorkerRole") if "elasticfilesystem:ClientMount" in s["Action"]]


def test_a_file_system_of_another_stack_is_mounted(make_app: Callable[..., cdk.App]) -> None:
    app = make_app()
    storage, training = cdk.Stack(app, "Storage"), cdk.Stack(app, "Training")
    vpc = _make_vpc(storage)
    mine = efs.FileSystem(storage, "Mine", vpc=vpc, allow_anonymous_access=True)
    TrainingCluster(training, "Cluster", vpc=vpc, file_system=mine, **CPU)
    artifacts = {artifact.stack_name: artifact for artifact in app.synth().stacks}
    assert "Storage" in {dependency.id for dependency in artifacts["Training"].dependencies}
    assert [find_foreign_dependencies(artifact.template) for artifact in artifacts.values()] == [[], []]


@pytest.mark.parametrize(
    ("image", "is_warned"), [(NodeImage.ubuntu(), True), (NodeImage.deep_learning_amazon_linux(), False)]
)
def test_a_file_system_that_denies_plain_nfs_is_warned_about(
    make_stack: Any,
    read_stack: Any,
    image: NodeImage,
    is_warned: bool,  # noqa: FBT001
) -> None:
    stack = make_stack()
    vpc = _make_vpc(stack)
    mine = efs.FileSystem(stack, "Mine", vpc=vpc, allow_anonymous_access=False)
    TrainingCluster(stack, "Cluster", vpc=vpc, file_system=mine, image=image, **CPU)
    warnings = [text for text in read_stack(stack).warnings if "allow_anonymous_access=True" in text]
    assert bool(warnings) is is_warned


def test_a_file_system_and_an_id_contradict_each_other(make_stack: Any) -> None:
    stack = make_stack()
    vpc = _make_vpc(stack)
    mine = efs.FileSystem(stack, "Mine", vpc=vpc)
    with pytest.raises(ValueError, match="file_system_id must be left out with file_system"):
        TrainingCluster(stack, "Cluster", vpc=vpc, file_system=mine, file_system_id="fs-0123abcd", **CPU)


# --- Roles --------------------------------------------------------------------------------------------


def test_roles_of_the_app_get_the_rights_of_the_nodes_and_the_grants_of_users(make_stack: Any, read_stack: Any) -> None:
    default, stack = make_stack(), make_stack()
    TrainingCluster(default, "Cluster", **CPU)
    master, worker = _make_role(stack, "MyMaster"), _make_role(stack, "MyWorker")
    cluster = TrainingCluster(stack, "Cluster", master_role=master, worker_role=worker, **CPU)
    s3.Bucket(stack, "Data").grant_read(cluster)
    synthesis, plain = read_stack(stack), read_stack(default)
    assert not [name for name in synthesis.of_type("AWS::IAM::Role") if "ClusterNodes" in name]
    for kind, part in (("Master", "MyMaster"), ("Worker", "MyWorker")):
        policies = synthesis.policies(part)
        assert len(policies) == 2
        assert _actions(plain.statements(f"{kind}Role")) in [
            _actions(policy["PolicyDocument"]["Statement"]) for policy in policies
        ]
        assert any("s3:GetObject*" in json.dumps(policy) for policy in policies)
    for role in NodeRole:
        before = synthesis.before(synthesis.group_id(role))
        assert {name for name in synthesis.of_type("AWS::IAM::ManagedPolicy") if "ClusterNodes" in name} <= before
    (worker_id,) = (name for name in synthesis.of_type("AWS::IAM::Role") if "MyWorker" in name)
    assert synthesis.settings(NodeRole.MASTER).report_sender == f"<{worker_id}.RoleId>"


def test_a_role_of_another_stack_gets_its_rights_in_the_stack_of_the_cluster(make_app: Any) -> None:
    app = make_app()
    identities, training = cdk.Stack(app, "Identities"), cdk.Stack(app, "Training")
    TrainingCluster(
        training, "Cluster", worker_role=_make_role(identities), master_role=_make_role(identities, "M"), **CPU
    )
    artifacts = {artifact.stack_name: artifact for artifact in app.synth().stacks}
    kinds = {entry["Type"] for entry in artifacts["Identities"].template["Resources"].values()}
    assert kinds == {"AWS::IAM::Role"}
    assert find_foreign_dependencies(artifacts["Training"].template) == []
    assert "Identities" in {dependency.id for dependency in artifacts["Training"].dependencies}


def test_an_imported_role_gets_its_rights_and_one_that_is_not_changed_a_warning_with_what_it_needs(
    make_stack: Any, read_stack: Any
) -> None:
    stack, fixed = make_stack(), make_stack()
    TrainingCluster(stack, "Cluster", master_role=iam.Role.from_role_arn(stack, "Mine", ROLE_ARN), **CPU)
    imported = iam.Role.from_role_arn(fixed, "Mine", ROLE_ARN, mutable=False)
    cluster = TrainingCluster(fixed, "Cluster", master_role=imported, **CPU)
    s3.Bucket(fixed, "Data").grant_read(cluster)
    attached = [entry["Properties"]["Roles"] for entry in read_stack(stack).of_type("AWS::IAM::ManagedPolicy").values()]
    assert ["trainers"] in attached
    synthesis = read_stack(fixed)
    assert "trainers" not in json.dumps([*synthesis.of_type("AWS::IAM::ManagedPolicy").values()])
    (warning,) = [text for text in synthesis.warnings if "master_role" in text]
    for action in ("dynamodb:PutItem", "sqs:ReceiveMessage", "s3:GetObject", "autoscaling:SetDesiredCapacity"):
        assert action in warning


def test_a_role_without_policy_updates_is_left_alone(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    TrainingCluster(stack, "Cluster", master_role=_make_role(stack).without_policy_updates(), **CPU)
    synthesis = read_stack(stack)
    assert not synthesis.policies("Mine")
    assert [text for text in synthesis.warnings if "master_role was imported as one that is not changed" in text]


def test_roles_that_cannot_be_those_of_nodes_are_refused(make_stack: Any) -> None:
    stack = make_stack()
    imported = iam.Role.from_role_arn(stack, "Imported", ROLE_ARN)
    with pytest.raises(ValueError, match="worker_role must be a role of this app, got an imported one; make it with"):
        TrainingCluster(stack, "First", worker_role=imported, **CPU)
    function = iam.Role(stack, "Function", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    with pytest.raises(ValueError, match="master_role must be one that EC2 may assume, got Stack/Function, which"):
        TrainingCluster(stack, "Second", master_role=function, **CPU)
    mine = _make_role(stack)
    with pytest.raises(ValueError, match="worker_role must not be that of the master, got Stack/Mine twice; pass two"):
        TrainingCluster(stack, "Third", master_role=mine, worker_role=mine, **CPU)


# --- Ways in for what is not a prop ---------------------------------------------------------------------


def test_escape_hatches_find_the_main_resource_of_cluster_node_groups_and_file_system(make_stack: Any) -> None:
    cluster = TrainingCluster(make_stack(), "Cluster", **CPU)
    assert cluster.node.default_child is cluster.workers.group
    assert cluster.workers.node.default_child is cluster.workers.group
    assert cluster.master.node.default_child is cluster.master.group
    made = cluster.file_system.node.default_child
    assert isinstance(made, efs.CfnFileSystem)


def test_an_existing_file_system_has_no_resource_of_its_own(make_stack: Any) -> None:
    cluster = TrainingCluster(make_stack(), "Cluster", file_system_id="fs-0123456789abcdef0", **CPU)
    assert cluster.file_system.node.default_child is None


def test_schedules_and_hooks_are_added_to_a_node_group_by_the_interface_of_the_cdk(
    make_stack: Any, read_stack: Any
) -> None:
    stack, plain = make_stack(), make_stack()
    workers = TrainingCluster(stack, "Cluster", **CPU).workers
    TrainingCluster(plain, "Cluster", **CPU)
    night = autoscaling.Schedule.cron(hour="20", minute="0")
    workers.auto_scaling_group.scale_on_schedule("Night", schedule=night, desired_capacity=0)
    workers.auto_scaling_group.add_lifecycle_hook(
        "Farewell", lifecycle_transition=autoscaling.LifecycleTransition.INSTANCE_TERMINATING
    )
    synthesis = read_stack(stack)
    group = {"Ref": synthesis.group_id(NodeRole.WORKER)}
    for kind in ("ScheduledAction", "LifecycleHook"):
        assert synthesis.only(f"AWS::AutoScaling::{kind}")["AutoScalingGroupName"] == group
    assert len(synthesis.template["Resources"]) == len(read_stack(plain).template["Resources"]) + 2


def test_a_dashboard_has_a_name_that_no_other_stack_or_region_can_have(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    TrainingCluster(stack, "Cluster", **CPU)
    assert "DashboardName" not in read_stack(stack).only("AWS::CloudWatch::Dashboard")


# --- Security groups ----------------------------------------------------------------------------------


def test_every_node_is_in_the_groups_of_the_user_too(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Mine", "sg-0123456789abcdef0")
    TrainingCluster(stack, "Cluster", security_groups=[group], worker_instance_type="p4d.24xlarge")
    synthesis = read_stack(stack)
    for role, own in ((NodeRole.MASTER, 2), (NodeRole.WORKER, 1)):
        for interface in synthesis.launch_data(role)["NetworkInterfaces"]:
            assert len(interface["Groups"]) == own + 1
            assert interface["Groups"][-1] == "sg-0123456789abcdef0"
