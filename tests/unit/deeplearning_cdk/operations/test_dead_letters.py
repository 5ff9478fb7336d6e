"""Undeliverable messages of topics and rules are kept in the cluster's dead letters, by right of queue and key."""

import pytest

from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

every_variant = pytest.mark.parametrize("props", VARIANTS.values(), ids=VARIANTS)
"""With a Capacity Block there are more rules, with a budget that stops there is one more topic."""


def _dead_letters(synthesis):
    (name,) = (name for name in synthesis.of_type("AWS::SQS::Queue") if "DeadLetters" in name)
    return {"Fn::GetAtt": [name, "Arn"]}


@every_variant
def test_every_subscription_and_every_target_keeps_what_it_cannot_deliver(synthesize, props):
    synthesis = synthesize(**props)
    queue = _dead_letters(synthesis)
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
            "Resource": _dead_letters(synthesis),
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
