"""AWS as one invocation uses it: its services and its time; the tests put a model of them in their place."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.state_table import StateTable
from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.messages import Doorbell

LOST_RACE = "another writer was faster"
_SKEW_SECONDS = 5
"""Clocks of two invocations differ by less."""


class InvocationClock:
    """Time of one invocation, in seconds; `context` is Lambda's context object."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def now(self) -> float:
        """Return the time since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def remaining(self) -> float:
        """Return the time until Lambda stops the invocation."""
        return float(self._context.get_remaining_time_in_millis()) / 1000


@dataclass(frozen=True)
class Adapters:
    """AWS, as one invocation uses it."""

    groups: AutoScalingGroups
    records: StateTable  # The state item and the adjuster's own records
    notify_master: Callable[[Doorbell], None]  # Sends a doorbell to the master's queue
    signal_failure: Callable[[str], None]  # Signals the stack that the cluster failed, with the reason
    clock: InvocationClock
    send_event: Callable[[ClusterEvent], None]  # Publishes an event to EventBridge; raises nothing

    def end_lease(self) -> int:
        """Return the second since the epoch after which this invocation is certainly over."""
        return math.ceil(self.clock.now() + self.clock.remaining() + _SKEW_SECONDS)
