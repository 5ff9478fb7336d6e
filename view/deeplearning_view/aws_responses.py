"""What AWS answered about a cluster, as it answered; all that a view is made from."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

Record = dict[str, Any]


@dataclass
class Answers:
    """
    The answers, in the forms of boto3; times may also be text in ISO 8601, as in recorded ones.

    Attributes:
        region: AWS region.
        stack: Of `DescribeStacks`.
        resources: Of `ListStackResources`; those of a deleted stack too.
        events: Of `DescribeStackEvents`, newest first.
        groups: Of `DescribeAutoScalingGroups`; empty when they are gone.
        activities: Group's name -> of `DescribeScalingActivities`, newest first; those of deleted groups too.
        instances: Of `DescribeInstances`; terminated ones stay for about an hour.
        templates: Group's name -> data of its launch template.
        limits: What the adjuster's environment says of when it stops the cluster; None when it was not read.
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
    def from_json(cls, text: str) -> "Answers":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        return cls(**{entry.name: document[entry.name] for entry in fields(cls) if entry.name in document})


def read_moment(value: datetime | str | None) -> datetime | None:
    """Return a time of an answer."""
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def read_tags(entry: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an answer's entry."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in entry.get("Tags", [])}


def _write_value(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
