"""CloudWatch dashboard of a cluster: formation, training, file systems, failures and warnings."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_contract.metrics import CANDIDATES_TRIED, FORMATION_PHASES, GPU_UTILIZATION

LEFT_OUT_WITHOUT_GPUS = (GPU_UTILIZATION,)
"""Metrics that a dashboard omits for nodes without GPUs."""
LEFT_OUT_WITHOUT_FALLBACKS = (CANDIDATES_TRIED,)
"""Metrics that a dashboard omits without `workers.fallbacks`; it always has all others."""
_WIDTH, _HEIGHT = 24, 6
_SHOWN = Duration.hours(8)
_MINUTE, _FIVE_MINUTES, _HOUR = Duration.minutes(1), Duration.minutes(5), Duration.hours(1)
_WARNINGS = """\
fields @timestamp, level, role, node, message, reason.cause, reason.remedy
| filter level in ["WARNING", "ERROR", "CRITICAL"]
| sort @timestamp desc
| limit 50"""


class ClusterDashboard(Construct):
    """
    CloudWatch dashboard of a cluster.

    Attributes:
        dashboard: The dashboard, to which widgets may be added.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metrics: ClusterMetrics,
        session_command: str,
        file_system_id: str,
        adjuster: lambda_.IFunction,
        dead_letters: sqs.IQueue,
        log_groups: Sequence[logs.ILogGroup],
        alarms: Sequence[cloudwatch.IAlarm],
        has_gpus: bool,
        has_fallbacks: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            # CloudFormation generates the name: dashboard names are unique in an account, and creating one with the
            # name of another overwrites it.
            default_interval=_SHOWN,
            widgets=[
                [_show_introduction(metrics.cluster_name, session_command)],
                [cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=_WIDTH, height=3)],
                _show_formation(metrics),
                _show_training(metrics, has_gpus=has_gpus),
                _show_file_systems(metrics, file_system_id),
                _show_adjuster(adjuster, dead_letters),
                _show_losses(metrics, has_fallbacks=has_fallbacks),
                [_show_warnings(log_groups)],
            ],
        )


def _show_introduction(cluster: str, session_command: str) -> cloudwatch.TextWidget:
    text = f"""\
# Cluster {cluster}

A shell on the master:

```
{session_command}
```

From another machine, use `deeplearning-cdk status`, `logs` and `ssh` with the stack's name. AWS reports costs by \
account, late, and in us-east-1 only, so this dashboard shows node-hours; Cost Explorer shows costs by the tag \
`deeplearning:cluster`."""
    return cloudwatch.TextWidget(markdown=text, width=_WIDTH, height=6)


def _show_formation(metrics: ClusterMetrics) -> list[cloudwatch.IWidget]:
    nodes = [
        metrics.metric_capacity_asked(label="asked"),
        metrics.metric_capacity_launched(label="launched"),
        metrics.metric_nodes_formed(label="formed"),
    ]
    return [
        _graph("Nodes asked, launched, formed", nodes, unit="nodes", width=9),
        _graph("Generation", [metrics.metric_generation()], unit="", width=6),
        cloudwatch.GraphWidget(
            title="Formation: slowest node in each phase",
            left=[metrics.metric_formation_phase(phase, label=phase) for phase in FORMATION_PHASES],
            left_y_axis=cloudwatch.YAxisProps(label="seconds", min=0, show_units=False),
            view=cloudwatch.GraphWidgetView.BAR,
            set_period_to_time_range=True,
            width=9,
            height=_HEIGHT,
        ),
    ]


def _show_training(metrics: ClusterMetrics, *, has_gpus: bool) -> list[cloudwatch.IWidget]:
    throughput = [metrics.metric_training_throughput()]
    if not has_gpus:
        return [_graph("Training throughput", throughput, unit="samples/s", width=_WIDTH)]
    return [
        cloudwatch.GraphWidget(
            title="GPU utilisation, all nodes and each",
            left=[metrics.metric_gpu_utilization(label="all nodes"), metrics.metric_gpu_utilization_of_nodes()],
            left_y_axis=cloudwatch.YAxisProps(label="%", min=0, max=100, show_units=False),
            width=12,
            height=_HEIGHT,
        ),
        _graph("Training throughput", throughput, unit="samples/s", width=12),
    ]


def _show_file_systems(metrics: ClusterMetrics, file_system_id: str) -> list[cloudwatch.IWidget]:
    served = [
        cloudwatch.MathExpression(
            expression=f"{name} / PERIOD({name}) / 1048576",
            using_metrics={
                name: cloudwatch.Metric(
                    namespace="AWS/EFS",
                    metric_name=metric,
                    dimensions_map={"FileSystemId": file_system_id},
                    statistic="Sum",
                    period=_MINUTE,
                )
            },
            label=name,
            period=_MINUTE,
        )
        for name, metric in (("read", "DataReadIOBytes"), ("written", "DataWriteIOBytes"))
    ]
    seen = [
        metrics.metric_file_system_read(label="read"),
        metrics.metric_file_system_write(label="written"),
    ]
    return [
        _graph("EFS: served to all nodes", served, unit="MiB/s", width=12),
        _graph("File systems: seen by a node, on average", seen, unit="MiB/s", width=12),
    ]


def _show_adjuster(adjuster: lambda_.IFunction, dead_letters: sqs.IQueue) -> list[cloudwatch.IWidget]:
    letters = dead_letters.metric_approximate_number_of_messages_visible(
        period=_FIVE_MINUTES, statistic="Maximum", label="dead letters"
    )
    return [
        _graph("Capacity adjuster: errors", [adjuster.metric_errors(label="errors")], unit="", width=8),
        _graph(
            "Capacity adjuster: duration",
            [adjuster.metric_duration(statistic="Maximum", label="longest")],
            unit="ms",
            width=8,
        ),
        _graph("Dead letters", [letters], unit="messages", width=8),
    ]


def _show_losses(metrics: ClusterMetrics, *, has_fallbacks: bool) -> list[cloudwatch.IWidget]:
    node_hours = cloudwatch.MathExpression(
        expression="RUNNING_SUM(FILL(launched, 0))",
        using_metrics={"launched": metrics.metric_capacity_launched(statistic="Average", period=_HOUR)},
        label="node-hours",
        period=_HOUR,
    )
    failures = [
        metrics.metric_launch_failures(label="launches failed"),
        metrics.metric_nodes_lost(label="nodes lost"),
        *([metrics.metric_candidates_tried(label="candidates tried")] if has_fallbacks else ()),
    ]
    return [
        _graph("Launch failures and nodes lost", failures, unit="", width=8),
        _graph("Forming for", [metrics.metric_formation_pending()], unit="seconds", width=8),
        _graph("Node-hours in the time shown", [node_hours], unit="hours", width=8),
    ]


def _show_warnings(log_groups: Sequence[logs.ILogGroup]) -> cloudwatch.LogQueryWidget:
    return cloudwatch.LogQueryWidget(
        title="Last warnings of nodes and adjuster",
        log_group_names=[group.log_group_name for group in log_groups],
        query_string=_WARNINGS,
        width=_WIDTH,
        height=8,
    )


def _graph(title: str, left: Sequence[cloudwatch.IMetric], *, unit: str, width: int) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        left_y_axis=cloudwatch.YAxisProps(label=unit, min=0, show_units=False),
        width=width,
        height=_HEIGHT,
    )
