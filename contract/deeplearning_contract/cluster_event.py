"""The events that a cluster sends to the account's default event bus, for rules of the user's."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from deeplearning_contract.reason import MAX_REASON

EVENT_SOURCE = "deeplearning-cdk"
"""Of which the source of every event begins; a rule for all clusters matches `{"prefix": "deeplearning-cdk."}`."""


class EventKind(str, Enum):
    """What has happened; the value is the event's detail type."""

    FORMED = "Deep Learning Cluster Formed"
    DEGRADED = "Deep Learning Cluster Degraded"
    FAILED = "Deep Learning Cluster Failed"
    FINISHED = "Deep Learning Cluster Finished"


def name_source(cluster: str) -> str:
    """
    Return the source of a cluster's events.

    The source names the cluster, because IAM can bind an event's source and detail type, but nothing inside its detail
    (EventBridge user guide, "Using IAM policy conditions").
    """
    return f"{EVENT_SOURCE}.{cluster}"


@dataclass(frozen=True)
class ClusterEvent:
    """One event."""

    kind: EventKind  # What has happened
    cluster: str
    generation: int  # The generation in which it happened; 0 before the first
    nodes: int  # Members of the cluster, master included; 0 where there is no cluster
    reason: str = ""  # Composed reason, or the result; empty without one
    cause: str = ""  # Cause of the reason; empty where it has no parts
    remedy: str = ""  # Remedy of the reason

    def to_entry(self) -> dict[str, str]:
        """Return the entry of EventBridge's `PutEvents`; without a bus, which means the default one."""
        detail = {
            "cluster": self.cluster,
            "generation": self.generation,
            "nodes": self.nodes,
            **{name: getattr(self, name)[:MAX_REASON] for name in ("reason", "cause", "remedy")},
        }
        return {"Source": name_source(self.cluster), "DetailType": self.kind.value, "Detail": json.dumps(detail)}


def put_events_request(*events: ClusterEvent) -> dict[str, Any]:
    """Build the arguments of a `put_events` call."""
    return {"Entries": [event.to_entry() for event in events]}
