"""The AWS services that a reconciliation acts on; the tests put a model of them in their place."""

from collections.abc import Callable
from dataclasses import dataclass

from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.invocation_clock import InvocationClock
from capacity_adjuster.aws.state_table import StateTable
from deeplearning_contract.cluster_event import ClusterEvent
from deeplearning_contract.messages import Doorbell


@dataclass(frozen=True)
class Adapters:
    """AWS, as one invocation uses it."""

    groups: AutoScalingGroups  # The Auto Scaling groups
    records: StateTable  # The state item and the adjuster's own records
    notify_master: Callable[[Doorbell], None]  # Sends a doorbell to the master's queue
    signal_failure: Callable[[str], None]  # Signals the stack that the cluster failed, with the reason
    clock: InvocationClock  # The invocation's time
    send_event: Callable[[ClusterEvent], None]  # Publishes an event to EventBridge; raises nothing
