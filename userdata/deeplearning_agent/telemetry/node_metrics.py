"""What a node measures of itself, once a minute."""

import logging
from collections.abc import Callable

from deeplearning_agent.telemetry.file_system_traffic import Traffic, read_traffic
from deeplearning_agent.telemetry.log_excerpts import ProvisioningWatch
from deeplearning_agent.telemetry.log_fields import LogFields
from deeplearning_agent.telemetry.training_throughput import TrainingThroughput
from deeplearning_contract.metrics import (
    FILE_SYSTEM_READ,
    FILE_SYSTEM_WRITE,
    GPU_UTILIZATION,
    TRAINING_THROUGHPUT,
    Metric,
)
from deeplearning_node.health.gpus import GPU_SECONDS, read_utilization
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
MINUTE_SECONDS = 60.0
Source = Callable[[], dict[Metric, float]]


class NodeMetrics:
    """A node's meter. One thread calls it."""

    def __init__(self, node: Node, membership: Source | None = None) -> None:
        """Bind the node, and what the master measures of the cluster; nothing is measured yet."""
        self._node = node
        self._membership = membership or dict
        self._throughput = TrainingThroughput(node)
        self._provisioning = ProvisioningWatch(node)
        self._traffic: Traffic | None = None

    def wait(self) -> None:
        """Wait for the next minute."""
        self._node.clock.wait(MINUTE_SECONDS)

    def log(self) -> None:
        """Say what is measured now in a line, if there is anything; whatever goes wrong is logged and no more."""
        try:
            self._provisioning.look()
            metrics = self.measure()
        except Exception:
            LOG.exception("the node could not be measured")
            return
        if metrics:
            words = ", ".join(f"{metric.name} {value:.6g}" for metric, value in metrics.items())
            LOG.info("measured: %s", words, extra=LogFields(metrics=metrics, is_local=False).extra)

    def measure(self) -> dict[Metric, float]:
        """Return what can be measured on this node."""
        metrics = dict(self._membership())
        utilization = read_utilization(self._node.programs, GPU_SECONDS)
        if utilization is not None:
            metrics[GPU_UTILIZATION] = utilization
        metrics |= self._measure_file_system()
        throughput = self._throughput.read() if self._node.is_master else None
        if throughput is not None:
            metrics[TRAINING_THROUGHPUT] = throughput
        return metrics

    def _measure_file_system(self) -> dict[Metric, float]:
        before, self._traffic = self._traffic, read_traffic(self._node)
        rates = self._traffic.rates_since(before) if self._traffic and before else None
        return {FILE_SYSTEM_READ: rates[0], FILE_SYSTEM_WRITE: rates[1]} if rates else {}
