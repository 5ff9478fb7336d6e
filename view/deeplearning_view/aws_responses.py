"""AWS's responses about a cluster, unchanged; a view is made from nothing else."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.document import ContractError
from deeplearning_contract.settings import adjuster_variable

Record = dict[str, Any]


@dataclass
class AwsResponses:
    """
    The responses, in the forms of boto3; times may also be text in ISO 8601, as in recorded ones.

    Attributes:
        resources: Of `ListStackResources`; those of a deleted stack too.
        events: Of `DescribeStackEvents`, newest first.
        groups: Of `DescribeAutoScalingGroups`; empty when they are gone.
        activities: Group's name -> of `DescribeScalingActivities`, newest first; those of deleted groups too.
        instances: Of `DescribeInstances`; terminated ones stay for about an hour.
        templates: Group's name -> data of its launch template.
        limits: The adjuster's variables that limit how long the cluster runs; None when they were not read.
        item: The state item; None without one.
        parts: The items that it refers to.
        node_lines: Of `FilterLogEvents`, the nodes' log group.
        adjuster_lines: The same of the adjuster's.
        unread: What could not be read, a line each.
    """

    region: str
    stack: Record
    resources: list[Record] = field(default_factory=list)
    events: list[Record] = field(default_factory=list)
    groups: list[Record] = field(default_factory=list)
    activities: dict[str, list[Record]] = field(default_factory=dict)
    instances: list[Record] = field(default_factory=list)
    templates: dict[str, Record] = field(default_factory=dict)
    limits: dict[str, str] | None = None
    item: Record | None = None
    parts: list[Record] = field(default_factory=list)
    node_lines: list[Record] = field(default_factory=list)
    adjuster_lines: list[Record] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the text that `from_json` reads."""
        return json.dumps(asdict(self), default=_write_value, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "AwsResponses":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        return cls(**{entry.name: document[entry.name] for entry in fields(cls) if entry.name in document})


def read_moment(value: datetime | str | None) -> datetime | None:
    """Return a time of a response."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def read_tags(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a response's entry."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in entry.get("Tags", [])}


def _write_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


class ViewError(Exception):
    """A cluster could not be read; the message says why and what to do."""


def read_state(responses: AwsResponses) -> tuple[ClusterState | None, str]:
    """Return the state, or None and why it cannot be read; None without a reason when there is none yet."""
    if responses.item is None:
        return None, ""
    try:
        return ClusterState.from_item(responses.item, responses.parts), ""
    except ContractError as error:
        return None, f"the state item: {error}"


LIMIT_VARIABLES = tuple(map(adjuster_variable, ("stop_after_seconds", "budget_topic_arn")))
"""Variables of the adjuster's environment."""
NO_END = (
    "nothing stops this cluster automatically, and it costs money until you do; deploy it with "
    "spending.stop_when_idle or spending.stop_after, or run on the master: sudo deeplearning end"
)
_IDLE = re.compile(rb'"stop_when_idle_seconds"\s*:\s*([1-9]\d*)')


def has_end(limits: Mapping[str, str], templates: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the cluster ends at a deadline, by its budget, or when idle, as the user data of nodes says."""
    if any(value not in ("", "0") for value in limits.values()):
        return True
    return any(_IDLE.search(decode_user_data(data)) for data in templates.values())


def decode_user_data(data: Mapping[str, Any]) -> bytes:
    """Return the user data of a launch template; empty when it is none."""
    try:
        return base64.b64decode(data.get("UserData", ""))
    except binascii.Error:
        return b""
