"""
State record: the single source of truth about a cluster, one DynamoDB item with conditional writes.

Messages only notify of a change of the item. A generation forms in phases:

    (no item) ── adjuster ──> launched ── master ──> published ── master ──> formed
        └──────────┴───────────── first to detect it ──────────────┴───────> failed

The adjuster may write `launched` again, for the next generation, until a membership is published. A formed cluster
moves from generation to generation as nodes leave and join; under a new master through `published`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from deeplearning_contract.document import ContractError, excerpt, field, parse_record
from deeplearning_contract.membership import Member, is_public_key
from deeplearning_contract.reason import NO_REASON, Reason

TABLE_KEY = "cluster"
_MOST_DEPARTURES = 20
_LONGEST_NOTE = 300
PART_CHARACTERS = 300_000
"""Most characters of a document in one item, of DynamoDB's 400 KB; about 1,200 nodes."""


class Phase(str, Enum):
    """Phase of the formation of a generation."""

    LAUNCHED = "launched"
    PUBLISHED = "published"
    FORMED = "formed"
    FAILED = "failed"


@dataclass(frozen=True)
class Departure:
    """Former member of the cluster."""

    instance_id: str  # Its EC2 instance id
    generation: int  # First generation without it
    reason: Reason  # Reason of its departure


@dataclass(frozen=True)
class CapacityAttempt:
    """Candidate that was asked for capacity and did not give enough of it."""

    candidate: str  # Value of its candidate tag
    words: str  # What it is for people: `p4d.24xlarge in us-east-1a`
    launched: int  # Workers that launched
    requested: int  # Requested workers
    kind: str  # Kind of the failed launch that ended it
    began: int  # Times of its begin and end in seconds since the epoch
    ended: int


@dataclass(frozen=True)
class ClusterState:
    """State record of a cluster."""

    cluster: str  # Name of the cluster, the key of the item
    revision: int  # Counts every write; the compare-and-set condition
    generation: int  # Counts memberships; consumers ignore lower ones than theirs
    phase: Phase  # Phase of this generation
    requested: int  # Requested nodes, master included
    expected: tuple[str, ...]  # Instance ids that the adjuster counted as launched, master first
    reason: Reason = NO_REASON  # Reason of a reduced size or a failure; else false
    members: tuple[Member, ...] = ()  # Members in rank order, master first; empty before `published`
    user_key: str = ""  # Public SSH key of the master for every node; empty before `published`
    has_formed: bool = False  # Whether any generation has formed; later failures are those of single nodes
    departed: tuple[Departure, ...] = ()  # Most recent departures, the newest last
    run_ended: bool = False  # Whether the user's run script has succeeded, so that no later master starts it again
    notice: str = ""  # Notice that the capacity of the whole cluster ends soon; empty without one
    worker_minimum: int = 0  # Fewest workers for a formation; the adjuster writes it with each verdict `launched`
    # Value of the candidate tag of the groups whose nodes it has; empty for a cluster without further candidates
    candidate: str = ""
    attempts: tuple[CapacityAttempt, ...] = ()  # Candidates that were asked before, the newest last

    @property
    def master(self) -> str:
        """Instance id of the master; empty before `published`."""
        return self.members[0].instance_id if self.members else ""

    def has_member(self, instance_id: str) -> bool:
        """Return whether an instance is a member."""
        return any(member.instance_id == instance_id for member in self.members)

    def depart(self, generation: int, reasons: Mapping[str, Reason]) -> "ClusterState":
        """Return the same revision with departures, by instance id; `generation` is the first one without them."""
        noted = tuple(Departure(name, generation, why.shorten(_LONGEST_NOTE)) for name, why in reasons.items())
        return replace(self, departed=(*self.departed, *noted)[-_MOST_DEPARTURES:])

    def advance(self, phase: Phase, **changes: Any) -> "ClusterState":
        """Return the next revision, in another phase and with other fields changed."""
        return replace(self, revision=self.revision + 1, phase=phase, **changes)

    def to_item(self) -> dict[str, dict[str, str]]:
        """Return the DynamoDB item, in the low-level client's form; it only refers to a long document."""
        text = self.to_text()
        is_long = len(text) > PART_CHARACTERS
        digest = hashlib.sha256(text.encode()).hexdigest()
        reference = {"parts": {"N": str(-(-len(text) // PART_CHARACTERS))}, "digest": {"S": digest}}
        return {
            TABLE_KEY: {"S": self.cluster},
            "revision": {"N": str(self.revision)},
            "generation": {"N": str(self.generation)},
            "phase": {"S": self.phase.value},
            **(reference if is_long else {"document": {"S": text}}),
        }

    def to_parts(self) -> tuple[dict[str, dict[str, str]], ...]:
        """Return the items of a long document, named by their content; none for a short one."""
        text = self.to_text()
        if len(text) <= PART_CHARACTERS:
            return ()
        digest = hashlib.sha256(text.encode()).hexdigest()
        pieces = [text[start : start + PART_CHARACTERS] for start in range(0, len(text), PART_CHARACTERS)]
        return tuple(
            {TABLE_KEY: {"S": _part_key(self.cluster, digest, number)}, "document": {"S": piece}}
            for number, piece in enumerate(pieces)
        )

    def to_text(self) -> str:
        """Return the JSON that `from_text` reads."""
        document = asdict(replace(self, reason=self.reason.shorten())) | {"phase": self.phase.value}
        for name in ("candidate", "attempts"):  # A cluster without further candidates has neither.
            if not document[name]:
                del document[name]
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_item(cls, item: Mapping[str, Any], parts: Sequence[Mapping[str, Any]] = ()) -> "ClusterState":
        """Read the DynamoDB item, and the parts of a long document in the order of `part_requests`."""
        return cls.from_text(_join(item, parts))

    @classmethod
    def from_text(cls, text: str) -> "ClusterState":
        """Read the JSON of `to_text`; ContractError for a malformed one."""
        state = parse_record(cls, text, "state")
        if state.user_key and not is_public_key(state.user_key):
            raise ContractError(f"state.user_key must be an SSH public key, got {excerpt(state.user_key)}")
        return state


def get_request(table: str, cluster: str) -> dict[str, Any]:
    """Return the arguments of a strongly consistent `get_item`."""
    return {"TableName": table, "Key": {TABLE_KEY: {"S": cluster}}, "ConsistentRead": True}


def part_requests(table: str, item: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the arguments of a `get_item` for each part of a long document; none for a short one."""
    if "parts" not in item:
        return ()
    try:
        cluster, digest, count = item[TABLE_KEY]["S"], item["digest"]["S"], int(item["parts"]["N"])
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError(f"item must contain digest and number of its parts: {error!r}") from error
    return tuple(get_request(table, _part_key(cluster, digest, number)) for number in range(count))


def put_requests(table: str, state: ClusterState) -> tuple[dict[str, Any], ...]:
    """
    Return the arguments of every `put_item` for a state: the parts that it refers to, and last the state record itself.

    The parts are named by their content, so that writers cannot disturb each other.
    """
    return (*({"TableName": table, "Item": part} for part in state.to_parts()), put_request(table, state))


def put_request(table: str, state: ClusterState) -> dict[str, Any]:
    """
    Return the arguments of the state record's own `put_item`, which succeeds only on the previous revision.

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


def list_key_patterns(cluster: str) -> list[str]:
    """Return the keys of the state record and its parts, with IAM's wildcards; other items belong to the adjuster."""
    return [cluster, _part_key(cluster, "*", "*")]


def _part_key(cluster: str, digest: str, number: int | str) -> str:
    return f"{cluster}#state#{digest}#{number}"


def _join(item: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> str:
    if "parts" not in item:
        text: str = field(item, "document", dict, "item").get("S", "")
        return text
    text = "".join(field(part, "document", dict, "part").get("S", "") for part in parts)
    if hashlib.sha256(text.encode()).hexdigest() != field(item, "digest", dict, "item").get("S"):
        raise ContractError(f"item must refer to the parts that were read, got {len(parts)} of another digest")
    return text
