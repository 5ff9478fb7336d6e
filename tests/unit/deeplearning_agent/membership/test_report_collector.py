"""The master's collection of reports: how it waits, when it asks the queue again, and what it deletes."""

from types import SimpleNamespace

import pytest
from model_settings import CLUSTER, ROLE_IDS
from rule_checks import Bench, name

from deeplearning_agent.membership.report_collector import PAUSE_SECONDS, ReportCollector, newest_of_each
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

POLL_SECONDS = 7


class Queue:
    """SQS, as far as the master calls it: each poll has the next batch of reports, or waits in vain."""

    def __init__(self, clock, *batches):
        self.clock = clock
        self.batches = list(batches)
        self.calls = []

    def receive_message(self, *, WaitTimeSeconds, **_request):  # noqa: N803 - boto3's name
        batch = self.batches.pop(0) if self.batches else []
        self.clock.now += 0 if batch else WaitTimeSeconds
        self.calls.append(WaitTimeSeconds)
        return {"Messages": [self._message(number) for number in batch]}

    def delete_message_batch(self, *, Entries, **_request):  # noqa: N803 - boto3's name
        self.calls.append(f"delete {len(Entries)}")
        return {}

    def _message(self, number):
        report = NodeReport(CLUSTER, name(number), ReportStage.FAILED, sequence=1, reason=Reason("broken"))
        sender = f"{ROLE_IDS[NodeRole.WORKER]}:{name(number)}"
        return {"Body": report.to_body(), "Attributes": {"SenderId": sender}, "MessageId": "m", "ReceiptHandle": "r"}


@pytest.fixture
def bench():
    return Bench(workers=0)


def collect(bench, *batches, count, seconds=60):
    """Collect until so many workers have reported, or so much time is over; return the result and the calls."""
    queue = Queue(bench.clock, *batches)
    collector = ReportCollector(bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    began = bench.clock.now
    is_done = collector.collect(lambda: len(collector.reports.failed()) >= count, bench.node.limit(seconds))
    return is_done, queue.calls, bench.clock.now - began


def test_what_is_complete_asks_nobody(bench):
    assert collect(bench, count=0) == (True, [], 0)


def test_reports_are_collected_until_they_are_complete_and_deleted_once(bench):
    taken = collect(bench, [1], [2], count=2)
    assert taken == (True, [POLL_SECONDS, POLL_SECONDS, "delete 2"], PAUSE_SECONDS)


def test_the_deadline_ends_a_collection_that_is_not_complete(bench):
    assert collect(bench, [1], count=2, seconds=0) == (False, [], 0)
    assert collect(bench, count=2, seconds=10) == (False, [7, 3], 10)
    assert collect(bench, [1], count=2, seconds=5) == (False, [5, 3, "delete 1"], 5)


def test_what_is_read_is_deleted_once_nobody_reports_any_more(bench):
    assert collect(bench, [1], count=2, seconds=16) == (False, [7, 7, "delete 1", 7], 16)


def test_a_poll_that_ends_early_is_not_followed_by_the_next_at_once(bench):
    queue = Queue(bench.clock)
    queue.receive_message = lambda **_: queue.calls.append("receive") or {}
    collector = ReportCollector(bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert not collector.collect(lambda: False, bench.node.limit(2 * POLL_SECONDS))
    assert queue.calls == ["receive"] * 2


def test_full_batches_are_followed_by_the_next_without_waiting(bench):
    batches = [range(10 * batch, 10 * batch + 10) for batch in range(3)]
    assert collect(bench, *batches, [30], count=31) == (True, [7, 0, 0, 0, *["delete 10"] * 3, "delete 1"], 0)


def test_a_round_has_forty_batches_at_most(bench):
    queue = Queue(bench.clock, *[range(10)] * 50)
    collector = ReportCollector(bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert collector.receive(bench.node.limit(60)) == 400
    assert queue.calls == [7, *[0] * 39, *["delete 10"] * 40]


def test_a_round_ends_at_its_deadline(bench):
    queue = Queue(bench.clock, range(10), range(10))
    collector = ReportCollector(bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert collector.receive(bench.node.limit(0)) == 10
    assert queue.calls == [0, "delete 10"]


@pytest.mark.parametrize(
    ("sequences", "newest"),
    [((1, 2), 1), ((2, 1), 0), ((2, 2), 1), ((5, 0), 1), ((0, 0), 1), ((0, 5), 1), ((3, 1, 2), 0)],
)
def test_the_newest_report_of_a_node_counts_and_the_last_of_those_without_a_number(sequences, newest):
    causes = [Reason(f"cause {index}") for index in range(len(sequences))]
    reports = [
        NodeReport(CLUSTER, name(1), ReportStage.FAILED, sequence=sequence, reason=cause)
        for sequence, cause in zip(sequences, causes, strict=True)
    ]
    assert newest_of_each(reports) == (reports[newest],)


@pytest.mark.parametrize(("generations", "highest"), [((1, 2), 1), ((2, 1), 0), ((2, 0), 0), ((3, 3), 1)])
def test_the_highest_acknowledgement_counts_beside_the_newest_report(generations, highest):
    reports = [
        NodeReport(CLUSTER, name(1), ReportStage.READY, generation=generation, sequence=sequence)
        for sequence, generation in enumerate(generations)
    ]
    failed = NodeReport(CLUSTER, name(1), ReportStage.FAILED, sequence=1, reason=Reason("broken"))
    other = NodeReport(CLUSTER, name(2), ReportStage.FAILED, sequence=1, reason=Reason("broken"))
    assert newest_of_each([failed, reports[0], other, reports[1]]) == (failed, other, reports[highest])
