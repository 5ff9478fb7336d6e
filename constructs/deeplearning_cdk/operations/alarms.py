"""The alarms of a cluster: what a person should look at."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.operations.metrics import ClusterMetrics

IDLE_PERCENT = 5
_FIVE_MINUTES = Duration.minutes(5)
_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


@dataclass(frozen=True, kw_only=True)
class _Watch:
    """
    What an alarm watches.

    Every alarm takes missing data as good: the numbers are written while there is something to tell. When the adjuster
    itself falls silent, its own alarm goes off.
    """

    construct_id: str
    metric: cloudwatch.IMetric
    threshold: float
    description: str
    periods: int = 1
    operator: cloudwatch.ComparisonOperator = _ABOVE
    has_end: bool = True


class ClusterAlarms(Construct):
    """
    Alarms that go to one topic, each when it goes off and, where that means something, when it is over.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        metrics: The cluster's metrics.
        dead_letters: Where messages end that nobody could read.
        adjuster_errors: The adjuster's own alarm.
        setup_seconds: How long a formation may take.
        has_gpus: Whether any node has GPUs, which can be idle.
        topic: Where the alarms go.

    Attributes:
        alarms: All of them, for dashboards.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metrics: ClusterMetrics,
        dead_letters: sqs.IQueue,
        adjuster_errors: cloudwatch.Alarm,
        setup_seconds: int,
        has_gpus: bool,
        topic: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        self._action = actions.SnsAction(topic)
        adjuster_errors.add_alarm_action(self._action)
        adjuster_errors.add_ok_action(self._action)
        watches = [
            _watch_launches(metrics),
            _watch_nodes(metrics),
            _watch_formation(metrics, setup_seconds),
            _watch_letters(dead_letters),
            *([_watch_gpus(metrics)] if has_gpus else []),
        ]
        self.alarms: list[cloudwatch.IAlarm] = [adjuster_errors, *(self._make(watch) for watch in watches)]

    def watch_budget(self, used_up: sns.ITopic) -> None:
        """
        Tell that the month's budget is used up, of a budget that stops the cluster.

        A notification of a budget reaches one topic only, which is then the adjuster's.

        Args:
            used_up: The topic to which the budget publishes.
        """
        watch = _Watch(
            construct_id="BudgetUsedUp",
            metric=used_up.metric_number_of_messages_published(period=_FIVE_MINUTES, statistic="Sum"),
            threshold=0,
            description="The month's budget of a deep-learning cluster is used up; the cluster is being stopped",
            has_end=False,
        )
        self.alarms.append(self._make(watch))

    def _make(self, watch: _Watch) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            watch.construct_id,
            metric=watch.metric,
            threshold=watch.threshold,
            evaluation_periods=watch.periods,
            comparison_operator=watch.operator,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=watch.description,
        )
        alarm.add_alarm_action(self._action)
        if watch.has_end:
            alarm.add_ok_action(self._action)
        return alarm


def _watch_launches(metrics: ClusterMetrics) -> _Watch:
    return _Watch(
        construct_id="LaunchFailures",
        metric=metrics.metric_launch_failures(period=_FIVE_MINUTES),
        threshold=0,
        description="Instances of a deep-learning cluster do not launch; `deeplearning-cdk status` says why",
    )


def _watch_nodes(metrics: ClusterMetrics) -> _Watch:
    return _Watch(
        construct_id="NodesLost",
        metric=metrics.metric_nodes_lost(period=_FIVE_MINUTES),
        threshold=0,
        description="A deep-learning cluster lost a node that nobody asked to end",
        # That nothing is lost any more does not bring the node back.
        has_end=False,
    )


def _watch_formation(metrics: ClusterMetrics, setup_seconds: int) -> _Watch:
    return _Watch(
        construct_id="FormationStuck",
        metric=metrics.metric_formation_pending(),
        threshold=setup_seconds,
        # One late minute at the end of a slow formation is not stuck.
        periods=3,
        description=f"A deep-learning cluster has not formed for more than {setup_seconds} seconds",
    )


def _watch_letters(dead_letters: sqs.IQueue) -> _Watch:
    return _Watch(
        construct_id="DeadLetters",
        metric=dead_letters.metric_approximate_number_of_messages_visible(period=_FIVE_MINUTES, statistic="Maximum"),
        threshold=0,
        description="Messages of a deep-learning cluster were received again and again and could not be read",
    )


def _watch_gpus(metrics: ClusterMetrics) -> _Watch:
    return _Watch(
        construct_id="IdleGpus",
        metric=metrics.metric_gpu_utilization(period=_FIVE_MINUTES),
        threshold=IDLE_PERCENT,
        operator=_BELOW,
        # An hour; nodes that do not run say nothing, which is not idle.
        periods=12,
        description=f"GPUs of a deep-learning cluster have been used below {IDLE_PERCENT} % for an hour, and cost",
    )
