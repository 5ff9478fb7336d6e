"""
The state item: the one truth about a cluster, one DynamoDB item with conditional writes.

Messages are only doorbells that say "read the item". Phases go forward only:

    (no item) ── adjuster ──> launched ── master ──> published ── master ──> formed
        └──────────┴────────────── whoever finds out ──────────────┴───────> failed
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from deeplearning_contract.document import excerpt, field, object_list, parse_object, text_list
from deeplearning_contract.errors import ContractError
from deeplearning_contract.membership import Member, is_public_key
from deeplearning_contract.messages import MAX_REASON

TABLE_KEY = "cluster"


class Phase(str, Enum):
    """How far the formation of a generation has come."""

    LAUNCHED = "launched"
    PUBLISHED = "published"
    FORMED = "formed"
    FAILED = "failed"


@dataclass(frozen=True)
class ClusterState:
    """
    What is known of a cluster.

    Attributes:
        cluster: The cluster's name, the key of the item.
        revision: Counts every write; the compare-and-set condition.
        generation: Counts memberships; consumers drop lower ones than they have.
        phase: How far this generation has come.
        requested: Nodes asked for, master included.
        expected: Instance ids that the adjuster counted as launched, master first.
        reason: Why the cluster is smaller than asked for, or failed; else empty.
        members: The roster in rank order, master first; empty before `published`.
        user_key: Public SSH key with which the master logs in on every node; empty before `published`.
    """

    cluster: str
    revision: int
    generation: int
    phase: Phase
    requested: int
    expected: tuple[str, ...]
    reason: str = ""
    members: tuple[Member, ...] = ()
    user_key: str = ""

    def advance(self, phase: Phase, **changes: Any) -> "ClusterState":
        """Return the next revision, in another phase and with other fields changed."""
        return replace(self, revision=self.revision + 1, phase=phase, **changes)

    def to_item(self) -> dict[str, dict[str, str]]:
        """Return the DynamoDB item, in the low-level client's form."""
        document = asdict(self) | {"phase": self.phase.value, "reason": self.reason[:MAX_REASON]}
        return {
            TABLE_KEY: {"S": self.cluster},
            "revision": {"N": str(self.revision)},
            "generation": {"N": str(self.generation)},
            "phase": {"S": self.phase.value},
            "document": {"S": json.dumps(document, sort_keys=True, separators=(",", ":"))},
        }

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> "ClusterState":
        """
        Read the DynamoDB item, in the low-level client's form.

        Raises:
            ContractError: The item does not have the contract's shape.
        """
        attribute = field(item, "document", dict, "item")
        document = parse_object(attribute.get("S", ""), "state")
        user_key = field(document, "user_key", str, "state")
        if user_key and not is_public_key(user_key):
            raise ContractError(f"state.user_key must be an SSH public key, got {excerpt(user_key)}")
        try:
            phase = Phase(field(document, "phase", str, "state"))
        except ValueError as error:
            raise ContractError(f"state.phase must be one of {[p.value for p in Phase]}: {error}") from error
        return cls(
            cluster=field(document, "cluster", str, "state"),
            revision=field(document, "revision", int, "state"),
            generation=field(document, "generation", int, "state"),
            phase=phase,
            requested=field(document, "requested", int, "state"),
            expected=text_list(document, "expected", "state"),
            reason=field(document, "reason", str, "state"),
            members=tuple(Member.from_document(entry) for entry in object_list(document, "members", "state")),
            user_key=user_key,
        )


def get_request(table: str, cluster: str) -> dict[str, Any]:
    """Build the arguments of a strongly consistent `get_item`."""
    return {"TableName": table, "Key": {TABLE_KEY: {"S": cluster}}, "ConsistentRead": True}


def put_request(table: str, state: ClusterState) -> dict[str, Any]:
    """
    Build the arguments of a `put_item` that succeeds only on the revision before this one.

    A lost race raises `ConditionalCheckFailedException`: read again and decide again.
    """
    request: dict[str, Any] = {"TableName": table, "Item": state.to_item()}
    if state.revision == 1:
        return request | {
            "ConditionExpression": "attribute_not_exists(#key)",
            "ExpressionAttributeNames": {"#key": TABLE_KEY},
        }
    return request | {
        "ConditionExpression": "#revision = :previous",
        "ExpressionAttributeNames": {"#revision": "revision"},
        "ExpressionAttributeValues": {":previous": {"N": str(state.revision - 1)}},
    }
