"""Metrics that alarms and dashboards may name."""

import pytest

from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.metrics import METRICS, NAMESPACE
from deeplearning_rehearsal.cases.run.cloud_faults import require_known_metric


def test_takes_every_metric_that_is_written_and_all_of_other_namespaces():
    for metric in METRICS:
        for names in metric.dimensions:
            require_known_metric(NAMESPACE, metric.name, names)
    require_known_metric("AWS/SQS", "Anything", ["QueueName"])


@pytest.mark.parametrize(
    ("name", "dimensions"), [("NodeLost", ["Cluster"]), ("NodesLost", ["Cluster", "Node"]), ("NodesLost", [])]
)
def test_refuses_a_metric_that_nobody_writes(name, dimensions):
    with pytest.raises(AssemblyError, match=f"{NAMESPACE} has no metric '{name}' by "):
        require_known_metric(NAMESPACE, name, dimensions)
