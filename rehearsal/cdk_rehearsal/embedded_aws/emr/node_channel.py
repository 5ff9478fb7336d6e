"""
Channels between EMR and the instance controllers of its nodes.

EMR's own protocol is public nowhere. Here a node asks for its orders by a URL with a secret that its user data names,
and reports there what came of them.
"""

import json
import queue
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

CHANNEL_PREFIX = "/emr-instance-controller/"
_POLL_SECONDS = 20.0
_OK, _NOT_FOUND = 200, 404
Message = Mapping[str, Any]


class Receiver(Protocol):
    """Receiver of the reports of nodes."""

    def take_report(self, instance_id: str, report: Message) -> None:
        """Take a report of a node."""

    def list_running_nodes(self, instance_id: str) -> list[str]:
        """Return the private DNS names of the nodes that YARN of a node's cluster runs containers on."""


class NodeChannels:
    """The open channels, one a node; a closed one answers 404."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self._paths: dict[str, str] = {}
        self._orders: dict[str, queue.SimpleQueue[Message]] = {}

    def open(self, instance_id: str, path: str) -> None:
        """Open the channel of a node at a path of `make_path`."""
        self._orders[instance_id] = queue.SimpleQueue()
        self._paths[path] = instance_id

    def close(self, instance_id: str) -> None:
        """Close the channel of a node."""
        self._paths = {path: owner for path, owner in self._paths.items() if owner != instance_id}
        if orders := self._orders.pop(instance_id, None):
            orders.put({"do": "stop"})

    def send(self, instance_id: str, order: Message) -> None:
        """Send an order to a node; a node that is gone gets none."""
        if orders := self._orders.get(instance_id):
            orders.put(order)

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return HTTP status and body for a request of a node; one for orders waits until there is one."""
        channel, _, verb = path.rpartition("/")
        instance_id = self._paths.get(channel, "")
        if not instance_id or self.receiver is None:
            return _NOT_FOUND, b""
        if verb == "report":
            self.receiver.take_report(instance_id, json.loads(body))
            return _OK, b"[]"
        if verb == "nodes":
            return _OK, json.dumps(self.receiver.list_running_nodes(instance_id)).encode()
        try:
            return _OK, json.dumps([self._orders[instance_id].get(timeout=_POLL_SECONDS)]).encode()
        except (queue.Empty, KeyError):
            return _OK, b"[]"


def make_path() -> str:
    """Make up the path of a channel."""
    return CHANNEL_PREFIX + secrets.token_urlsafe(24)
