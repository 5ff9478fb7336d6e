"""Constructs of the user are taken by their CDK interface: file systems, roles and security groups."""

import json

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import TrainingCluster
from deeplearning_cdk.security.node_roles import make_node_role
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import plan, props_of
from tests.unit.deeplearning_cdk.storage.stores import import_vpc, store

CPU = {"workers.instance_type": "m5.large"}
ROLE_ARN = "arn:aws:iam::111122223333:role/team/trainers"
GROUP_ID = "sg-0123456789abcdef0"


def _make_vpc(stack):
    return ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)


def _make_role(scope, name="Mine"):
    return iam.Role(scope, name, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


def _actions(statements):
    return [statement["Action"] for statement in statements]


@pytest.fixture(scope="module")
def owned(make_app, read_stack):
    """A cluster with a VPC, a file system, roles and a security group of the user's, and a grant of theirs."""
    stack = cdk.Stack(make_app(), "Stack")
    vpc = _make_vpc(stack)
    props = {
        "workers.instance_type": "p4d.24xlarge",
        "workers.role": _make_role(stack, "MyWorker"),
        "master.role": _make_role(stack, "MyMaster"),
        "network.vpc": vpc,
        "network.security_groups": [ec2.SecurityGroup.from_security_group_id(stack, "Group", GROUP_ID)],
        "storage.file_system": efs.FileSystem(stack, "Mine", vpc=vpc, allow_anonymous_access=True),
    }
    cluster = TrainingCluster(stack, "Cluster", **props_of(props))
    s3.Bucket(stack, "Data").grant_read(cluster)
    return read_stack(stack)


# --- File systems -------------------------------------------------------------------------------------


def test_a_file_system_of_the_app_is_mounted_once_its_mount_target_is_there(owned):
    (file_system,) = owned.of_type("AWS::EFS::FileSystem")
    (target,) = owned.of_type("AWS::EFS::MountTarget")
    for role in NodeRole:
        assert owned.settings(role).file_system.source.startswith(f"<{file_system}>.efs.")
        assert target in owned.before(owned.group_id(role))
    rules = [rule["Properties"] for rule in owned.of_type("AWS::EC2::SecurityGroupIngress").values()]
    (nfs,) = [rule for rule in rules if rule.get("FromPort") == 2049]
    assert "MineEfsSecurityGroup" in json.dumps(nfs["GroupId"])
    assert "NodesSecurityGroup" in json.dumps(nfs["SourceSecurityGroupId"])
    # The user's is the user's to back up.
    selection = owned.only("AWS::Backup::BackupSelection")["BackupSelection"]["Resources"]
    assert file_system not in json.dumps(selection)


def test_a_file_system_without_the_vpc_of_its_mount_targets_is_refused(make_stack):
    stack = make_stack()
    mine = efs.FileSystem(stack, "Mine", vpc=_make_vpc(stack), allow_anonymous_access=True)
    other = ec2.Vpc(stack, "Other", max_azs=1, restrict_default_security_group=False)
    remedy = "pass the VPC in which its mount targets are"
    with pytest.raises(ValueError, match=rf"^network\.vpc must be given with storage\.file_system, got none; {remedy}"):
        plan({"storage.file_system": mine, **CPU})
    said = rf"^network\.vpc must be the VPC of storage\.file_system, got .*/Other; {remedy}"
    with pytest.raises(ValueError, match=said):
        store(stack, other, file_system=mine)


def test_an_imported_file_system_is_mounted_with_iam_by_an_image_that_can(make_stack, read_stack):
    stack = make_stack()
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", GROUP_ID)
    mine = efs.FileSystem.from_file_system_attributes(
        stack, "Mine", file_system_id="fs-0123456789abcdef0", security_group=group
    )
    storage = store(stack, import_vpc(stack), mode="efs", file_system=mine)
    assert storage.file_system.node.default_child is None
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::EFS::MountTarget")
    assert synthesis.only("AWS::EFS::AccessPoint")["FileSystemId"] == "fs-0123456789abcdef0"
    (statement,) = storage.file_system.mount_statements()
    assert "elasticfilesystem:ClientMount" in statement.actions


@pytest.mark.parametrize(("mode", "is_warned"), [("nfs4", True), ("efs", False)])
def test_a_file_system_that_denies_plain_nfs_is_warned_about(make_stack, read_stack, mode, is_warned):
    stack = make_stack()
    vpc = _make_vpc(stack)
    mine = efs.FileSystem(stack, "Mine", vpc=vpc, allow_anonymous_access=False)
    store(stack, vpc, mode=mode, file_system=mine)
    warnings = [text for text in read_stack(stack).warnings if "allow_anonymous_access=True" in text]
    assert bool(warnings) is is_warned


# --- Roles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", NodeRole)
def test_roles_of_the_app_get_the_rights_of_the_nodes_and_the_grants_of_users(synthesize, owned, role):
    assert not [name for name in owned.of_type("AWS::IAM::Role") if "ClusterNodes" in name]
    kind = role.value.title()
    policies = owned.policies(f"My{kind}")
    assert len(policies) == 2
    assert _actions(synthesize(**CPU).statements(f"{kind}Role")) in [
        _actions(policy["PolicyDocument"]["Statement"]) for policy in policies
    ]
    assert any("s3:GetObject*" in json.dumps(policy) for policy in policies)
    before = owned.before(owned.group_id(role))
    assert {name for name in owned.of_type("AWS::IAM::ManagedPolicy") if "ClusterNodes" in name} <= before
    # The master recognizes the workers by their role.
    (worker,) = (name for name in owned.of_type("AWS::IAM::Role") if "MyWorker" in name)
    assert owned.settings(NodeRole.MASTER).report_sender == f"<{worker}.RoleId>"


def test_a_role_gets_its_rights_unless_it_may_not_be_changed(make_stack, read_stack):
    stack = make_stack()
    imported, mine = iam.Role.from_role_arn(stack, "Imported", ROLE_ARN), _make_role(stack).without_policy_updates()
    rights = [iam.PolicyStatement(actions=["sqs:SendMessage"], resources=["*"])]
    for name, own in (("Changed", imported), ("Kept", mine)):
        make_node_role(stack, name, node_role=NodeRole.MASTER, statements=rights, own=own)
    synthesis = read_stack(stack)
    assert synthesis.only("AWS::IAM::ManagedPolicy")["Roles"] == ["trainers"]
    assert not synthesis.policies("Mine")
    (warning,) = synthesis.warnings
    assert "master.role was imported as immutable" in warning


def test_an_imported_role_that_is_not_changed_is_warned_about_with_what_it_needs(make_stack, read_stack):
    stack = make_stack()
    imported = iam.Role.from_role_arn(stack, "Mine", ROLE_ARN, mutable=False)
    cluster = TrainingCluster(stack, "Cluster", **props_of({"master.role": imported, **CPU}))
    s3.Bucket(stack, "Data").grant_read(cluster)
    synthesis = read_stack(stack)
    assert "trainers" not in json.dumps([*synthesis.of_type("AWS::IAM::ManagedPolicy").values()])
    (warning,) = [text for text in synthesis.warnings if "master.role" in text]
    for action in ("dynamodb:PutItem", "sqs:ReceiveMessage", "s3:GetObject", "autoscaling:SetDesiredCapacity"):
        assert action in warning


def test_roles_that_cannot_be_those_of_nodes_are_refused(make_stack):
    stack = make_stack()
    imported, mine = iam.Role.from_role_arn(stack, "Imported", ROLE_ARN), _make_role(stack)
    function = iam.Role(stack, "Function", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    for roles, said in (
        (
            {"workers.role": imported},
            r"workers\.role must be a Role, got .+; make it with iam.Role in this app, because",
        ),
        ({"master.role": function}, r"master\.role must be one that EC2 may assume, got Stack/Function, which"),
        ({"workers.role": function}, r"workers\.role must be one that EC2 may assume, got Stack/Function, which"),
        (
            {"master.role": mine, "workers.role": mine},
            r"workers\.role must not be that of the master, got Stack/Mine twice; pass two",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            plan({**roles, **CPU})


# --- Ways in for what is not a prop ---------------------------------------------------------------------


def test_escape_hatches_find_the_main_resources_and_groups_take_schedules_and_hooks_of_the_cdk(
    make_stack, synthesize, read_stack
):
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster", **props_of(CPU))
    assert cluster.node.default_child is cluster.workers.group
    assert cluster.workers.node.default_child is cluster.workers.group
    assert cluster.master.node.default_child is cluster.master.group
    assert isinstance(cluster.file_system.node.default_child, efs.CfnFileSystem)
    night = autoscaling.Schedule.cron(hour="20", minute="0")
    group = cluster.workers.auto_scaling_group
    group.scale_on_schedule("Night", schedule=night, desired_capacity=0)
    group.add_lifecycle_hook("Farewell", lifecycle_transition=autoscaling.LifecycleTransition.INSTANCE_TERMINATING)
    synthesis = read_stack(stack)
    name = {"Ref": synthesis.group_id(NodeRole.WORKER)}
    for kind in ("ScheduledAction", "LifecycleHook"):
        assert synthesis.only(f"AWS::AutoScaling::{kind}")["AutoScalingGroupName"] == name
    assert len(synthesis.template["Resources"]) == len(synthesize(**CPU).template["Resources"]) + 2


# --- Security groups ----------------------------------------------------------------------------------


def test_every_node_is_in_the_groups_of_the_user_too(owned):
    for role, own in ((NodeRole.MASTER, 2), (NodeRole.WORKER, 1)):
        interfaces = owned.launch_data(role)["NetworkInterfaces"]
        assert len(interfaces) > 1
        for interface in interfaces:
            assert len(interface["Groups"]) == own + 1
            assert interface["Groups"][-1] == GROUP_ID
