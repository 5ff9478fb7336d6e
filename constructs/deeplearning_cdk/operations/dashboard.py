"""The dashboard of a cluster: what it is doing, how fast, and what broke."""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from deeplearning_cdk.nodes.login_commands import session_command
from deeplearning_cdk.operations.metrics import ClusterMetrics
from deeplearning_contract.metrics import FORMATION_PHASES, GPU_UTILIZATION

LEFT_OUT_WITHOUT_GPUS = (GPU_UTILIZATION,)
"""What a dashboard of nodes without GPUs does not show; any other metric of a cluster is on every dashboard."""
_WIDTH, _HEIGHT = 24, 6
_SHOWN = Duration.hours(8)
_FIVE_MINUTES, _HOUR = Duration.minutes(5), Duration.hours(1)
_WARNINGS = """\
fields @timestamp, level, role, node, message, reason, remedy
| filter level in ["WARNING", "ERROR", "CRITICAL"]
| sort @timestamp desc
| limit 50"""


@dataclass(frozen=True, kw_only=True)
class Watched:
    """
    What a dashboard shows besides the cluster's own metrics.

    Attributes:
        cluster: The cluster's name.
        file_system_id: The shared file system.
        adjuster: The capacity adjuster.
        dead_letters: Where messages end that nobody could read.
        log_groups: What adjuster and nodes log.
        alarms: The cluster's alarms.
        has_gpus: Whether any node has GPUs.
    """

    cluster: str
    file_system_id: str
    adjuster: lambda_.IFunction
    dead_letters: sqs.IQueue
    log_groups: Sequence[logs.ILogGroup]
    alarms: Sequence[cloudwatch.IAlarm]
    has_gpus: bool


class ClusterDashboard(Construct):
    """
    A CloudWatch dashboard of one cluster.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        metrics: The cluster's metrics.
        watched: What is shown besides.

    Attributes:
        dashboard: The dashboard, to which widgets may be added.
    """

    def __init__(self, scope: Construct, construct_id: str, *, metrics: ClusterMetrics, watched: Watched) -> None:
        super().__init__(scope, construct_id)
        region = Stack.of(self).region
        self.dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            # CloudFormation chooses a name: dashboards belong to the account, and one of the same name is written over.
            default_interval=_SHOWN,
        )
        self.dashboard.add_widgets(_write_head(watched, region))
        self.dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(watched.alarms), width=_WIDTH, height=3)
        )
        for row in (
            _show_formation(metrics),
            _show_training(metrics, has_gpus=watched.has_gpus),
            _show_file_systems(metrics, watched.file_system_id),
            _show_adjuster(watched),
            _show_losses(metrics),
        ):
            self.dashboard.add_widgets(*row)
        self.dashboard.add_widgets(
            cloudwatch.LogQueryWidget(
                title="Last warnings of nodes and adjuster",
                log_group_names=[group.log_group_name for group in watched.log_groups],
                query_string=_WARNINGS,
                width=_WIDTH,
                height=8,
            )
        )


def _write_head(watched: Watched, region: str) -> cloudwatch.TextWidget:
    text = f"""\
# Cluster {watched.cluster}

A shell on the master:

```
{session_command(watched.cluster, region)}
```

`deeplearning-cdk status`, `logs` and `ssh` with the stack's name show and reach it from outside. AWS keeps costs by \
account, late, and in us-east-1 only, so Node-hours stands for them here; Cost Explorer has them by the tag \
`deeplearning:cluster`."""
    return cloudwatch.TextWidget(markdown=text, width=_WIDTH, height=6)


def _show_formation(metrics: ClusterMetrics) -> list[cloudwatch.IWidget]:
    nodes = [
        metrics.metric_capacity_asked().with_(label="asked"),
        metrics.metric_capacity_launched().with_(label="launched"),
        metrics.metric_nodes_formed().with_(label="formed"),
    ]
    return [
        _graph("Nodes asked, launched, formed", nodes, unit="nodes", width=9),
        _graph("Generation", [metrics.metric_generation()], unit="", width=6),
        cloudwatch.GraphWidget(
            title="Formation: slowest node in each phase",
            left=[metrics.metric_formation_phase(phase).with_(label=phase) for phase in FORMATION_PHASES],
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
            left=[metrics.metric_gpu_utilization().with_(label="all nodes"), metrics.metric_gpu_utilization_of_nodes()],
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
                    period=Duration.minutes(1),
                )
            },
            label=name,
            period=Duration.minutes(1),
        )
        for name, metric in (("read", "DataReadIOBytes"), ("written", "DataWriteIOBytes"))
    ]
    seen = [
        metrics.metric_file_system_read().with_(label="read"),
        metrics.metric_file_system_write().with_(label="written"),
    ]
    return [
        _graph("EFS: served to all nodes", served, unit="MiB/s", width=12),
        _graph("File systems: seen by a node, on average", seen, unit="MiB/s", width=12),
    ]


def _show_adjuster(watched: Watched) -> list[cloudwatch.IWidget]:
    adjuster = watched.adjuster
    letters = watched.dead_letters.metric_approximate_number_of_messages_visible(
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


def _show_losses(metrics: ClusterMetrics) -> list[cloudwatch.IWidget]:
    node_hours = cloudwatch.MathExpression(
        expression="RUNNING_SUM(FILL(launched, 0))",
        using_metrics={"launched": metrics.metric_capacity_launched(statistic="Average", period=_HOUR)},
        label="node-hours",
        period=_HOUR,
    )
    failures = [
        metrics.metric_launch_failures().with_(label="launches failed"),
        metrics.metric_nodes_lost().with_(label="nodes lost"),
    ]
    return [
        _graph("Launch failures and nodes lost", failures, unit="", width=8),
        _graph("Forming for", [metrics.metric_formation_pending()], unit="seconds", width=8),
        _graph("Node-hours in the time shown", [node_hours], unit="hours", width=8),
    ]


def _graph(title: str, left: Sequence[cloudwatch.IMetric], *, unit: str, width: int) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        left_y_axis=cloudwatch.YAxisProps(label=unit, min=0, show_units=False),
        width=width,
        height=_HEIGHT,
    )
