"""Sends a cluster's events to the account's default bus; an event that cannot be sent fails nobody."""

import logging

from deeplearning_agent.telemetry.log_queue import LogQueue
from deeplearning_agent.telemetry.rate_limit import Pace
from deeplearning_contract.cluster_event import put_events_request
from deeplearning_node.aws_clients import AwsClients, describe_aws_error
from deeplearning_node.deadline import Clock

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 10.0
MOST_ATTEMPTS = 20
"""With the pauses between them, half an hour."""
EVENTS_A_CALL = 10
"""EventBridge's limit."""


class EventSender:
    """The way out of a node's events. One thread calls it."""

    def __init__(self, clients: AwsClients, queue: LogQueue, clock: Clock) -> None:
        """Bind it; nothing is called yet."""
        self._clients = clients
        self._queue = queue
        self._retry = Pace(clock, RETRY_SECONDS)

    def send(self) -> None:
        """Send what waits; raises nothing that AWS or the way there can cause."""
        if not self._queue.has_events or (self._retry.failures and not self._retry.begin()):
            return
        events = self._queue.take_events()
        try:
            answer = self._clients.events.put_events(**put_events_request(*events[:EVENTS_A_CALL]))
        except Exception as error:  # noqa: BLE001 - whatever it was, the next attempt must not follow at once
            self._retry.fail()
            if self._retry.failures == 1:
                LOG.warning("events are not sent for now: %s", describe_aws_error(error))
            if self._retry.failures < MOST_ATTEMPTS:
                self._queue.restore_events(events)
            else:
                LOG.warning("gave %d events up: %s", len(events), describe_aws_error(error))
            return
        self._retry.succeed()
        self._queue.restore_events(events[EVENTS_A_CALL:])
        for entry in answer.get("Entries", []):
            if entry.get("ErrorCode"):
                LOG.warning("EventBridge refused an event: %s %s", entry["ErrorCode"], entry.get("ErrorMessage", ""))
