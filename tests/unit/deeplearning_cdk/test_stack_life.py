"""Rollback, deletion and update of a stack, and the identities that reach its queues and table."""

import re
from dataclasses import replace
from typing import Any

import aws_cdk as cdk
import pytest

from deeplearning_cdk import NodeImage
from tests.unit.deeplearning_cdk.clusters import WITH_LUSTRE
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS as PRESETS

FUNCTION = "AWS::Lambda::Function"
GROUP = "AWS::AutoScaling::AutoScalingGroup"
REQUEST = "Custom::RequestedCapacity"
MOST_SECONDS_TO_ANSWER = 600
CPU = {"workers.instance_type": "m5.large"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: PRESETS[name] for name in ("default", "amazon-linux", "network.isolated", "public-master", "fallbacks")},
    "existing-file-system": {"storage.file_system": "fs-0123456789abcdef0", **CPU},
}
LASTING_CHANGES = {
    "setup_timeout": cdk.Duration.minutes(20),
    "storage.removal_policy": cdk.RemovalPolicy.DESTROY,
    **CPU,
}
OTHER_IMAGE = replace(NodeImage.ubuntu(), parameter="/team/images/ubuntu")
every_variant = pytest.mark.parametrize("props", VARIANTS.values(), ids=VARIANTS)


# --- Rollback -----------------------------------------------------------------------------------------


@pytest.mark.fault(65)
@every_variant
def test_nothing_in_the_stack_can_hold_up_its_deletion(synthesize, props):
    resources = synthesize(**props).template["Resources"].values()
    # Each of these waits for code of ours, for a person, or for something to be emptied, before it goes.
    holders = re.compile(
        r"Custom::|AWS::CloudFormation::(CustomResource|Stack$)|.*::(LifecycleHook|Bucket|Repository)$"
    )
    # A pinned image is nothing but an answer: CloudFormation forgets it without asking.
    waiting = [entry for entry in resources if entry.get("DeletionPolicy") != "Retain"]
    held = [entry for entry in waiting if holders.match(entry["Type"])]
    # The request for capacity must be told that the cluster goes, or the timer could launch nodes into a group that is
    # being deleted. It holds a deletion up for as long as CloudFormation waits for its answer, at most.
    assert [entry["Type"] for entry in held] == [REQUEST]
    assert int(held[0]["Properties"]["ServiceTimeout"]) <= MOST_SECONDS_TO_ANSWER
    protections = ("NewInstancesProtectedFromScaleIn", "DeletionProtectionEnabled", "DeletionProtection")
    assert not [name for entry in resources for name in protections if entry.get("Properties", {}).get(name)]


# --- Deletion -----------------------------------------------------------------------------------------


STAYS_ALWAYS = ("Retain", "Retain")
STAYS_UNLESS_ITS_CREATION_FAILS = ("RetainExceptOnCreate", "Retain")
"""Policies of a resource that stays: for deletion of the stack and rollback of its creation, and for replacement."""

GOES = {("Delete", "Delete"), (None, None)}


def _staying(synthesis):
    """Return every resource that does not simply go: its logical id without the hash -> what becomes of it."""
    return {
        name[:-8]: policies
        for name, entry in synthesis.template["Resources"].items()
        if (policies := (entry.get("DeletionPolicy"), entry.get("UpdateReplacePolicy"))) not in GOES
    }


LOGS = dict.fromkeys(
    ("ClusterCapacityAdjusterLog", "ClusterImageLog", "ClusterNetworkFlowLog", "ClusterNodeLog"),
    STAYS_ALWAYS,
)
"""They say why a creation failed, so they outlive its rollback too."""

PIN = {"ClusterImage": STAYS_ALWAYS}
"""It holds a text and nothing else, so it is forgotten rather than asked to go."""

VAULT = dict.fromkeys(
    ("ClusterBackupPolicy", "ClusterBackupRole", "ClusterBackupVault", "ClusterEncryptionKey"),
    STAYS_UNLESS_ITS_CREATION_FAILS,
)
"""
AWS Backup ends old recovery points as the role that made them: "If you delete or modify that role, AWS Backup cannot
manage your recovery point lifecycle" (AWS Backup developer guide, "Identity and access management", Warning).
"""
FILE_SYSTEM = {"ClusterFileSystem": STAYS_UNLESS_ITS_CREATION_FAILS}


@pytest.mark.fault(66)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_deleted_stack_leaves_its_logs_its_vault_the_key_and_a_new_file_system_and_nothing_else(synthesize, variant):
    has_own = variant != "existing-file-system"
    assert _staying(synthesize(**VARIANTS[variant])) == LOGS | PIN | VAULT | (FILE_SYSTEM if has_own else {})


@pytest.mark.fault(66)
@pytest.mark.parametrize(
    ("props", "staying"),
    [
        ({"storage.backup": False, **VARIANTS["existing-file-system"]}, {}),
        (
            {"storage.backup": False, **CPU},
            FILE_SYSTEM | {"ClusterEncryptionKey": STAYS_UNLESS_ITS_CREATION_FAILS},
        ),
        (LASTING_CHANGES, VAULT),
        # A Lustre goes with its new network.
        (WITH_LUSTRE, VAULT | FILE_SYSTEM),
    ],
    ids=["nothing of ours", "no backups", "file system goes when asked", "Lustre"],
)
def test_a_deleted_stack_leaves_what_the_user_chose_and_its_logs(synthesize, props, staying):
    assert _staying(synthesize(**props)) == LOGS | PIN | staying


@pytest.mark.fault(66)
@every_variant
def test_no_retained_or_slowly_deleted_resource_has_an_address_in_the_network(synthesize, props):
    synthesis = synthesize(**props)
    # A function in the VPC would leave interfaces for minutes after its deletion, in the subnet that is deleted next.
    assert all("VpcConfig" not in entry["Properties"] for entry in synthesis.of_type("AWS::Lambda::Function").values())
    keys = set(synthesis.of_type("AWS::KMS::Key"))
    for name in [*synthesis.of_type("AWS::EFS::FileSystem"), *synthesis.of_type("AWS::Backup::BackupVault")]:
        assert synthesis.before(name) == keys
    for name in keys:
        assert synthesis.before(name) == set()
    targets = set(synthesis.of_type("AWS::EFS::MountTarget"))
    assert targets
    for target in targets:
        kinds = {synthesis.template["Resources"][name]["Type"] for name in synthesis.before(target)}
        assert kinds >= {"AWS::EC2::Subnet", "AWS::EC2::SecurityGroup", "AWS::EC2::VPC"}
    # Nodes with a hard mount are gone before their mount target is.
    for group in synthesis.of_type(GROUP):
        assert targets <= synthesis.before(group)


# --- Update -------------------------------------------------------------------------------------------

LASTING = (
    "AWS::EFS::FileSystem",
    "AWS::EFS::MountTarget",
    "AWS::DynamoDB::Table",
    "AWS::SQS::Queue",
    "AWS::SNS::Topic",
    "AWS::EC2::VPC",
    "AWS::EC2::Subnet",
    "AWS::CloudFormation::WaitCondition",
    "AWS::CloudFormation::WaitConditionHandle",
)
"""Foundations of a running cluster: no update may touch them. CloudFormation refuses to update the last two."""


def _changes(before, after):
    """Return the types of the resources that differ, come or go."""
    old, new = before.template["Resources"], after.template["Resources"]
    return {(old.get(name) or new[name])["Type"] for name in old.keys() | new if old.get(name) != new.get(name)}


@pytest.mark.fault(67)
@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"software.image": OTHER_IMAGE}, {"Custom::PinnedImage", "AWS::IAM::ManagedPolicy"}),
        (
            {"workers.volume_size": 300, "key_pair": "mine", "software.image_release": "2026-11-22"},
            {"AWS::EC2::LaunchTemplate", "Custom::PinnedImage"},
        ),
        ({"workers.instance_type": "c5.large", "workers.min_capacity": 2}, {"AWS::EC2::LaunchTemplate", FUNCTION}),
        ({"workers.desired_capacity": 5}, {GROUP, REQUEST}),
        ({"workers.desired_capacity": 0}, {GROUP, REQUEST, FUNCTION}),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_update_of_a_running_cluster_touches_only_what_new_nodes_start_from(synthesize, change, changed):
    assert _changes(synthesize(**CPU), synthesize(**{**CPU, **change})) == changed


@pytest.mark.fault(67)
def test_new_programs_of_nodes_change_no_resource_of_a_running_cluster(synthesize, tmp_path):
    script = tmp_path / "setup.sh"
    script.write_text("#!/bin/bash\n")
    # The roles may read the new script, and new nodes start from it.
    changed = _changes(synthesize(**CPU), synthesize(**{"workers.setup_script": str(script)}, **CPU))
    assert changed == {"AWS::EC2::LaunchTemplate", "AWS::IAM::ManagedPolicy"}


@pytest.mark.fault(67)
def test_a_change_of_what_lasts_would_be_seen(synthesize):
    changed = _changes(synthesize(**CPU), synthesize(**LASTING_CHANGES))
    assert changed & set(LASTING) == {"AWS::CloudFormation::WaitCondition", "AWS::EFS::FileSystem"}


# --- Who may reach it ---------------------------------------------------------------------------------


@pytest.mark.fault(24)
@every_variant
def test_no_queue_topic_or_table_lets_anyone_in_but_the_clusters_own_roles(synthesize, props):
    synthesis = synthesize(**props)
    assert not synthesis.of_type("AWS::SNS::TopicInlinePolicy")
    assert "ResourcePolicy" not in synthesis.only("AWS::DynamoDB::Table")
    for name, policy in synthesis.of_type("AWS::SQS::QueuePolicy").items():
        allowed = [entry for entry in policy["Properties"]["PolicyDocument"]["Statement"] if entry["Effect"] != "Deny"]
        # AWS's own services put there what they cannot deliver, each for a topic or a rule of this cluster.
        assert not allowed or "DeadLetters" in name
        for entry in allowed:
            assert set(entry["Principal"]) == {"Service"}
            assert entry["Action"] == "sqs:SendMessage"
            assert "aws:SourceArn" in str(entry["Condition"])
    for permission in synthesis.of_type("AWS::Lambda::Permission").values():
        assert permission["Properties"]["SourceArn"]


@pytest.mark.fault(29)
def test_every_queue_answers_long_polls_by_default(synthesize):
    queues = synthesize().of_type("AWS::SQS::Queue").values()
    assert [queue["Properties"]["ReceiveMessageWaitTimeSeconds"] for queue in queues] == [20, 20, 20, 20]
