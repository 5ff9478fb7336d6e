"""What shows the outside how a node is: threads beside the agent, which neither wait for it nor make it wait."""

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
"""Between two looks whether something is to be shipped; what is urgent is not looked for, it rings."""
END_SECONDS = 4.0
"""What the end of the agent may take to ship its last lines; systemd allows ninety."""


class TelemetryPublisher:
    """Ships a node's log and events, and measures it once a minute."""

    def __init__(self, node: Node, clients: AwsClients, membership: Source | None = None) -> None:
        """Bind the node, and what the master measures of the cluster; nothing runs yet."""
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
        Start to ship the log and to measure.

        Effects: two threads and a handler of the root logger; the end of the process waits for the last lines.
        """
        logging.getLogger().addHandler(self.queue)
        signal.signal(signal.SIGTERM, self._end)
        threading.Thread(target=self._ship, name="ship the log", daemon=True).start()
        threading.Thread(target=self._measure, name="measure", daemon=True).start()

    def close(self, seconds: float = END_SECONDS) -> None:
        """Ship what is left, for a few seconds at most."""
        self._is_ending.set()
        self.queue.has_urgent.set()
        self._has_ended.wait(seconds)

    def step(self, *, is_urgent: bool = False) -> None:
        """Make the calls that are due, whatever comes of them."""
        try:
            self._sender.send()
            self._shipper.ship(is_urgent=is_urgent)
        except Exception:
            LOG.exception("what is logged could not be shipped")

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
        """Let the last lines out, then end as the signal would have."""
        # Not through the other handlers: the signal may have come in the middle of one of them.
        self.queue.handle(LOG.makeRecord(LOG.name, logging.INFO, __file__, 0, "the agent is told to end", (), None))
        self.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
