"""Queues and topics of a cluster: their encryption, their senders, and what cannot be delivered."""

import re

import pytest
from aws_cdk import aws_kms as kms

from deeplearning_cdk import TrainingCluster
from tests.unit.deeplearning_cdk.clusters import props_of
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

every_variant = pytest.mark.parametrize("props", VARIANTS.values(), ids=VARIANTS)
"""With a Capacity Block there are more rules, with a budget that stops there is one more topic."""
ROLE = "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
SCALING_ROLE = {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":iam::", {"Ref": "AWS::AccountId"}, f":{ROLE}"]]}


def _name(synthesis, kind, part):
    (name,) = (name for name in synthesis.of_type(kind) if part in name)
    return str(name)


def _arn(synthesis, kind, part):
    return {"Fn::GetAtt": [_name(synthesis, kind, part), "Arn"]}


def _is_tls_only(statements, action):
    return any(
        (statement["Effect"], statement["Action"], statement.get("Condition"))
        == ("Deny", action, {"Bool": {"aws:SecureTransport": "false"}})
        and statement["Principal"] in ("*", {"AWS": "*"})
        for statement in statements
    )


@every_variant
def test_every_queue_and_topic_refuses_plain_http(synthesize, props):
    synthesis = synthesize(**props)
    for name in synthesis.of_type("AWS::SQS::Queue"):
        assert _is_tls_only(synthesis.policy_of("AWS::SQS::Queue", name), "sqs:*"), name
    for name in synthesis.of_type("AWS::SNS::Topic"):
        assert _is_tls_only(synthesis.policy_of("AWS::SNS::Topic", name), "sns:Publish"), name


@every_variant
def test_every_queue_topic_and_table_is_encrypted_with_the_clusters_key(synthesize, props):
    synthesis = synthesize(**props)
    key = _arn(synthesis, "AWS::KMS::Key", "Encryption")
    for kind in ("AWS::SQS::Queue", "AWS::SNS::Topic"):
        assert synthesis.of_type(kind)
        for name, entry in synthesis.of_type(kind).items():
            assert entry["Properties"]["KmsMasterKeyId"] == key, name
    for queue in synthesis.of_type("AWS::SQS::Queue").values():
        assert queue["Properties"]["KmsDataKeyReusePeriodSeconds"] == 3600
    table = synthesis.only("AWS::DynamoDB::Table")
    assert table["SSESpecification"] == {"KMSMasterKeyId": key, "SSEEnabled": True, "SSEType": "KMS"}
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    function = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]
    assert function["KmsKeyArn"] == key


def test_a_key_of_the_users_takes_the_place_of_the_clusters(make_stack, read_stack):
    stack = make_stack()
    key = kms.Key.from_key_arn(stack, "Mine", "arn:aws:kms:us-east-1:111122223333:key/mine")
    TrainingCluster(stack, "Cluster", **props_of({"encryption_key": key, "workers.instance_type": "m5.large"}))
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::KMS::Key")
    for kind in ("AWS::SQS::Queue", "AWS::SNS::Topic"):
        for name, entry in synthesis.of_type(kind).items():
            assert entry["Properties"]["KmsMasterKeyId"] == key.key_arn, name
    for group in synthesis.of_type("AWS::Logs::LogGroup").values():
        assert group["Properties"]["KmsKeyId"] == key.key_arn


@pytest.mark.fault(24)
@pytest.mark.parametrize(
    ("queue", "sender"),
    [("MasterQueue", "CapacityAdjusterRole"), ("WorkerQueue", "MasterRole"), ("ReportQueue", "WorkerRole")],
)
def test_nobody_but_one_role_sends_to_a_queue_whatever_its_own_rights(synthesize, queue, sender):
    synthesis = synthesize()
    arn = _arn(synthesis, "AWS::SQS::Queue", queue)
    assert synthesis.policy_of("AWS::SQS::Queue", queue) == [
        {
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "sqs:*",
            "Resource": arn,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            "Sid": "OneRoleSends",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnNotEquals": {"aws:PrincipalArn": _arn(synthesis, "AWS::IAM::Role", sender)}},
        },
    ]


@pytest.mark.fault(24)
def test_only_auto_scaling_whose_role_has_the_right_itself_publishes_events_of_the_groups(synthesize):
    synthesis = synthesize()
    topic = {"Ref": _name(synthesis, "AWS::SNS::Topic", "LaunchEvents")}
    assert synthesis.policy_of("AWS::SNS::Topic", "LaunchEvents") == [
        {
            "Sid": "AllowPublishThroughSSLOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sns:Publish",
            "Resource": topic,
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
        {
            "Sid": "NobodyElsePublishes",
            "Effect": "Deny",
            "Principal": {"AWS": "*"},
            "Action": "sns:Publish",
            "Resource": topic,
            "Condition": {
                "ArnNotEquals": {"aws:PrincipalArn": SCALING_ROLE},
                # What AWS does by itself, or in the name of who deploys, is not refused.
                "BoolIfExists": {"aws:PrincipalIsAWSService": "false", "aws:ViaAWSService": "false"},
            },
        },
    ]


@pytest.mark.fault(31, 35)
def test_dead_letters_are_kept_for_two_weeks(synthesize):
    synthesis = synthesize()
    dead_letters = _arn(synthesis, "AWS::SQS::Queue", "DeadLetters")
    queues = {
        re.sub(r"^ClusterCoordination|[0-9A-F]{8}$", "", name): entry["Properties"]
        for name, entry in synthesis.of_type("AWS::SQS::Queue").items()
    }
    assert queues["DeadLetters"]["MessageRetentionPeriod"] == 14 * 24 * 3600
    redrive = {"deadLetterTargetArn": dead_letters, "maxReceiveCount": 20}
    assert {name: queue.get("RedrivePolicy") for name, queue in queues.items()} == {
        "DeadLetters": None,
        "MasterQueue": redrive,
        "ReportQueue": redrive,
        # Every worker sees every ring, so that how often one was seen says nothing.
        "WorkerQueue": None,
    }
    function = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]
    assert function["DeadLetterConfig"] == {"TargetArn": dead_letters}
    # A message that comes back for half a minute each time outlives every restart of the master.
    for name in ("MasterQueue", "ReportQueue"):
        assert queues[name]["VisibilityTimeout"] * redrive["maxReceiveCount"] <= queues[name]["MessageRetentionPeriod"]


# --- Dead letters ------------------------------------------------------------------------------------


@every_variant
def test_every_subscription_and_every_target_keeps_what_it_cannot_deliver(synthesize, props):
    synthesis = synthesize(**props)
    queue = _arn(synthesis, "AWS::SQS::Queue", "DeadLetters")
    subscriptions, rules = synthesis.of_type("AWS::SNS::Subscription"), synthesis.of_type("AWS::Events::Rule")
    assert subscriptions
    assert rules
    for name, entry in subscriptions.items():
        assert entry["Properties"].get("RedrivePolicy") == {"deadLetterTargetArn": queue}, name
    for name, entry in rules.items():
        for target in entry["Properties"]["Targets"]:
            assert target.get("DeadLetterConfig") == {"Arn": queue}, name


@every_variant
def test_the_dead_letter_queue_accepts_each_topic_and_rule_and_no_other_sender(synthesize, props):
    # SNS developer guide, "Configuring an Amazon SNS dead-letter queue for a subscription"; EventBridge user guide,
    # "Using dead-letter queues to process undelivered events": both services tell SQS topic or rule.
    synthesis = synthesize(**props)
    topics = [entry["Properties"]["TopicArn"] for entry in synthesis.of_type("AWS::SNS::Subscription").values()]
    rules = [{"Fn::GetAtt": [name, "Arn"]} for name in synthesis.of_type("AWS::Events::Rule")]
    wanted = [("sns.amazonaws.com", topic) for topic in topics] + [("events.amazonaws.com", rule) for rule in rules]
    statements = synthesis.policy_of("AWS::SQS::Queue", "DeadLetters")
    admitted = [statement for statement in statements if statement["Effect"] == "Allow"]
    assert len(admitted) == len(wanted)
    for service, source in wanted:
        assert {
            "Effect": "Allow",
            "Principal": {"Service": service},
            "Action": "sqs:SendMessage",
            "Resource": _arn(synthesis, "AWS::SQS::Queue", "DeadLetters"),
            "Condition": {"ArnEquals": {"aws:SourceArn": source}},
        } in [{key: value for key, value in statement.items() if key != "Sid"} for statement in admitted]


@every_variant
def test_no_timer_event_becomes_a_dead_letter_before_the_function_allows_its_timer(synthesize, props):
    # A refused target is not tried again, and the event is a dead letter at once (EventBridge user guide, the same
    # page); between a rule and the permission that names it CloudFormation takes seconds in which a minute may begin.
    synthesis = synthesize(**props)
    (policy,) = (name for name in synthesis.of_type("AWS::SQS::QueuePolicy") if "DeadLetters" in name)
    permissions = {
        name
        for name, entry in synthesis.of_type("AWS::Lambda::Permission").items()
        if entry["Properties"]["Principal"] == "events.amazonaws.com"
    }
    assert permissions
    assert permissions <= synthesis.before(policy)
