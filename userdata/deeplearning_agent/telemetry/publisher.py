"""Publisher of a node's telemetry: threads beside the agent; neither waits for the other."""

import logging
import os
import signal
import threading
from types import FrameType

from deeplearning_agent.telemetry.log_records import LogQueue
from deeplearning_agent.telemetry.log_shipper import EventSender, LogShipper
from deeplearning_agent.telemetry.node_metrics import NodeMetrics, Source
from deeplearning_contract.log_record import Speaker
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Deadline
from deeplearning_node.node import Node
from deeplearning_node.node_facts import installed_generation

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
"""Pause between two checks for lines to ship; an urgent line ends it."""
END_SECONDS = 4.0
"""Limit for shipping the last lines at the end of the agent; systemd allows ninety."""


class TelemetryPublisher:
    """Publisher of a node's log, events and metrics; it measures once a minute."""

    def __init__(self, node: Node, clients: AwsClients, membership: Source | None = None) -> None:
        """Bind the node, and the master's source of cluster metrics; nothing runs yet."""
        settings, name = node.settings, node.identity.instance_id
        speaker = Speaker(settings.cluster, name, settings.role.value)
        self._node = node
        self.queue = LogQueue(speaker, max(0, installed_generation(node)))
        self._shipper = LogShipper(clients, self.queue, settings.log_group, node.clock)
        self._sender = EventSender(clients, self.queue, node.clock)
        self._metrics = NodeMetrics(node, membership)
        self._is_ending = threading.Event()
        self._has_ended = threading.Event()

    def start(self) -> None:
        """
        Start shipping the log and measuring.

        Effects: two threads and a handler of the root logger; the end of the process waits for the last lines.
        """
        logging.getLogger().addHandler(self.queue)
        signal.signal(signal.SIGTERM, self._end)
        threading.Thread(target=self._ship, name="ship the log", daemon=True).start()
        threading.Thread(target=self._measure, name="measure", daemon=True).start()

    def close(self, seconds: float = END_SECONDS) -> None:
        """Ship the remaining lines, for a few seconds at most."""
        self._is_ending.set()
        self.queue.has_urgent.set()
        self._has_ended.wait(seconds)

    def step(self, *, is_urgent: bool = False) -> None:
        """Make the calls that are due; raises nothing."""
        try:
            self._sender.send()
            self._shipper.ship(is_urgent=is_urgent)
        except Exception:
            LOG.exception("could not ship the log")

    def _ship(self) -> None:
        while not self._is_ending.is_set():
            is_urgent = self.queue.has_urgent.wait(LOOK_SECONDS)
            self.queue.has_urgent.clear()
            self.step(is_urgent=is_urgent)
        self._sender.send()
        self._shipper.finish(Deadline.after(self._node.clock, END_SECONDS))
        self._has_ended.set()

    def _measure(self) -> None:
        while not self._is_ending.is_set():
            self._metrics.wait()
            self._metrics.log()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        """Ship the last lines, then end as the signal would have."""
        # Bypass the other handlers: the signal may have interrupted one of them.
        self.queue.handle(LOG.makeRecord(LOG.name, logging.INFO, __file__, 0, "received a signal to end", (), None))
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
