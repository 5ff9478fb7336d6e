"""The DynamoDB edge: the state item, read consistently and written by compare-and-set."""

from typing import Any

from botocore.exceptions import ClientError

from deeplearning_contract.cluster_state import ClusterState, get_request, part_requests, put_requests
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.aws_errors import error_code

LOST_RACE_CODE = "ConditionalCheckFailedException"


class StateStore:
    """The state item of one cluster."""

    def __init__(self, clients: AwsClients, table: str, cluster: str) -> None:
        """Remember where the item lies; nothing is called yet."""
        self._clients = clients
        self._table = table
        self._cluster = cluster

    def read(self) -> ClusterState | None:
        """Read the state record; None before there is one. ContractError for one of another shape."""
        item = self._get(get_request(self._table, self._cluster))
        if not item:
            return None
        return ClusterState.from_item(item, [self._get(request) for request in part_requests(self._table, item)])

    def write(self, state: ClusterState) -> bool:
        """
        Write the next revision; return False when another writer was faster, so that the caller reads and decides
        again.

        A write whose response was lost is repeated and finds itself in the table: that counts as written.
        """
        *parts, last = put_requests(self._table, state)
        for request in parts:
            self._clients.dynamodb.put_item(**request)
        try:
            self._clients.dynamodb.put_item(**last, ReturnValuesOnConditionCheckFailure="ALL_OLD")
        except ClientError as error:
            if error_code(error) == LOST_RACE_CODE:
                return bool(error.response.get("Item") == last["Item"])
            raise
        return True

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = self._clients.dynamodb.get_item(**request).get("Item", {})
        return item
