"""Spending limits of a cluster: automatic stops, and the monthly budget."""

from dataclasses import dataclass
from typing import Annotated

from aws_cdk import Duration, Stack, Token
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.coordination.messages import allow_budgets, make_topic, subscribe_function
from deeplearning_cdk.props.check import check_fields, names_checked
from deeplearning_cdk.props.rules import between, lasting
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.settings import adjuster_variable

StopTime = Annotated[Duration, lasting("10 minutes", "365 days", "leave it out to never stop")]
"""Time after which a cluster stops."""

Budget = Annotated[float, between(0.01, 1e9, "leave it out for no budget", unit="dollars", takes_tokens=True)]
"""Monthly costs, in US dollars."""

_EARLY_PERCENT, _USED_UP_PERCENT = 80, 100
_TOPIC_VARIABLE = adjuster_variable("budget_topic_arn")
"""The capacity adjuster recognizes a budget's request to stop by its topic, never by its text."""
_REGIONS_WITHOUT = ("us-gov-", "eusc-", "cn-")
"""AWS Budgets has no endpoint in the first two partitions; in the third, costs are not counted in US dollars."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class Spending:
    """
    Conditions that stop a cluster, which sets both groups to zero nodes and keeps everything else.

    Attributes:
        stop_when_idle: Stop when no node has been busy for this time. Default: never.
        stop_after: Stop this long after the stack's creation, whatever runs. Default: never.
        monthly_budget_usd: Monthly costs, in US dollars, at which the alarm topic is notified. Default: no budget.
        budget_stops: Stop the cluster when the month's budget is used up; needs `monthly_budget_usd`. Default: only
            notify.

    Raises:
        ValueError: A time or the budget is out of range, or `budget_stops` has no budget.
    """

    stop_when_idle: StopTime | None = None
    stop_after: StopTime | None = None
    monthly_budget_usd: Budget | None = None
    budget_stops: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "spending.")
        if self.budget_stops and self.monthly_budget_usd is None:
            raise ValueError(
                "spending.monthly_budget_usd must be given with spending.budget_stops, got none; name its sum"
            )

    @property
    def has_end(self) -> bool:
        """Return whether a condition can stop the cluster."""
        return self.stop_when_idle is not None or self.stop_after is not None or self.budget_stops


class ClusterBudget(Construct):
    """
    A monthly budget of the costs with a cluster's tag, which notifies the alarm topic and can stop the cluster.

    It notifies when actual costs exceed 80 %, when the forecast exceeds 100 %, and when actual costs do. Costs reach
    AWS Budgets 8 to 12 hours late, so a cluster can exceed the budget by as much; for an exact end use `stop_after`.
    The tag `deeplearning:cluster` must be activated as a cost allocation tag once, in the account that pays (Billing
    and Cost Management > Cost allocation tags, up to 24 hours after the first cluster): until then, the budget sees no
    costs. The policy of the alarm topic must allow `budgets.amazonaws.com` to publish.

    Attributes:
        used_up: Topic of the notification that invokes `stopped_by`; None if the budget does not stop the cluster.

    Raises:
        ValueError: AWS Budgets is not available in the region, or uses another currency there.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        monthly_usd: float,
        alarm_topic: sns.ITopic,
        stopped_by: lambda_.Function | None,
        dead_letters: sqs.IQueue,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        _check_region(Stack.of(self).region)
        self.used_up = self._make_topic(stopped_by, dead_letters, encryption_key) if stopped_by else None
        budgets.CfnBudget(
            self,
            "Budget",
            # AWS generates the name; a fixed one would have to be unique in the account, across all regions.
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=monthly_usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{CLUSTER_TAG}${cluster}"]},
            ),
            notifications_with_subscribers=[
                _notify("ACTUAL", _EARLY_PERCENT, alarm_topic),
                _notify("FORECASTED", _USED_UP_PERCENT, alarm_topic),
                # A notification can have one topic only; an alarm on that topic notifies the user.
                _notify("ACTUAL", _USED_UP_PERCENT, self.used_up or alarm_topic),
            ],
        )

    def _make_topic(
        self, stopped_by: lambda_.Function, dead_letters: sqs.IQueue, encryption_key: kms.IKey
    ) -> sns.Topic:
        topic = make_topic(self, "BudgetUsedUp", encryption_key=encryption_key)
        allow_budgets(topic)
        stopped_by.add_environment(_TOPIC_VARIABLE, topic.topic_arn)
        lambda_.CfnPermission(
            self,
            "AllowBudgetUsedUp",
            action="lambda:InvokeFunction",
            function_name=stopped_by.function_arn,
            principal="sns.amazonaws.com",
            source_arn=topic.topic_arn,
        )
        subscribe_function(self, stopped_by, topic, dead_letters)
        return topic


def _notify(kind: str, percent: int, topic: sns.ITopic) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            comparison_operator="GREATER_THAN",
            notification_type=kind,
            threshold=percent,
            threshold_type="PERCENTAGE",
        ),
        subscribers=[budgets.CfnBudget.SubscriberProperty(address=topic.topic_arn, subscription_type="SNS")],
    )


def _check_region(region: str) -> None:
    if not Token.is_unresolved(region) and region.startswith(_REGIONS_WITHOUT):
        raise ValueError(
            f"spending.monthly_budget_usd must be left out in {region}, where AWS Budgets does not count US dollars; "
            "stop the cluster with spending.stop_when_idle or spending.stop_after instead"
        )
