"""Which functions and rules keep in the cluster's dead letters what they fail on."""

from typing import cast

from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import IDependable


def keep_dead_letters(function: lambda_.Function, dead_letters: sqs.IQueue) -> None:
    """
    Keep the events that a function failed on for good; by CDK's own prop the right to send would be an inline policy.

    Args:
        function: The function, whose role may send there.
        dead_letters: Where they go.
    """
    resource = cast("lambda_.CfnFunction", function.node.default_child)
    resource.dead_letter_config = lambda_.CfnFunction.DeadLetterConfigProperty(target_arn=dead_letters.queue_arn)


def keep_undelivered(dead_letters: sqs.Queue) -> events.CfnRule.DeadLetterConfigProperty:
    """Return how a rule's target keeps the events that cannot be delivered to it; `admit_rule` lets the rule do so."""
    return events.CfnRule.DeadLetterConfigProperty(arn=dead_letters.queue_arn)


def admit_rule(dead_letters: sqs.Queue, rule: events.CfnRule, *needs: IDependable) -> None:
    """
    Let a rule send what it cannot deliver to the dead letters.

    EventBridge does not try again when a target refuses it (EventBridge user guide, "Using dead-letter queues to
    process undelivered events"). CloudFormation makes the permission of a rule after the rule, so that the rule is
    admitted after its permission: what a timer sends in between is no dead letter.

    Args:
        dead_letters: Where they go.
        rule: The rule.
        needs: What admits the rule to its target.
    """
    result = dead_letters.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            actions=["sqs:SendMessage"],
            resources=[dead_letters.queue_arn],
            conditions={"ArnEquals": {"aws:SourceArn": rule.attr_arn}},
        )
    )
    if result.policy_dependable is not None:
        dead_letters.node.find_child("Policy").node.add_dependency(*needs)
