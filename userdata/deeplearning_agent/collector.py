"""Collects the workers' reports for the master, in few calls and never past the set-up time."""

import logging
from collections.abc import Callable

from deeplearning_agent.aws_clients import AwsClients, call_until
from deeplearning_agent.deadline import Deadline
from deeplearning_agent.node import Node
from deeplearning_agent.queues import BATCH, POLL_SECONDS, ReportQueue
from deeplearning_agent.roster import Roster

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 2
"""Pause after a batch that was not full: the next call then takes many reports at once."""
PEEK_SECONDS = 1


class Collector:
    """The master's ear."""

    def __init__(self, node: Node, clients: AwsClients, poll_seconds: int = POLL_SECONDS) -> None:
        """Read what an earlier run of the agent kept; nothing is called yet."""
        settings = node.settings
        self.roster = Roster(node)
        self._poll_seconds = poll_seconds
        self._queue = ReportQueue(
            clients, settings.report_queue_url, settings.cluster, settings.report_sender, poll_seconds
        )

    def collect(self, is_done: Callable[[], bool], until: Deadline) -> bool:
        """
        Take reports until there are enough.

        Args:
            is_done: Whether the roster has what is waited for.
            until: When to return in any case.

        Returns:
            Whether it has.

        Raises:
            AwsFailure: The queue could not be read.
        """
        while not is_done():
            if until.is_over:
                self._queue.delete_read()
                return False
            poll_end = until.at_most(self._poll_seconds)
            count = self.take(poll_end, is_partial_batch_kept=True)
            if count == 0:
                self._queue.delete_read()
                poll_end.pause(self._poll_seconds)
            elif count < BATCH and not is_done():
                until.pause(PAUSE_SECONDS)
        self._queue.delete_read()
        return True

    def take(self, until: Deadline, *, is_partial_batch_kept: bool = False) -> int:
        """
        Take one batch of reports; they are deleted from the queue only once they are on disk.

        Returns:
            How many there were that could be believed.

        Raises:
            AwsFailure: The queue could not be read.
        """
        reports = call_until(until.at_least(PEEK_SECONDS), lambda: self._queue.receive(until))
        for report in reports:
            self.roster.accept(report)
        self._queue.delete_read(is_partial_batch_kept=is_partial_batch_kept)
        return len(reports)
