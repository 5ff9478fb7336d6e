"""Whether a cluster has come to rest: all have the last membership, and nobody does anything any more."""

import json
import time
from collections.abc import Callable

from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.fleet import Fleet
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.names import MEMBERSHIP_FILE

_QUIET_SECONDS = 6.0
"""So long no agent has logged anything when all is done, whatever is known; they look for news more often than that."""
_SHORT_QUIET_SECONDS = 2.5
"""So long when AWS has nothing to do either: one round of the master, one look at the logs."""


def is_settled(state: ClusterState | None, fleet: Fleet, nodes: int, is_done: Callable[[], bool]) -> bool:
    """
    Tell whether a cluster has so many nodes, and each of them its generation.

    Args:
        state: The state item; None while there is none.
        fleet: The machines.
        nodes: How many there must be, master included.
        is_done: Tells whether nothing is known to come any more; asked when agents have been quiet for a short time.
    """
    if state is None or state.phase.value != "formed" or len(state.members) != nodes:
        return False
    running = {machine.instance_id for machine in fleet.machines()}
    members = [member.instance_id for member in state.members]
    quiet = time.monotonic() - fleet.spoke_at
    if not running.issuperset(members) or quiet <= _SHORT_QUIET_SECONDS:
        return False
    if not all(_read_generation(fleet, member) == state.generation for member in members):
        return False
    return quiet > _QUIET_SECONDS or (running == set(members) and is_done())


def is_at_rest(place: Place) -> bool:
    """Tell whether every group has the healthy instances that it asks for, and no queue has a message for anybody."""
    groups = place.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    for group in groups:
        states = [(entry["LifecycleState"], entry["HealthStatus"]) for entry in group["Instances"]]
        if states != [("InService", "Healthy")] * group["DesiredCapacity"]:
            return False
    sqs = place.client("sqs")
    counts = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    names = [*counts, "QueueArn", "RedrivePolicy"]
    queues = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        for url in sqs.list_queues().get("QueueUrls", ())
    ]
    # Nobody takes what lies in a dead-letter queue.
    dead = {json.loads(queue["RedrivePolicy"])["deadLetterTargetArn"] for queue in queues if "RedrivePolicy" in queue}
    return all(int(queue[name]) == 0 for queue in queues if queue["QueueArn"] not in dead for name in counts)


def _read_generation(fleet: Fleet, instance_id: str) -> int:
    try:
        path = fleet.disk(instance_id) / MEMBERSHIP_FILE.lstrip("/")
        return int(json.loads(path.read_text(encoding="utf-8"))["generation"])
    except (OSError, ValueError, KeyError, RehearsalError):
        return 0  # it has none yet, or was powered off just now
