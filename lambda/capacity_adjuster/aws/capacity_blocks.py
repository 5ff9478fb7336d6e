"""Capacity Block of the workers, read from EC2."""

from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from deeplearning_contract.capacity_block import NOT_FOUND, CapacityBlock

_UNKNOWN_ID = "InvalidCapacityReservationId."
"""Begin of EC2's codes for an id that is malformed or not found (EC2 API reference, "Error codes")."""


class BlockReader:
    """Reader of one Capacity Block; `make_client` returns boto3's client, whose model takes seconds to load."""

    def __init__(self, make_client: Callable[[], Any], reservation_id: str) -> None:
        self._make_client = make_client
        self.reservation_id = reservation_id

    def read(self, now: float) -> CapacityBlock:
        """Read the block; raises ClientError and BotoCoreError for a refused call, but not for an unknown id."""
        try:
            answer = self._make_client().describe_capacity_reservations(CapacityReservationIds=[self.reservation_id])
        except ClientError as error:
            if not error.response["Error"]["Code"].startswith(_UNKNOWN_ID):
                raise
            answer = {"CapacityReservations": []}
        found: Mapping[str, Any] = next(iter(answer["CapacityReservations"]), {"State": NOT_FOUND})
        start = found.get("StartDate")
        return CapacityBlock(self.reservation_id, found["State"], int(start.timestamp()) if start else 0, int(now))
