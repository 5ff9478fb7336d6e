"""Permissions of people who log in or watch: exactly what the commands call, and nothing of another cluster."""

import re
from pathlib import Path

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam

from deeplearning_cdk import TrainingCluster, Workers

VIEW = Path(__file__).parents[4] / "view" / "deeplearning_view"
# What nobody calls with the stack's name: the search for a stack, and for one that is gone.
OF_SEARCHES = {"cloudformation:ListStacks"}
SERVICES = {"cloudformation", "autoscaling", "ec2", "lambda", "dynamodb", "logs"}


@pytest.fixture(scope="module")
def statements(make_app, read_stack):
    """The statements of a person who may log in, and of one who may watch."""
    stack = Stack(make_app(), "Stack")
    cluster = TrainingCluster(stack, "Cluster", workers=Workers(instance_type="m5.large"))
    people = {name: iam.Role(stack, name, assumed_by=iam.AccountRootPrincipal()) for name in ("Engineer", "Watcher")}
    cluster.grant_session(people["Engineer"]).assert_success()
    cluster.grant_read_status(people["Watcher"]).assert_success()
    synthesis = read_stack(stack)
    return {name: synthesis.policies(name)[0]["PolicyDocument"]["Statement"] for name in people}


def _actions(statements):
    listed = (each["Action"] for each in statements)
    return {action for each in listed for action in ([each] if isinstance(each, str) else each)}


def test_a_session_opens_on_nodes_of_the_cluster_alone_and_only_own_ones_end(statements):
    on_nodes, by_documents, own, find = statements["Engineer"]
    assert on_nodes["Action"] == by_documents["Action"] == "ssm:StartSession"
    (condition,) = on_nodes["Condition"]["StringEquals"].items()
    assert condition[0] == "ssm:resourceTag/deeplearning:cluster"
    assert condition[1].startswith("Stack-")
    assert "instance/*" in str(on_nodes["Resource"])
    assert re.findall(r"document/([\w-]+)", str(by_documents["Resource"])) == [
        "AWS-StartInteractiveCommand",
        "AWS-StartSSHSession",
        "SSM-SessionManagerRunShell",
    ]
    assert own["Action"] == ["ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel"]
    assert "session/${aws:userid}-*" in str(own["Resource"])
    assert find["Action"] == "ec2:DescribeInstances"


def test_a_watcher_may_call_what_the_view_of_a_cluster_calls_and_change_nothing(statements):
    source = "\n".join(path.read_text() for path in VIEW.glob("*.py"))
    operations = set(re.findall(r'get_paginator\("(\w+)"\)', source)) | set(
        re.findall(r"\.((?:describe|list|get|filter)_(?!paginator|request)\w+)\(", source)
    )
    names = {"".join(word.title() for word in operation.split("_")) for operation in operations}
    granted = _actions(statements["Watcher"])
    called = {action for action in granted | OF_SEARCHES if action.partition(":")[2] in names}
    assert names == {action.partition(":")[2] for action in called}
    assert granted - called == {"kms:Decrypt"}
    assert {action.partition(":")[0] for action in granted} == {*SERVICES, "kms"}
    assert all(re.match(r"Describe|List|Get|Filter|Decrypt", action.partition(":")[2]) for action in granted)


def test_a_watcher_reads_the_tables_and_logs_of_the_cluster_alone(statements):
    wide = [each["Action"] for each in statements["Watcher"] if each["Resource"] == "*"]
    assert wide == [
        [
            "autoscaling:DescribeAutoScalingGroups",
            "autoscaling:DescribeScalingActivities",
            "ec2:DescribeInstances",
            "ec2:DescribeLaunchTemplateVersions",
        ]
    ]
    (key,) = (each for each in statements["Watcher"] if each["Action"] == "kms:Decrypt")
    assert "kms:ViaService" in key["Condition"]["StringEquals"]


def test_each_grantee_gets_one_policy_of_the_cluster_beside_its_own(make_app, read_stack):
    stack = Stack(make_app(), "Stack")
    cluster = TrainingCluster(stack, "Cluster", workers=Workers(instance_type="m5.large"))
    role = iam.Role(stack, "Role", assumed_by=iam.AccountRootPrincipal())
    role.add_to_policy(iam.PolicyStatement(actions=["s3:ListAllMyBuckets"], resources=["*"]))
    imported = iam.Role.from_role_arn(stack, "Imported", "arn:aws:iam::111122223333:role/theirs")
    grantees = [role, iam.User(stack, "User"), iam.Group(stack, "Group"), iam.ManagedPolicy(stack, "Policy"), imported]
    for grantee in grantees:
        for grant in (cluster.grant_submit, cluster.grant_read_status):
            grant(grantee).assert_success()
    synthesis = read_stack(stack)
    kinds = synthesis.of_type("AWS::IAM::ManagedPolicy") | synthesis.of_type("AWS::IAM::Policy")
    policies = [entry for entry in kinds.values() if "ssm:StartSession" in str(entry["Properties"])]
    assert len(policies) == len(grantees)
    for entry in policies:
        assert "autoscaling:DescribeAutoScalingGroups" in str(entry["Properties"])
        (places, *_) = [each["applies_to"] for each in entry["Metadata"]["cdk_nag"]["rules_to_suppress"]]
        assert "Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:instance/*" in places
    (own,) = (entry for entry in kinds.values() if "s3:ListAllMyBuckets" in str(entry["Properties"]))
    assert "Metadata" not in own
