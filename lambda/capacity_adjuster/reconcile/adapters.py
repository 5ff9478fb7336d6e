"""Services and clock of one invocation; the tests replace them by a model."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.capacity_blocks import BlockReader
from capacity_adjuster.aws.state_table import StateTable
from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.messages import ClusterNotification

LOST_RACE = "another writer was faster"
_SKEW_SECONDS = 5
"""Above the difference between the clocks of two invocations."""


class InvocationClock:
    """Time of one invocation, in seconds; `context` is Lambda's context object."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def now(self) -> float:
        """Return the time since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)

    def remaining(self) -> float:
        """Return the time until Lambda stops the invocation."""
        return float(self._context.get_remaining_time_in_millis()) / 1000


@dataclass(frozen=True)
class Adapters:
    """Services of AWS, for one invocation."""

    groups: AutoScalingGroups
    records: StateTable  # State record and the adjuster's own records
    notify_master: Callable[[ClusterNotification], None]  # Sends a notification to the master's queue
    signal_failure: Callable[[str], None]  # Signals the stack that the cluster failed, with the reason
    clock: InvocationClock
    send_event: Callable[[ClusterEvent], None]  # Publishes an event to EventBridge; raises nothing
    block: BlockReader | None = None  # Reads the workers' Capacity Block; None without one

    def end_lease(self) -> int:
        """Return the time after which this invocation is certainly over, in seconds since the epoch."""
        return math.ceil(self.clock.now() + self.clock.remaining() + _SKEW_SECONDS)
