"""
DynamoDB table of the cluster: the state record, and the adjuster's own records.

The latter record the requested capacity, the search among candidates, a shrink, the breaker, stops and the lock of the
deciding invocation. All are read consistently and written by compare-and-set.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar, cast

from botocore.exceptions import ClientError

from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.candidate_search import BLANK_SEARCH, CandidateSearch
from capacity_adjuster.policy.requested_capacity import BLANK_REQUEST, RequestedCapacity
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.cluster_state import TABLE_KEY, ClusterState, get_request, part_requests, put_requests
from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.reason import NO_REASON

logger = logging.getLogger(__name__)
Record = Adjustment | Breaker | StopRecord | RequestedCapacity | CandidateSearch
_Record = TypeVar("_Record", Adjustment, Breaker, StopRecord, RequestedCapacity, CandidateSearch)
_RECORDS: Mapping[type[Record], tuple[str, Record]] = {
    Adjustment: (
        "adjustment",
        Adjustment(0, "", requested=0, before=0, target=0, reason=NO_REASON, processes=(), lease_until=0),
    ),
    Breaker: ("breaker", Breaker(0, "")),
    StopRecord: ("stop", StopRecord()),
    RequestedCapacity: ("request", BLANK_REQUEST),
    CandidateSearch: ("search", BLANK_SEARCH),
}
"""Kind -> end of its item's key, and the record that replaces an unreadable one."""
_DENIALS_APART_SECONDS = 150
"""Longest time between two denials in a row: the timer's are a minute apart, with Lambda's retries in between."""
LOST_RACE_CODE = "ConditionalCheckFailedException"


class StateTable:
    """State record and adjuster's records of one cluster in its DynamoDB table; `client` is boto3's."""

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._client = client
        self._table = table
        self._cluster = cluster

    def read_state(self) -> ClusterState | None:
        """Read the state record; None when there is none."""
        item = self._get(get_request(self._table, self._cluster))
        if not item:
            return None
        return ClusterState.from_item(item, [self._get(request) for request in part_requests(self._table, item)])

    def write_state(self, state: ClusterState) -> bool:
        """Write the state record; return False when another writer was faster."""
        *parts, request = put_requests(self._table, state)
        for part in parts:
            self._client.put_item(**part)
        return self._put(request)

    def read(self, kind: type[_Record]) -> _Record | None:
        """
        Read the record of a kind; None when there is none.

        An unreadable record counts as a blank one of its item's revision, and is written again.
        """
        suffix, blank = _RECORDS[kind]
        key = f"{self._cluster}#{suffix}"
        item = self._get(get_request(self._table, key))
        if not item:
            return None
        try:
            return parse_record(kind, item.get("document", {}).get("S", ""), suffix)
        except ContractError:
            revision = item.get("revision", {}).get("N", "0")
            logger.exception("record %s must be readable, got revision %s; it is replaced", key, revision)
            return cast("_Record", replace(blank, revision=int(revision)))

    def write(self, record: Record) -> bool:
        """Write the next revision of a record; return False when another writer was faster."""
        document = {name: value for name, value in asdict(record).items() if value is not None}
        item = {
            TABLE_KEY: {"S": f"{self._cluster}#{_RECORDS[type(record)][0]}"},
            "revision": {"N": str(record.revision)},
            "document": {"S": json.dumps(document, sort_keys=True)},
        }
        request = {"TableName": self._table, "Item": item, "ExpressionAttributeNames": {"#revision": "revision"}}
        if record.revision == 1:
            return self._put(request | {"ConditionExpression": "attribute_not_exists(#revision)"})
        previous = {":previous": {"N": str(record.revision - 1)}}
        return self._put(
            request | {"ConditionExpression": "#revision = :previous", "ExpressionAttributeValues": previous}
        )

    def acquire_lock(self, now: float, until: float) -> bool:
        """
        Acquire the lock of the deciding invocation until a time; return False while another invocation has it.

        Both times are seconds since the epoch. The lock expires by itself if this invocation dies.
        """
        return self._put(
            self._lock_item(until)
            | {
                "ConditionExpression": "attribute_not_exists(#until) OR #until < :now",
                "ExpressionAttributeNames": {"#until": "until"},
                "ExpressionAttributeValues": {":now": {"N": str(math.floor(now))}},
            }
        )

    def release_lock(self) -> None:
        """Release the lock of the deciding invocation."""
        self._client.put_item(**self._lock_item(0))

    def note_denial(self, now: float) -> float:
        """Record a denied call; return the time of the first denial in a row, in seconds since the epoch."""
        item = self._get(get_request(self._table, f"{self._cluster}#denial"))
        first, last = (float(item.get(name, {}).get("N", 0)) for name in ("first", "last"))
        since = first if now - last <= _DENIALS_APART_SECONDS else now
        times = {"first": {"N": str(since)}, "last": {"N": str(now)}}
        self._client.put_item(TableName=self._table, Item={TABLE_KEY: {"S": f"{self._cluster}#denial"}, **times})
        return since

    def _lock_item(self, until: float) -> dict[str, Any]:
        item = {TABLE_KEY: {"S": f"{self._cluster}#watch"}, "until": {"N": str(math.ceil(until))}}
        return {"TableName": self._table, "Item": item}

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = self._client.get_item(**request).get("Item", {})
        return item

    def _put(self, request: dict[str, Any]) -> bool:
        try:
            self._client.put_item(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] == LOST_RACE_CODE:
                return False
            raise
        return True
