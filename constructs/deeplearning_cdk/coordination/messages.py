"""Channels for messages about a cluster: alarm topic, rule for failure events, dead letters and log groups."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

from aws_cdk import Annotations, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct, IDependable

from deeplearning_cdk.props.check import Rule
from deeplearning_cdk.props.rules import is_arn
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_contract.cluster_event import EventKind, name_source

AlarmTopic = Annotated[
    sns.ITopic,
    Rule(
        must="have a plain ARN",
        remedy="write arn:aws:sns:region:account:name",
        is_kept=lambda topic: is_arn("sns", topic.topic_arn),
    ),
]
"""Topic of the user's alarms."""

NO_POLICY = "deeplearning_cdk:alarmTopicPolicy"
FORWARDED = (EventKind.FAILED, EventKind.DEGRADED, EventKind.JOB_FAILED)
"""Events that are sent to the alarm topic. All events of a cluster are on the account's default event bus."""
_PATHS = {
    "kind": "$.detail-type",
    "cluster": "$.detail.cluster",
    "generation": "$.detail.generation",
    "nodes": "$.detail.nodes",
    "message": "$.detail.message",
}
_TEXT = "<kind>: <cluster>, generation <generation>, <nodes> nodes. <message>"


def make_topic(scope: Construct, construct_id: str, *, encryption_key: kms.IKey) -> sns.Topic:
    """Create a topic that is encrypted and refuses plain HTTP."""
    return sns.Topic(scope, construct_id, master_key=encryption_key, enforce_ssl=True)


def allow_publishers(scope: Construct, topic: sns.ITopic) -> None:
    """
    Allow alarms, budgets and events of this account to publish to a topic.

    The policy of a topic that was imported by its ARN cannot be changed; a warning at the scope then names the required
    statements.
    """
    statements = [
        _publish_statement(topic, "budgets", "cloudwatch"),
        # EventBridge passes SNS no source: a statement with a condition would never match, and the events would be
        # lost (EventBridge user guide: "You can't use Condition blocks in Amazon SNS topic policies";
        # awslabs/landing-zone-accelerator-on-aws#407). Editions of that guide differ on whether a rule may have a role
        # for a topic: one allows it, another warns that delivery to encrypted topics may then fail.
        _publish_statement(topic, "events", is_bound=False),
    ]
    if not all(topic.add_to_resource_policy(statement).statement_added for statement in statements):
        Annotations.of(scope).add_warning_v2(
            NO_POLICY,
            "the policy of alarm_topic cannot be changed from here, since it was imported: it must let "
            "cloudwatch.amazonaws.com, events.amazonaws.com (without a condition) and budgets.amazonaws.com publish, "
            "and so must the policy of its key; otherwise alarms are lost",
        )


def allow_budgets(topic: sns.ITopic) -> None:
    """Allow the budgets of this account to publish to a topic."""
    topic.add_to_resource_policy(_publish_statement(topic, "budgets"))


def _publish_statement(topic: sns.ITopic, *services: str, is_bound: bool = True) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=["sns:Publish"],
        principals=[iam.ServicePrincipal(f"{service}.amazonaws.com") for service in services],
        resources=[topic.topic_arn],
        conditions={"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}} if is_bound else None,
    )


def subscribe_function(
    scope: Construct, function: lambda_.IFunction, topic: sns.ITopic, dead_letters: sqs.IQueue
) -> None:
    """Subscribe a function to a topic. The function must also allow the topic to invoke it."""
    sns.Subscription(
        scope,
        "Subscription",
        topic=topic,
        protocol=sns.SubscriptionProtocol.LAMBDA,
        endpoint=function.function_arn,
        dead_letter_queue=dead_letters,
    )


def forward_events(scope: Construct, cluster: str, topic: sns.ITopic, dead_letters: sqs.Queue) -> None:
    """Create a rule that publishes the failure events of a cluster; see `make_rule`."""
    make_rule(
        Construct(scope, "Events"),
        description=f"Reports failures of the deep-learning cluster {cluster}",
        pattern={
            "source": [name_source(cluster)],
            "detail-type": [kind.value for kind in FORWARDED],
            "detail": {"cluster": [cluster]},
        },
        paths=_PATHS,
        text=_TEXT,
        topic=topic,
        dead_letters=dead_letters,
    )


def make_rule(
    scope: Construct,
    *,
    description: str,
    pattern: Mapping[str, Any],
    paths: Mapping[str, str],
    text: str,
    topic: sns.ITopic,
    dead_letters: sqs.Queue,
) -> None:
    """
    Create a rule on the default event bus that publishes events as readable text.

    The topic's policy must allow `events.amazonaws.com` to publish.

    Args:
        scope: The parent.
        description: What the rule reports.
        pattern: Pattern of the events.
        paths: Name -> path of a value in an event.
        text: The text, with the names in angle brackets.
        topic: The topic.
        dead_letters: Queue of the events that the topic refuses.
    """
    rule = events.CfnRule(
        scope,
        "Rule",
        description=description,
        event_pattern=pattern,
        state="ENABLED",
        targets=[
            events.CfnRule.TargetProperty(
                arn=topic.topic_arn,
                id="AlarmTopic",
                input_transformer=events.CfnRule.InputTransformerProperty(
                    # A template that is plain text must be a JSON string.
                    input_paths_map=paths,
                    input_template=json.dumps(text),
                ),
                dead_letter_config=keep_undelivered(dead_letters),
            )
        ],
    )
    allow_rule(dead_letters, rule)


def keep_undelivered(dead_letters: sqs.Queue) -> events.CfnRule.DeadLetterConfigProperty:
    """Return the dead-letter configuration of a rule's target. The rule also needs `allow_rule`."""
    return events.CfnRule.DeadLetterConfigProperty(arn=dead_letters.queue_arn)


def allow_rule(dead_letters: sqs.Queue, rule: events.CfnRule, *dependencies: IDependable) -> None:
    """
    Allow a rule to send undelivered events to the dead-letter queue.

    EventBridge does not retry when a target refuses an event (EventBridge user guide, "Using dead-letter queues to
    process undelivered events"). CloudFormation creates a rule's Lambda permission after the rule. The queue's policy
    therefore waits for `dependencies`, which are such permissions, so that events of a timer in between do not become
    dead letters.
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
        cast("IConstruct", result.policy_dependable).node.add_dependency(*dependencies)


def make_log_group(
    scope: Construct, construct_id: str, *, key: kms.IKey | None, name: str | None = None
) -> logs.LogGroup:
    """
    Create a log group that is retained when the stack is deleted or rolled back. Its events expire after a month.

    Without a key of the user, it is encrypted with CloudWatch's own key: a key of the cluster would be deleted in the
    rollback that the log explains. A `name` must be another one in each creation of the stack, because the group of an
    earlier one is still there. Default: CloudFormation makes one.
    """
    group = logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name,
        encryption_key=key,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=RemovalPolicy.RETAIN,
    )
    if key is None:
        acknowledge(group, "log-group-default-encryption")
    return group
