"""AWS's responses about a cluster, unchanged: the only source of a view."""

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
from deeplearning_contract.names import CANDIDATE_TAG, FIRST_CANDIDATE
from deeplearning_contract.settings import adjuster_variable

Record = dict[str, Any]


@dataclass
class AwsResponses:
    """
    Responses in the form of boto3; times may also be text in ISO 8601, as in recorded responses.

    Attributes:
        resources: Entries of `ListStackResources`, also for a deleted stack.
        events: Entries of `DescribeStackEvents`, newest first.
        groups: Entries of `DescribeAutoScalingGroups`; empty after their deletion.
        activities: Entries of `DescribeScalingActivities` by group, newest first, also of deleted groups.
        instances: Entries of `DescribeInstances`; terminated ones stay for about an hour.
        templates: Data of the launch template, by group.
        limits: The adjuster's variables that limit the cluster's running time; None if they were not read.
        item: The state item; None without one.
        parts: The items to which it refers.
        search_settings: The adjuster's variables of its search for capacity; empty without further candidates.
        search: The record of that search, while it is under way; None without one.
        request: The record of the requested capacity of workers with a Capacity Block; None without one.
        node_lines: Events of `FilterLogEvents` in the nodes' log group.
        adjuster_lines: Events of `FilterLogEvents` in the adjuster's log group.
        unread: Failed reads, one line each.
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
    search_settings: dict[str, str] = field(default_factory=dict)
    search: Record | None = None
    request: Record | None = None
    node_lines: list[Record] = field(default_factory=list)
    adjuster_lines: list[Record] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def to_json(self) -> str:
        """Return the responses as JSON for `from_json`."""
        return json.dumps(asdict(self), default=_write_value, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "AwsResponses":
        """Return the responses in JSON from `to_json`."""
        document = json.loads(text)
        return cls(**{entry.name: document[entry.name] for entry in fields(cls) if entry.name in document})


def read_moment(value: datetime | str | None) -> datetime | None:
    """Return a time of a response."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def read_tags(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a response's entry."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in entry.get("Tags", [])}


def read_candidate(group: Mapping[str, Any]) -> str:
    """Return the candidate for capacity to which a group belongs."""
    return read_tags(group).get(CANDIDATE_TAG, FIRST_CANDIDATE)


def _write_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


class ViewError(Exception):
    """A cluster could not be read; the message names cause and remedy."""


def read_state(responses: AwsResponses) -> tuple[ClusterState | None, str]:
    """Return the state, or None with the reason; None without a reason if there is no state yet."""
    if responses.item is None:
        return None, ""
    try:
        return ClusterState.from_item(responses.item, responses.parts), ""
    except ContractError as error:
        return None, f"the state item: {error}"


LIMIT_VARIABLES = tuple(map(adjuster_variable, ("stop_after_seconds", "budget_topic_arn")))
BLOCK_VARIABLE = adjuster_variable("worker_block_id")
SEARCH_VARIABLES = tuple(map(adjuster_variable, ("candidates", "patience_seconds", "search_seconds")))
"""Variables of the adjuster's environment."""
NO_END = (
    "nothing stops this cluster automatically, and it costs money until you do; deploy it with "
    "spending.stop_when_idle or spending.stop_after, or run on the master: sudo deeplearning end"
)
_IDLE = re.compile(rb'"stop_when_idle_seconds"\s*:\s*([1-9]\d*)')


def has_end(limits: Mapping[str, str], templates: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the cluster ends at a deadline, by its budget or, according to the nodes' user data, when idle."""
    if any(value not in ("", "0") for value in limits.values()):
        return True
    return any(_IDLE.search(decode_user_data(data)) for data in templates.values())


def decode_user_data(data: Mapping[str, Any]) -> bytes:
    """Return the decoded user data of a launch template; empty without it."""
    try:
        return base64.b64decode(data.get("UserData", ""))
    except binascii.Error:
        return b""
