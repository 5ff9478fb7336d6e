"""
The DynamoDB edge: the state item, and beside it items of the adjuster's own.

They record what the stack asks for, a shrink, the breaker, stops and which invocation looks closely. All are read
consistently and written by compare-and-set.
"""

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.requested_capacity import BLANK_WISH, Wish
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_record import StopRecord
from deeplearning_contract.cluster_state import TABLE_KEY, ClusterState, get_request, part_requests, put_requests
from deeplearning_contract.document import ContractError

logger = logging.getLogger(__name__)
_Record = TypeVar("_Record", Adjustment, Breaker, StopRecord, Wish)
_DENIALS_APART_SECONDS = 150
"""Denials that the timer meets are a minute apart; Lambda's retries come in between."""
LOST_RACE_CODE = "ConditionalCheckFailedException"


class ClusterRecords:
    """
    The records of one cluster.

    Args:
        client: boto3's DynamoDB client.
        table: The table that holds the state item.
        cluster: The cluster's name.
    """

    def __init__(self, client: Any, table: str, cluster: str) -> None:
        self._client = client
        self._table = table
        self._cluster = cluster
        self._adjustment_key = f"{cluster}#adjustment"
        self._breaker_key = f"{cluster}#breaker"
        self._stop_key = f"{cluster}#stop"
        self._wish_key = f"{cluster}#wish"
        self._watch_key = f"{cluster}#watch"
        self._denial_key = f"{cluster}#denial"

    def read_state(self) -> ClusterState | None:
        """Read the state item; None when there is none."""
        item = self._get(get_request(self._table, self._cluster))
        if not item:
            return None
        return ClusterState.from_item(item, [self._get(request) for request in part_requests(self._table, item)])

    def write_state(self, state: ClusterState) -> bool:
        """Write the state item, and tell whether no other writer was faster."""
        *parts, request = put_requests(self._table, state)
        for part in parts:
            self._client.put_item(**part)
        return self._put(request)

    def read_adjustment(self) -> Adjustment | None:
        """Read the record of the last shrink; None when there is none."""
        blank = Adjustment(0, "", requested=0, before=0, target=0, reason="", processes=(), lease_until=0)
        return self._read_record(self._adjustment_key, Adjustment.from_json, blank)

    def write_adjustment(self, adjustment: Adjustment) -> bool:
        """Write the record of a shrink, and tell whether no other writer was faster."""
        return self._put_record(self._adjustment_key, adjustment.revision, adjustment.to_document())

    def read_breaker(self) -> Breaker | None:
        """Read the breaker's record; None when there is none."""
        return self._read_record(self._breaker_key, Breaker.from_json, Breaker(0, ""))

    def write_breaker(self, breaker: Breaker) -> bool:
        """Write the breaker's record, and tell whether no other writer was faster."""
        return self._put_record(self._breaker_key, breaker.revision, breaker.to_document())

    def read_stop(self) -> StopRecord | None:
        """Read the record of stops; None when there is none."""
        return self._read_record(self._stop_key, StopRecord.from_json, StopRecord())

    def write_stop(self, record: StopRecord) -> bool:
        """Write the record of stops, and tell whether no other writer was faster."""
        return self._put_record(self._stop_key, record.revision, record.to_document())

    def read_wish(self) -> Wish | None:
        """Read the record of what capacity the stack asks for; None when there is none."""
        return self._read_record(self._wish_key, Wish.from_json, BLANK_WISH)

    def write_wish(self, wish: Wish) -> bool:
        """Write the record of what capacity the stack asks for, and tell whether no other writer was faster."""
        return self._put_record(self._wish_key, wish.revision, wish.to_document())

    def begin_watch(self, now: float, until: float) -> bool:
        """
        Become the one invocation that looks closely, and tell whether no other one is.

        Args:
            now: Seconds since the epoch.
            until: When the watch ends by itself, should this invocation die; the same.
        """
        return self._put(
            self._watch_item(until)
            | {
                "ConditionExpression": "attribute_not_exists(#until) OR #until < :now",
                "ExpressionAttributeNames": {"#until": "until"},
                "ExpressionAttributeValues": {":now": {"N": str(math.floor(now))}},
            }
        )

    def end_watch(self) -> None:
        """Let another invocation look closely."""
        self._client.put_item(**self._watch_item(0))

    def note_denial(self, now: float) -> float:
        """
        Remember that a call was denied, and tell when the denials began of which this is one.

        Args:
            now: Seconds since the epoch.
        """
        item = self._get(get_request(self._table, self._denial_key))
        first, last = (float(item.get(name, {}).get("N", 0)) for name in ("first", "last"))
        since = first if now - last <= _DENIALS_APART_SECONDS else now
        times = {"first": {"N": str(since)}, "last": {"N": str(now)}}
        self._client.put_item(TableName=self._table, Item={TABLE_KEY: {"S": self._denial_key}, **times})
        return since

    def _watch_item(self, until: float) -> dict[str, Any]:
        item = {TABLE_KEY: {"S": self._watch_key}, "until": {"N": str(math.ceil(until))}}
        return {"TableName": self._table, "Item": item}

    def _read_record(self, key: str, read: Callable[[str], _Record], blank: _Record) -> _Record | None:
        """Read a record; a blank one of the item's revision where it says what no version of ours writes."""
        item = self._get(get_request(self._table, key))
        if not item:
            return None
        try:
            return read(item.get("document", {}).get("S", ""))
        except ContractError:
            revision = item.get("revision", {}).get("N", "0")
            logger.exception("record %s must be readable, got revision %s; it is written anew", key, revision)
            return replace(blank, revision=int(revision))

    def _put_record(self, key: str, revision: int, document: dict[str, Any]) -> bool:
        item = {
            TABLE_KEY: {"S": key},
            "revision": {"N": str(revision)},
            "document": {"S": json.dumps(document, sort_keys=True)},
        }
        request = {"TableName": self._table, "Item": item, "ExpressionAttributeNames": {"#revision": "revision"}}
        if revision == 1:
            return self._put(request | {"ConditionExpression": "attribute_not_exists(#revision)"})
        previous = {":previous": {"N": str(revision - 1)}}
        condition = {"ConditionExpression": "#revision = :previous", "ExpressionAttributeValues": previous}
        return self._put(request | condition)

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
