"""
Metrics in the log lines of nodes and Lambda functions, in CloudWatch's embedded metric format.

CloudWatch Logs extracts them: no role needs the right to write metrics, and they need no call.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NAMESPACE = "DeepLearning/Cluster"
CLUSTER = "Cluster"
NODE = "Node"
PHASE = "Phase"
FORMATION_PHASES = ("boot", "join", "publish", "ready", "formed")
"""
Values of the dimension `Phase`: each node's preparation; on the master, until every worker has joined, until the
membership is written, until every worker has acknowledged it; and the whole, from the master's first step to the formed
cluster.
"""


@dataclass(frozen=True)
class Metric:
    """Metric in CloudWatch."""

    name: str
    unit: str  # CloudWatch's unit
    # Its sets of dimensions; each contains `Cluster`
    dimensions: tuple[tuple[str, ...], ...] = ((CLUSTER,),)


CAPACITY_ASKED = Metric("CapacityAsked", "Count")
CAPACITY_LAUNCHED = Metric("CapacityLaunched", "Count")
LAUNCH_FAILURES = Metric("LaunchFailures", "Count")
CANDIDATES_TRIED = Metric("CandidatesTried", "Count")
FORMATION_PENDING_SECONDS = Metric("FormationPendingSeconds", "Seconds")
NODES_FORMED = Metric("NodesFormed", "Count")
GENERATION = Metric("Generation", "Count")
NODES_LOST = Metric("NodesLost", "Count")
FORMATION_SECONDS = Metric("FormationSeconds", "Seconds", ((CLUSTER, PHASE),))
GPU_UTILIZATION = Metric("GpuUtilization", "Percent", ((CLUSTER,), (CLUSTER, NODE)))
FILE_SYSTEM_READ = Metric("FileSystemReadMiBPerSecond", "None")
"""The name contains the unit, since CloudWatch has none for MiB."""
FILE_SYSTEM_WRITE = Metric("FileSystemWriteMiBPerSecond", "None")
TRAINING_THROUGHPUT = Metric("TrainingThroughput", "Count/Second")
METRICS = (
    CAPACITY_ASKED,
    CAPACITY_LAUNCHED,
    LAUNCH_FAILURES,
    CANDIDATES_TRIED,
    FORMATION_PENDING_SECONDS,
    NODES_FORMED,
    GENERATION,
    NODES_LOST,
    FORMATION_SECONDS,
    GPU_UTILIZATION,
    FILE_SYSTEM_READ,
    FILE_SYSTEM_WRITE,
    TRAINING_THROUGHPUT,
)


def embed_metrics(values: Mapping[Metric, float], dimensions: Mapping[str, str], at: float) -> dict[str, Any]:
    """
    Return the fields of a log line from which CloudWatch extracts metrics.

    NaN and infinity are left out. `at` is the time of the measurement in seconds since the epoch. KeyError for a
    metric whose dimension has no value.
    """
    kept = {metric: value for metric, value in values.items() if math.isfinite(value)}
    if not kept:
        return {}
    named = {name for metric in kept for names in metric.dimensions for name in names}
    directives = [
        {
            "Namespace": NAMESPACE,
            "Dimensions": [list(names) for names in sets],
            "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in kept if metric.dimensions == sets],
        }
        for sets in dict.fromkeys(metric.dimensions for metric in kept)
    ]
    return {
        "_aws": {"Timestamp": math.floor(at * 1000), "CloudWatchMetrics": directives},
        **{name: dimensions[name] for name in sorted(named)},
        **{metric.name: value for metric, value in kept.items()},
    }


def read_metrics(details: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics in a line's details by name; none without any."""
    names = {metric.name for metric in METRICS}
    return {
        name: float(value)
        for name, value in details.items()
        if name in names and isinstance(value, int | float) and not isinstance(value, bool)
    }
