"""Collector of the workers' reports for the master; it needs few calls and ends with the set-up time."""

import logging
from collections.abc import Callable, Iterable

from deeplearning_agent.coordination.queues import POLL_SECONDS, ReportQueue
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_node.aws_clients import AwsClients, call_until
from deeplearning_node.deadline import Deadline
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 2
"""Pause after a batch that was not full, so that the next call receives many reports at once."""
PEEK_SECONDS = 1
MOST_BATCHES = 40
"""Most batches in one round; a flood must not keep the master from probing its workers."""


class ReportCollector:
    """Receiver of the workers' reports."""

    def __init__(self, node: Node, clients: AwsClients, poll_seconds: int = POLL_SECONDS) -> None:
        """Read the reports that an earlier run of the agent kept; nothing is called yet."""
        settings = node.settings
        self.reports = WorkerReports(node)
        self._poll_seconds = poll_seconds
        self._queue = ReportQueue(
            clients, settings.report_queue_url, settings.cluster, settings.report_sender, poll_seconds
        )

    def collect(self, is_done: Callable[[], bool], until: Deadline) -> bool:
        """Receive reports until `is_done`, or a deadline; return whether they are complete."""
        while not is_done():
            if until.is_over:
                self._queue.delete_read()
                return False
            poll_end = until.at_most(self._poll_seconds)
            count = self.receive(poll_end, is_partial_batch_kept=True)
            if count == 0:
                self._queue.delete_read()
                poll_end.pause(self._poll_seconds)
            elif not self._queue.has_more and not is_done():
                until.pause(PAUSE_SECONDS)
        self._queue.delete_read()
        return True

    def receive(self, until: Deadline, *, is_partial_batch_kept: bool = False) -> int:
        """
        Receive the waiting reports; they are deleted from the queue only once they are on disk.

        Only the newest report of each node counts, so a flood from one node delays the others by less than a round.
        Returns the number of authentic reports.
        """
        reports = list(call_until(until.at_least(PEEK_SECONDS), lambda: self._queue.receive(until)))
        for _ in range(MOST_BATCHES - 1):
            if not self._queue.has_more or until.is_over:
                break
            now = until.at_most(0)
            reports += call_until(now.at_least(PEEK_SECONDS), lambda limit=now: self._queue.receive(limit))  # type: ignore[misc]
        for report in newest_of_each(reports):
            self.reports.record(report)
        self._queue.delete_read(is_partial_batch_kept=is_partial_batch_kept)
        return len(reports)


def newest_of_each(reports: Iterable[NodeReport]) -> tuple[NodeReport, ...]:
    """
    Return the newest report of each node, and its highest acknowledgement.

    A node that cannot count its reports numbers each with 0; the last of them counts.
    """
    newest: dict[tuple[str, bool], NodeReport] = {}
    for report in reports:
        is_ready = report.stage is ReportStage.READY
        known = newest.pop((report.instance_id, is_ready), report)
        is_uncounted = not is_ready and report.sequence == 0
        is_newer = report.generation >= known.generation if is_ready else report.sequence >= known.sequence
        newest[report.instance_id, is_ready] = report if is_newer or is_uncounted else known
    return tuple(newest.values())
