"""Collects the workers' reports for the master, in few calls and never past the set-up time."""

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
"""Pause after a batch that was not full: the next call then takes many reports at once."""
PEEK_SECONDS = 1
MOST_BATCHES = 40
"""In one round; a flood must not keep the master from looking at its workers."""


class ReportCollector:
    """Receiver of the workers' reports."""

    def __init__(self, node: Node, clients: AwsClients, poll_seconds: int = POLL_SECONDS) -> None:
        """Read what an earlier run of the agent kept; nothing is called yet."""
        settings = node.settings
        self.reports = WorkerReports(node)
        self._poll_seconds = poll_seconds
        self._queue = ReportQueue(
            clients, settings.report_queue_url, settings.cluster, settings.report_sender, poll_seconds
        )

    def collect(self, is_done: Callable[[], bool], until: Deadline) -> bool:
        """Receive reports until there are enough, or a deadline; return whether there are."""
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
        Receive the reports that are there; they are deleted from the queue only once they are on disk.

        However many one node sends, it costs the others a part of one round: of each node only the newest counts.
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
    Return what counts of many reports: of each node the newest, and its highest acknowledgement.

    A node that cannot count its reports has 0 as the number of each; of them the last counts.
    """
    newest: dict[tuple[str, bool], NodeReport] = {}
    for report in reports:
        is_ready = report.stage is ReportStage.READY
        known = newest.pop((report.instance_id, is_ready), report)
        is_uncounted = not is_ready and report.sequence == 0
        is_newer = report.generation >= known.generation if is_ready else report.sequence >= known.sequence
        newest[report.instance_id, is_ready] = report if is_newer or is_uncounted else known
    return tuple(newest.values())
