"""Collects the workers' reports for the master, in few calls and never past the set-up time."""

import logging
from collections.abc import Callable, Sequence

from deeplearning_agent.aws_clients import AwsClients, call_until
from deeplearning_agent.deadline import Deadline
from deeplearning_agent.failure import StageFailure
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

    def collect(
        self, workers: Sequence[str], has_reported: Callable[[str], bool], until: Deadline, expected: tuple[str, ...]
    ) -> bool:
        """
        Take reports until every worker has reported.

        Args:
            workers: The workers that are waited for.
            has_reported: Whether the roster has what is wanted of a worker.
            until: When to return in any case.
            expected: The instances that count, master included.

        Returns:
            Whether all have reported.

        Raises:
            ReportedFailure: A worker that counts failed.
            AwsFailure: The queue could not be read.
        """
        while not all(map(has_reported, workers)):
            if until.is_over:
                self._queue.delete_read()
                return False
            poll_end = until.at_most(self._poll_seconds)
            count = self.take(expected, poll_end, is_partial_batch_kept=True)
            if count == 0:
                self._queue.delete_read()
                poll_end.pause(self._poll_seconds)
            elif count < BATCH and not all(map(has_reported, workers)):
                until.pause(PAUSE_SECONDS)
        self._queue.delete_read()
        return True

    def take(self, expected: tuple[str, ...], until: Deadline, *, is_partial_batch_kept: bool = False) -> int:
        """
        Take one batch of reports; they are deleted from the queue only once they are on disk.

        Returns:
            How many there were that could be believed.

        Raises:
            ReportedFailure: A worker that counts failed.
            AwsFailure: The queue could not be read.
        """
        reports = call_until(until.at_least(PEEK_SECONDS), lambda: self._queue.receive(until))
        try:
            for report in reports:
                self.roster.accept(report, expected)
        finally:
            self._queue.delete_read(is_partial_batch_kept=is_partial_batch_kept)
        return len(reports)

    def time_out(self, workers: Sequence[str], has_reported: Callable[[str], bool], seconds: int) -> StageFailure:
        """Return the failure that names the workers for which the time was not enough."""
        late = [worker for worker in workers if not has_reported(worker)]
        return StageFailure(
            f"the set-up time of {seconds} s is over and {len(late)} of {len(workers)} workers are missing: "
            + ", ".join(map(self.roster.describe, late)),
            "read the agent's log on them, or allow more time",
            stage="form the cluster",
        )
