"""Events that a cluster publishes on the account's default event bus, for the user's rules."""

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from deeplearning_contract.reason import NO_REASON, Reason

EVENT_SOURCE = "deeplearning-cdk"
"""Start of the source of every event; a rule for all clusters matches `{"prefix": "deeplearning-cdk."}`."""


class EventKind(str, Enum):
    """Kind of an event; the value is its detail type."""

    FORMED = "Deep Learning Cluster Formed"
    DEGRADED = "Deep Learning Cluster Degraded"
    FAILED = "Deep Learning Cluster Failed"
    FINISHED = "Deep Learning Cluster Finished"
    JOB_FAILED = "Deep Learning Job Failed"
    CAPACITY_MOVED = "Deep Learning Cluster Capacity Moved"


def name_source(cluster: str) -> str:
    """
    Return the source of a cluster's events.

    The source names the cluster, since IAM conditions apply to an event's source and detail type, but not to its detail
    (EventBridge user guide, "Using IAM policy conditions").
    """
    return f"{EVENT_SOURCE}.{cluster}"


@dataclass(frozen=True, kw_only=True)
class ClusterEvent:
    """Event of a cluster."""

    kind: EventKind  # Kind of the event
    cluster: str
    generation: int  # Generation of the event; 0 before the first
    nodes: int  # Members of the cluster, master included; 0 without a cluster
    reason: Reason = NO_REASON  # Reason, or the result as its cause; false without one

    def to_entry(self) -> dict[str, str]:
        """
        Return the entry of EventBridge's `PutEvents`; it names no bus, for the default one.

        As in a log line, `message` is the sentence for people and `reason` has its parts.
        """
        detail = {
            "cluster": self.cluster,
            "generation": self.generation,
            "nodes": self.nodes,
            "message": str(self.reason),
            "reason": asdict(self.reason.shorten()),
        }
        return {"Source": name_source(self.cluster), "DetailType": self.kind.value, "Detail": json.dumps(detail)}


def put_events_request(*events: ClusterEvent) -> dict[str, Any]:
    """Return the arguments of a `put_events` call."""
    return {"Entries": [event.to_entry() for event in events]}
