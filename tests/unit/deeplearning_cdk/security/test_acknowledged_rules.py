"""The table of the rules that a cluster does not follow: short, with reasons, and on single resources."""

import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from deeplearning_cdk.security.acknowledged_rules import ACKNOWLEDGED_RULES, acknowledge

MOST_RULES = 13
LEAST_WORDS = 20
PACKS = {"AwsSolutions", "NIST.800.53.R5", "HIPAA.Security", "PCI.DSS.321"}


@pytest.fixture
def stack(make_stack):
    return make_stack()


def _acknowledged(construct):
    return {
        key: reason
        for entry in construct.node.metadata
        if entry.type == "aws:cdk:acknowledged-rules"
        for key, reason in entry.data.items()
    }


def test_at_most_thirteen_rules_are_acknowledged_five_of_them_on_emr():
    assert 0 < len(ACKNOWLEDGED_RULES) <= MOST_RULES


@pytest.mark.parametrize("name", ACKNOWLEDGED_RULES)
def test_each_reason_is_a_sentence_of_substance(name):
    reason = ACKNOWLEDGED_RULES[name].reason
    assert len(reason.split()) >= LEAST_WORDS
    assert re.match(r"[A-Z]", reason)
    assert reason.endswith(".")
    # Why, and what holds instead.
    assert re.search(r"[;:,] ", reason)
    assert reason not in {other.reason for key, other in ACKNOWLEDGED_RULES.items() if key != name}


@pytest.mark.parametrize("name", ACKNOWLEDGED_RULES)
def test_each_rule_has_an_id_in_a_pack_that_is_looked_at(name):
    rule = ACKNOWLEDGED_RULES[name]
    assert rule.nag_ids
    assert set(rule.nag_ids) <= PACKS
    assert all(re.fullmatch(r"CKV2?_AWS_\d+", each) for each in rule.checkov_ids)


def test_a_rule_is_acknowledged_on_the_resource_alone(stack):
    queue = sqs.Queue(stack, "Queue")
    acknowledge(queue, "queue-without-redrive")
    reason = ACKNOWLEDGED_RULES["queue-without-redrive"].reason
    assert _acknowledged(queue.node.default_child) == {"AwsSolutions::AwsSolutions-SQS3": reason}
    assert _acknowledged(queue) == {}


def test_two_rules_of_one_resource_are_both_acknowledged(stack):
    function = lambda_.CfnFunction(stack, "Function", code=lambda_.CfnFunction.CodeProperty(zip_file="x"), role="role")
    acknowledge(function, "function-concurrency", "function-outside-vpc")
    skips = function.get_metadata("checkov")["skip"]
    assert [skip["id"] for skip in skips] == ["CKV_AWS_115", "CKV_AWS_117"]
    assert all(len(skip["comment"].split()) >= LEAST_WORDS for skip in skips)


def test_wildcards_are_acknowledged_one_by_one_as_cdk_nag_writes_them(stack):
    queue = sqs.Queue(stack, "Queue")
    groups = cdk.Fn.sub("arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*")
    resources = ["*", f"{queue.queue_arn}/*", groups, f"arn:{cdk.Aws.PARTITION}:s3:::bucket/*"]
    statement = iam.PolicyStatement(actions=["sqs:SendMessage"], resources=resources)
    policy = iam.ManagedPolicy(stack, "Policy", statements=[statement])
    acknowledge(policy, "wildcard-resources", findings=resources)
    name = stack.resolve(queue.node.default_child.logical_id)
    assert set(_acknowledged(policy.node.default_child)) == {
        f"AwsSolutions::AwsSolutions-IAM5[Resource::{text}]"
        for text in (
            "*",
            f"<{name}.Arn>/*",
            "arn:<AWS::Partition>:autoscaling:<AWS::Region>:<AWS::AccountId>:autoScalingGroup:*",
            "arn:<AWS::Partition>:s3:::bucket/*",
        )
    }


def test_cdk_nag_2_reads_each_rule_once_more_beside_what_the_user_acknowledged(stack):
    # cdk-nag 2, README, "Suppressing a Rule": id, reason and applies_to in the resource's metadata `cdk_nag`.
    statement = iam.PolicyStatement(actions=["sqs:SendMessage"], resources=["*"])
    policy = iam.ManagedPolicy(stack, "Policy", statements=[statement])
    resource = policy.node.default_child
    own = {"id": "AwsSolutions-IAM4", "reason": "the user's"}
    resource.add_metadata("cdk_nag", {"rules_to_suppress": [own], "other": 1})
    acknowledge(policy, "wildcard-resources", findings=["*"])
    acknowledge(policy, "wildcard-resources", findings=["a/*"])
    reason = ACKNOWLEDGED_RULES["wildcard-resources"].reason
    entries = [
        {"id": "AwsSolutions-IAM5", "reason": reason, "applies_to": [f"Resource::{place}"]} for place in ("*", "a/*")
    ]
    assert resource.get_metadata("cdk_nag") == {"rules_to_suppress": [own, *entries], "other": 1}


def test_an_unknown_rule_is_refused(stack):
    with pytest.raises(ValueError, match=r"rule_name must be one of wildcard-resources, .* got 'queue-without-key'"):
        acknowledge(sqs.Queue(stack, "Queue"), "queue-without-key")


def test_wildcards_must_be_named(stack):
    policy = iam.ManagedPolicy(stack, "Policy")
    with pytest.raises(ValueError, match=r"findings must name what has the wildcard for wildcard-resources, got \[\]"):
        acknowledge(policy, "wildcard-resources")


def test_a_rule_about_a_whole_resource_takes_no_findings(stack):
    with pytest.raises(ValueError, match="findings must be left out for public-route"):
        acknowledge(sqs.Queue(stack, "Queue"), "public-route", findings=["*"])


def test_a_construct_without_a_resource_is_refused(stack):
    with pytest.raises(ValueError, match="construct must be a resource or have one as its child"):
        acknowledge(stack, "public-route")
