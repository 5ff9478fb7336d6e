"""Where alarms go: a topic of the cluster's own or the user's, to which AWS may publish."""

from aws_cdk import Annotations, Aws
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

NO_POLICY = "deeplearning_cdk:alarmTopicPolicy"


def make_topic(scope: Construct, construct_id: str, *, encryption_key: kms.IKey) -> sns.Topic:
    """
    Make a topic that is encrypted and refuses plain HTTP.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        encryption_key: The cluster's key.
    """
    return sns.Topic(scope, construct_id, master_key=encryption_key, enforce_ssl=True)


def admit_publishers(scope: Construct, topic: sns.ITopic) -> None:
    """
    Let alarms, budgets and events of this account publish to a topic, or warn that they must be let.

    Args:
        scope: Where a warning is attached.
        topic: The topic; of one that was imported by its ARN, nothing can be changed.
    """
    statements = [
        _admit(topic, "budgets", "cloudwatch"),
        # EventBridge tells SNS no source: a statement with a condition would never admit it, and the events would be
        # lost (EventBridge user guide: "You can't use Condition blocks in Amazon SNS topic policies";
        # awslabs/landing-zone-accelerator-on-aws#407). Editions of that guide differ on whether a rule may have a role
        # for a topic: one allows it, another says that delivery to encrypted topics may then fail.
        _admit(topic, "events", is_bound=False),
    ]
    if not all(topic.add_to_resource_policy(statement).statement_added for statement in statements):
        Annotations.of(scope).add_warning_v2(
            NO_POLICY,
            "the policy of alarm_topic cannot be changed from here, since it was imported: it must let "
            "cloudwatch.amazonaws.com, events.amazonaws.com (without a condition) and budgets.amazonaws.com publish, "
            "and so must the policy of its key; otherwise alarms are lost",
        )


def _admit(topic: sns.ITopic, *services: str, is_bound: bool = True) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        actions=["sns:Publish"],
        principals=[iam.ServicePrincipal(f"{service}.amazonaws.com") for service in services],
        resources=[topic.topic_arn],
        conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}} if is_bound else None,
    )


def admit_budgets(topic: sns.ITopic) -> None:
    """Let budgets of this account, and nobody else, publish to a topic."""
    topic.add_to_resource_policy(_admit(topic, "budgets"))
