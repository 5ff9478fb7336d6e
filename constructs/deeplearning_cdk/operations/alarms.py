"""CloudWatch alarms of a cluster."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.operations.metrics import ClusterMetrics

_IDLE_PERCENT = 5
_FIVE_MINUTES = Duration.minutes(5)


@dataclass(frozen=True, kw_only=True)
class AlarmSpec:
    """
    An alarm on a metric above its threshold.

    Missing data never breaches, because the metrics are published only while there is a value. If the adjuster itself
    stops publishing, its own alarm goes off.
    """

    construct_id: str
    metric: cloudwatch.IMetric
    description: str
    threshold: float = 0
    periods: int = 1
    operator: cloudwatch.ComparisonOperator = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
    notifies_recovery: bool = True


class ClusterAlarms(Construct):
    """
    Alarms that notify one topic when they go off and, where a recovery is meaningful, when they recover.

    The adjuster's own alarm gets the same actions. `budget_used_up` is the topic of a budget that stops the cluster: a
    budget's notification can have one topic only, which is then the adjuster's, so an alarm notifies the user.

    Attributes:
        alarms: All alarms, for dashboards.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        topic: sns.ITopic,
        adjuster_errors: cloudwatch.Alarm,
        metrics: ClusterMetrics,
        dead_letters: sqs.IQueue,
        setup_seconds: int,
        has_gpus: bool,
        budget_used_up: sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        adjuster_errors.add_alarm_action(self._action)
        adjuster_errors.add_ok_action(self._action)
        specs = _list_failures(metrics, dead_letters, setup_seconds)
        if has_gpus:
            specs.append(_idle_gpus(metrics))
        if budget_used_up is not None:
            specs.append(_used_up_budget(budget_used_up))
        self.alarms: list[cloudwatch.IAlarm] = [adjuster_errors, *(self._make(spec) for spec in specs)]

    def _make(self, spec: AlarmSpec) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            spec.construct_id,
            metric=spec.metric,
            threshold=spec.threshold,
            evaluation_periods=spec.periods,
            comparison_operator=spec.operator,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=spec.description,
        )
        alarm.add_alarm_action(self._action)
        if spec.notifies_recovery:
            alarm.add_ok_action(self._action)
        return alarm


def _list_failures(metrics: ClusterMetrics, dead_letters: sqs.IQueue, setup_seconds: int) -> list[AlarmSpec]:
    return [
        AlarmSpec(
            construct_id="LaunchFailures",
            metric=metrics.metric_launch_failures(period=_FIVE_MINUTES),
            description="Instances of a deep-learning cluster do not launch; see `deeplearning-cdk status`",
        ),
        AlarmSpec(
            construct_id="NodesLost",
            metric=metrics.metric_nodes_lost(period=_FIVE_MINUTES),
            description="A deep-learning cluster lost a node that no user had terminated",
            # A period without losses does not mean that the node is back.
            notifies_recovery=False,
        ),
        AlarmSpec(
            construct_id="FormationStuck",
            metric=metrics.metric_formation_pending(),
            threshold=setup_seconds,
            # A minute's delay at the end of a slow formation is no failure.
            periods=3,
            description=f"A deep-learning cluster has not formed for more than {setup_seconds} seconds",
        ),
        AlarmSpec(
            construct_id="DeadLetters",
            metric=dead_letters.metric_approximate_number_of_messages_visible(
                period=_FIVE_MINUTES, statistic="Maximum"
            ),
            description="Messages of a deep-learning cluster could not be processed after repeated attempts",
        ),
    ]


def _idle_gpus(metrics: ClusterMetrics) -> AlarmSpec:
    return AlarmSpec(
        construct_id="IdleGpus",
        metric=metrics.metric_gpu_utilization(period=_FIVE_MINUTES),
        threshold=_IDLE_PERCENT,
        operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        # One hour. Stopped nodes publish no data and do not count as idle.
        periods=12,
        description=f"GPUs of a deep-learning cluster have been used below {_IDLE_PERCENT} % for an hour",
    )


def _used_up_budget(topic: sns.ITopic) -> AlarmSpec:
    return AlarmSpec(
        construct_id="BudgetUsedUp",
        metric=topic.metric_number_of_messages_published(period=_FIVE_MINUTES, statistic="Sum"),
        description="The month's budget of a deep-learning cluster is used up; the cluster is being stopped",
        notifies_recovery=False,
    )
