"""Activity of a node, which keeps an EMR cluster from ending by its auto-termination policy."""

import logging

from deeplearning_jobs.hosts.processes import find_processes
from deeplearning_node.health.gpus import BUSY_PERCENT, list_utilization
from deeplearning_node.node import Node
from deeplearning_node.provision_status import RUNNING, WAITING, read_status

LOG = logging.getLogger(__name__)
BUSY_FILE = "/emr/metricscollector/isbusy"
"""
File on the primary node that programs outside of YARN touch while the cluster is not idle.

EMR management guide, "Using an auto-termination policy"; from release 6.4.0 on.
"""
GPU_SECONDS = 20
"""Time limit of a query: busy GPUs are initialized, and only the driver of idle ones is late (Azure/aks-gpu#105)."""


def find_activity(node: Node) -> str:
    """Return one activity of this node, as `deeplearning end --when-idle` finds them; empty for none."""
    if jobs := sorted(set(find_processes(node.path("/proc")).values())):
        return f"runs {', '.join(jobs)}"
    try:
        steps = [name for name, step in read_status(node.root).items() if step.state in {WAITING, RUNNING}]
    except (OSError, ValueError):  # ContractError is a ValueError.
        steps = []
    if steps:
        return f"is provisioned with {', '.join(sorted(steps))}"
    percent = max(list_utilization(node.programs, GPU_SECONDS), default=0)
    return f"has a GPU that is busy {percent} % of its time" if percent > BUSY_PERCENT else ""


class BusyFile:
    """The file by which the primary node reports activity to EMR."""

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is written yet."""
        self._path = node.path(BUSY_FILE)
        self._trouble = ""

    def touch(self) -> None:
        """Touch the file in its folder, which EMR makes; a failure is logged once."""
        trouble = ""
        try:
            self._path.touch()
        except OSError as error:
            trouble = str(error)
            if trouble != self._trouble:
                LOG.warning("could not report activity to EMR, which may end the cluster as idle: %s", error)
        self._trouble = trouble
