"""CloudWatch metrics of a cluster, for its dashboard and alarms and for those of the user."""

from typing import TypedDict, Unpack

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from deeplearning_contract import metrics
from deeplearning_contract.metrics import Metric

_MINUTE = Duration.minutes(1)


class MetricOptions(TypedDict, total=False):
    """
    Options of a metric.

    Attributes:
        statistic: Statistic of the data points. Default: the one that the method documents.
        period: Length of a data point. Default: 1 minute, the interval at which nodes and adjuster publish.
        label: Label in a graph. Default: the name of the metric.
    """

    statistic: str
    period: Duration
    label: str


class ClusterMetrics:
    """
    Metrics of a cluster.

    Args:
        cluster_name: Name of the cluster, the dimension of all its metrics.
    """

    def __init__(self, cluster_name: str) -> None:
        self.cluster_name = cluster_name

    def metric_capacity_asked(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the desired capacity of both groups, including the master; maximum."""
        return self._make(metrics.CAPACITY_ASKED, options)

    def metric_capacity_launched(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the number of instances in both groups, including the master, all of which are charged; maximum."""
        return self._make(metrics.CAPACITY_LAUNCHED, options)

    def metric_nodes_formed(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the number of nodes in the cluster's membership, including the master; maximum."""
        return self._make(metrics.NODES_FORMED, options)

    def metric_generation(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the generation of the membership, which increases with every new membership; maximum."""
        return self._make(metrics.GENERATION, options)

    def metric_nodes_lost(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the number of nodes that were lost without a request to terminate them; sum."""
        return self._make(metrics.NODES_LOST, options, "Sum")

    def metric_launch_failures(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the number of failed launches that the adjuster found; maximum."""
        return self._make(metrics.LAUNCH_FAILURES, options)

    def metric_candidates_tried(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the number of candidates that were asked for capacity, with `workers.fallbacks`; maximum."""
        return self._make(metrics.CANDIDATES_TRIED, options)

    def metric_formation_pending(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the time for which the cluster has been forming, in seconds, 0 once it has formed; maximum."""
        return self._make(metrics.FORMATION_PENDING_SECONDS, options)

    def metric_formation_phase(self, phase: str, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """
        Return the duration of a phase of the formation on the slowest node, in seconds; maximum.

        Args:
            phase: One of `deeplearning_contract.metrics.FORMATION_PHASES`.
            options: Statistic and period. Default: maximum, a minute.

        Raises:
            ValueError: There is no such phase.
        """
        if phase not in metrics.FORMATION_PHASES:
            raise ValueError(f"phase must be one of {', '.join(metrics.FORMATION_PHASES)}, got {phase!r}")
        return self._make(metrics.FORMATION_SECONDS, options, **{metrics.PHASE: phase})

    def metric_gpu_utilization(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the utilization of the GPUs of all nodes, in percent; average."""
        return self._make(metrics.GPU_UTILIZATION, options, "Average")

    def metric_gpu_utilization_of_nodes(self, **options: Unpack[MetricOptions]) -> cloudwatch.MathExpression:
        """Return the utilization of each node's GPUs, in percent: one line a node, for dashboards only; average."""
        schema = f"{metrics.NAMESPACE},{metrics.CLUSTER},{metrics.NODE}"
        search = f'{{{schema}}} MetricName="{metrics.GPU_UTILIZATION.name}" {metrics.CLUSTER}="{self.cluster_name}"'
        statistic, period = options.get("statistic", "Average"), options.get("period", Duration.minutes(1))
        return cloudwatch.MathExpression(
            expression=f"SEARCH('{search}', '{statistic}', {period.to_seconds():.0f})",
            using_metrics={},
            label="",
            period=period,
        )

    def metric_file_system_read(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the read throughput of the file systems on a node, in MiB per second; average."""
        return self._make(metrics.FILE_SYSTEM_READ, options, "Average")

    def metric_file_system_write(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the write throughput of the file systems on a node, in MiB per second; average."""
        return self._make(metrics.FILE_SYSTEM_WRITE, options, "Average")

    def metric_training_throughput(self, **options: Unpack[MetricOptions]) -> cloudwatch.Metric:
        """Return the samples per second of a job, while it reports them; average."""
        return self._make(metrics.TRAINING_THROUGHPUT, options, "Average")

    def _make(
        self, metric: Metric, options: MetricOptions, statistic: str = "Maximum", **dimensions: str
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=metrics.NAMESPACE,
            metric_name=metric.name,
            dimensions_map={metrics.CLUSTER: self.cluster_name, **dimensions},
            statistic=options.get("statistic", statistic),
            period=options.get("period", _MINUTE),
            label=options.get("label"),
        )
