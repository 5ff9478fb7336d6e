"""The budget that watches what a cluster costs, and stops it when the user wants that."""

from aws_cdk import Stack, Token
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.operations.alarm_topic import admit_budgets, make_topic
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_contract.settings import adjuster_variable

_EARLY_PERCENT, _USED_UP_PERCENT = 80, 100
_TOPIC_VARIABLE = adjuster_variable("budget_topic_arn")
"""How the capacity adjuster knows a message by which the budget asks for a stop: by its topic, never by its words."""
_REGIONS_WITHOUT = ("us-gov-", "eusc-", "cn-")
"""AWS Budgets has no endpoint in the first two partitions; in the third, costs are not counted in US dollars."""


class BudgetGuard(Construct):
    """
    A monthly budget of what carries a cluster's tag, which tells the alarm topic and may stop the cluster.

    It tells at 80 % of the actual costs, when the forecast reaches 100 %, and when the actual costs do. Costs reach AWS
    Budgets 8 to 12 hours late, so that a cluster can cost that much more; for a sharp end take a deadline. The tag
    `deeplearning:cluster` must be activated as a cost allocation tag once, in the account that pays (Billing and Cost
    Management > Cost allocation tags, up to 24 hours after the first cluster): before, the budget sees no costs.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        cluster: The cluster's name.
        monthly_usd: What a month may cost, in US dollars.
        alarm_topic: Who is told; its policy must admit `budgets.amazonaws.com`.
        stopped_by: The function that stops the cluster when the budget is used up. Default: nothing stops it.
        dead_letters: Keeps what that topic cannot deliver to the function.
        encryption_key: Encrypts the topic through which that function hears of it.

    Attributes:
        used_up: The topic to which the used-up budget publishes; None when it does not stop the cluster.

    Raises:
        ValueError: The region has no AWS Budgets, or counts in another currency.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        cluster: str,
        monthly_usd: float,
        alarm_topic: sns.ITopic,
        stopped_by: lambda_.Function | None = None,
        dead_letters: sqs.IQueue,
        encryption_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        _check_region(Stack.of(self).region)
        self.used_up = self._make_topic(stopped_by, dead_letters, encryption_key) if stopped_by else None
        budgets.CfnBudget(
            self,
            "Budget",
            # Without a name AWS makes one up; ours would have to be unique in the account, in all regions.
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=monthly_usd, unit="USD"),
                cost_filters={"TagKeyValue": [f"user:{CLUSTER_TAG}${cluster}"]},
            ),
            notifications_with_subscribers=[
                _notify("ACTUAL", _EARLY_PERCENT, alarm_topic),
                _notify("FORECASTED", _USED_UP_PERCENT, alarm_topic),
                # One topic hears a notification; the alarm on that topic tells the user.
                _notify("ACTUAL", _USED_UP_PERCENT, self.used_up or alarm_topic),
            ],
        )

    def _make_topic(
        self, stopped_by: lambda_.Function, dead_letters: sqs.IQueue, encryption_key: kms.IKey
    ) -> sns.Topic:
        topic = make_topic(self, "BudgetUsedUp", encryption_key=encryption_key)
        admit_budgets(topic)
        stopped_by.add_environment(_TOPIC_VARIABLE, topic.topic_arn)
        lambda_.CfnPermission(
            self,
            "AllowBudgetUsedUp",
            action="lambda:InvokeFunction",
            function_name=stopped_by.function_arn,
            principal="sns.amazonaws.com",
            source_arn=topic.topic_arn,
        )
        sns.Subscription(
            self,
            "Subscription",
            topic=topic,
            protocol=sns.SubscriptionProtocol.LAMBDA,
            endpoint=stopped_by.function_arn,
            dead_letter_queue=dead_letters,
        )
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
            f"monthly_budget_usd must be left out in {region}, where AWS Budgets does not count US dollars; "
            "stop the cluster with stop_when_idle or stop_after instead"
        )
