"""The metrics of a cluster, for its own dashboard and alarms and for those of the user."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from deeplearning_contract import metrics
from deeplearning_contract.metrics import Metric

_MINUTE = Duration.minutes(1)


class ClusterMetrics(Construct):
    """
    The side of `ClusterMonitoring` that other dashboards and alarms use.

    Each method takes a statistic and a period; by default the statistic is the one that the number is meant for, and
    the period is a minute, since nodes and adjuster write once a minute.
    """

    _cluster: str

    def metric_capacity_asked(self, *, statistic: str = "Maximum", period: Duration | None = None) -> cloudwatch.Metric:
        """Return how many nodes the groups are to have, master included."""
        return self._make(metrics.CAPACITY_ASKED, statistic, period)

    def metric_capacity_launched(
        self, *, statistic: str = "Maximum", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return how many instances the groups have, master included: those that cost."""
        return self._make(metrics.CAPACITY_LAUNCHED, statistic, period)

    def metric_nodes_formed(self, *, statistic: str = "Maximum", period: Duration | None = None) -> cloudwatch.Metric:
        """Return how many nodes the cluster consists of, master included."""
        return self._make(metrics.NODES_FORMED, statistic, period)

    def metric_generation(self, *, statistic: str = "Maximum", period: Duration | None = None) -> cloudwatch.Metric:
        """Return the number of the membership, which grows with each that is formed anew."""
        return self._make(metrics.GENERATION, statistic, period)

    def metric_nodes_lost(self, *, statistic: str = "Sum", period: Duration | None = None) -> cloudwatch.Metric:
        """Return how many nodes were lost that nobody asked to end."""
        return self._make(metrics.NODES_LOST, statistic, period)

    def metric_launch_failures(
        self, *, statistic: str = "Maximum", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return how many launches the adjuster saw fail."""
        return self._make(metrics.LAUNCH_FAILURES, statistic, period)

    def metric_formation_pending(
        self, *, statistic: str = "Maximum", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return for how many seconds the cluster has been forming; 0 once it has formed."""
        return self._make(metrics.FORMATION_PENDING_SECONDS, statistic, period)

    def metric_formation_phase(
        self, phase: str, *, statistic: str = "Maximum", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """
        Return how many seconds a phase of the formation took.

        Args:
            phase: One of `deeplearning_contract.metrics.FORMATION_PHASES`.
            statistic: Default: the slowest node.
            period: Default: a minute.

        Raises:
            ValueError: There is no such phase.
        """
        if phase not in metrics.FORMATION_PHASES:
            raise ValueError(f"phase must be one of {', '.join(metrics.FORMATION_PHASES)}, got {phase!r}")
        return self._make(metrics.FORMATION_SECONDS, statistic, period, {metrics.PHASE: phase})

    def metric_gpu_utilization(
        self, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return how busy the GPUs of all nodes are, in percent."""
        return self._make(metrics.GPU_UTILIZATION, statistic, period)

    def metric_gpu_utilization_of_nodes(
        self, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.MathExpression:
        """Return how busy the GPUs of each node are, in percent: a line for every node; for dashboards only."""
        schema = f"{metrics.NAMESPACE},{metrics.CLUSTER},{metrics.NODE}"
        found = f'{{{schema}}} MetricName="{metrics.GPU_UTILIZATION.name}" {metrics.CLUSTER}="{self._cluster}"'
        length = period or _MINUTE
        return cloudwatch.MathExpression(
            expression=f"SEARCH('{found}', '{statistic}', {length.to_seconds():.0f})",
            using_metrics={},
            label="",
            period=length,
        )

    def metric_file_system_read(
        self, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return what a node reads from the file systems, in MiB a second."""
        return self._make(metrics.FILE_SYSTEM_READ, statistic, period)

    def metric_file_system_write(
        self, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return what a node writes to the file systems, in MiB a second."""
        return self._make(metrics.FILE_SYSTEM_WRITE, statistic, period)

    def metric_training_throughput(
        self, *, statistic: str = "Average", period: Duration | None = None
    ) -> cloudwatch.Metric:
        """Return how many samples a second a job trains on, while one reports it."""
        return self._make(metrics.TRAINING_THROUGHPUT, statistic, period)

    def _make(
        self,
        metric: Metric,
        statistic: str,
        period: Duration | None,
        dimensions: Mapping[str, str] | None = None,
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=metrics.NAMESPACE,
            metric_name=metric.name,
            dimensions_map={metrics.CLUSTER: self._cluster, **(dimensions or {})},
            statistic=statistic,
            period=period or _MINUTE,
        )
