"""Reports of the workers: their order, the addresses that they claim, and how the master collects them."""

from types import SimpleNamespace

import pytest
from membership_bench import Bench, member, name
from model_settings import CLUSTER, ROLE_IDS

from deeplearning_agent.membership.report_collector import PAUSE_SECONDS, ReportCollector, newest_of_each
from deeplearning_agent.membership.worker_reports import AddressCheck
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason

POLL_SECONDS = 7


@pytest.fixture
def empty_bench():
    """A master that nobody reported to."""
    return Bench(workers=0)


# --- Reports ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_repeated_report_changes_nothing(empty_bench, sequence):
    empty_bench.join(1, sequence=sequence)
    empty_bench.reports.forget(name(1))
    empty_bench.join(1, sequence=sequence)
    assert empty_bench.reports.member(name(1)) is None


@pytest.mark.parametrize(
    ("reports", "cause"),
    [([(5, "the disk is full"), (4, "an older cause")], "the disk is full"), ([(0, "no space")], "no space")],
    ids=["an older report changes nothing", "a node that cannot count is believed"],
)
def test_the_reason_is_that_of_the_newest_report(bench, reports, cause):
    for sequence, told in reports:
        bench.fail(1, reason=Reason(told), sequence=sequence)
    assert bench.reports.reason(name(1)).cause == cause


def test_an_acknowledgement_never_falls(bench):
    bench.acknowledge(1, generation=5)
    bench.acknowledge(1, generation=4)
    assert bench.reports.is_ready(name(1), 5)
    assert not bench.reports.is_ready(name(1), 6)


def test_a_worker_that_joins_again_has_no_reason_any_more(bench):
    bench.leave(1, NO_REASON)
    assert bench.reports.reason(name(1)) == Reason("leaving")
    bench.join(1, sequence=3)
    for _ in range(2):
        assert (bench.reports.reason(name(1)), bench.reports.is_leaving(name(1))) == (NO_REASON, False)
        assert member(1) in bench.reports.joined()
        bench.restart()


def test_a_restart_forgets_no_report(bench):
    bench.fail(1)
    bench.restart()
    assert bench.reports.reason(name(1)).cause == "broken"
    bench.join(1, sequence=2)
    assert bench.reports.reason(name(1)).cause == "broken"


def test_a_leaving_worker_has_not_failed(bench):
    bench.leave(1)
    assert bench.reports.failed() == ()
    assert bench.reports.joined() == (member(2),)


def test_workers_are_in_the_order_in_which_they_joined_first(empty_bench):
    for number, sequence in ((3, 1), (1, 1), (2, 1), (3, 2)):
        empty_bench.join(number, sequence=sequence)
    assert empty_bench.reports.joined() == (member(3), member(1), member(2))


@pytest.mark.parametrize(("number", "other", "is_after"), [(1, 2, False), (1, 8, True), (8, 1, False), (8, 9, False)])
def test_an_unknown_worker_joined_before_all_others(bench, number, other, is_after):
    assert bench.reports.has_joined_after(name(number), name(other)) is is_after


def test_workers_that_are_not_expected_are_forgotten_unless_they_failed():
    bench = Bench(workers=3)
    bench.fail(3)
    bench.reports.forget_others([name(1)])
    assert bench.reports.joined() == (member(1),)
    assert bench.reports.failed() == (name(3),)


def test_a_worker_is_described_by_its_last_report(bench):
    bench.acknowledge(1)
    bench.fail(3, 4)
    assert [bench.reports.describe(name(number)) for number in (1, 2, 3, 5)] == [
        f"{name(1)} (10.0.0.11) acknowledged generation 1",
        f"{name(2)} (10.0.0.12) joined and acknowledged no generation",
        f"{name(3)} failed: broken",
        f"{name(5)} never reported",
    ]
    assert bench.reports.describe_failures() == f"; {name(3)} failed: broken; {name(4)} failed: broken"


def test_a_report_is_private_and_not_written_again_when_it_is_known(bench):
    bench.acknowledge(1)
    file = bench.node.instance_file("reports") / f"{name(1)}.json"
    before = file.stat()
    bench.acknowledge(1)
    assert file.stat().st_ino == before.st_ino
    assert before.st_mode & 0o777 == 0o600


# --- Addresses ----------------------------------------------------------------------------------------


@pytest.fixture
def contested(empty_bench):
    """Return a function in which two workers claim one address, and one of them, or none, has the key there."""

    def contest(holder, before=lambda _bench: None):
        empty_bench.join(1)
        before(empty_bench)
        empty_bench.keys["10.0.0.11"] = member(holder).host_key
        empty_bench.join(2, address="10.0.0.11")
        return empty_bench.reports

    return contest


def test_the_second_of_two_claimants_has_the_address_when_its_key_is_there(contested):
    reports = contested(holder=2)
    assert reports.member(name(2)) == member(2, address="10.0.0.11")
    assert reports.member(name(1)) is None
    assert reports.has_joined_after(name(2), name(1))


def test_the_first_of_two_claimants_keeps_the_address_while_its_key_is_there(contested):
    reports = contested(holder=1)
    assert reports.member(name(1)) == member(1)
    assert "which belongs to another node" in reports.reason(name(2)).cause


def test_a_refuted_claimant_remains_failed_when_it_had_failed(contested):
    assert contested(holder=2, before=lambda bench: bench.fail(1)).failed() == (name(1),)


def test_a_refuted_claimant_has_acknowledged_nothing_and_joins_last_when_it_returns(bench):
    bench.acknowledge(1)
    bench.keys["10.0.0.11"] = member(3).host_key
    bench.join(3, address="10.0.0.11")
    assert not bench.reports.is_ready(name(1), 1)
    bench.join(1, sequence=2, address="10.0.0.99")
    assert [m.instance_id for m in bench.reports.joined()] == [name(2), name(3), name(1)]


def test_the_masters_address_is_its_own(empty_bench):
    empty_bench.keys["10.0.0.10"] = member(1).host_key
    empty_bench.join(1, address="10.0.0.10")
    assert empty_bench.reports.member(name(1)) is None


def test_a_worker_with_an_address_outside_of_the_vpc_has_failed_even_if_it_was_leaving(bench):
    bench.leave(1)
    bench.join(1, sequence=3, address="10.1.0.1")
    assert "which is not in the VPC (10.0.0.0/16)" in bench.reports.reason(name(1)).cause
    assert bench.reports.member(name(1)) is None
    for _ in range(2):
        assert bench.reports.failed() == (name(1),)
        bench.restart()


def test_an_address_is_lost_when_another_key_is_there_and_a_check_is_cached_for_a_minute(bench):
    assert not bench.reports.has_lost_address(member(1))
    bench.clock.now += 61
    bench.keys["10.0.0.11"] = member(2).host_key
    assert bench.reports.has_lost_address(member(1))
    assert not bench.reports.has_lost_address(member(1, address="10.0.0.99")), "another claim waits for a minute"


def test_an_address_is_scanned_once_a_minute_for_each_node(empty_bench):
    check = AddressCheck(empty_bench.node)
    for number in range(11, 14):
        check.verify(member(1, address=f"10.0.0.{number}"))
    assert empty_bench.scans == 1
    empty_bench.clock.now += 61
    check.verify(member(1))
    assert empty_bench.scans == 2


# --- Collection ---------------------------------------------------------------------------------------


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


def collect(bench, *batches, count, seconds=60):
    """Collect until so many workers have reported, or so much time is over; return the result and the calls."""
    queue = Queue(bench.clock, *batches)
    collector = ReportCollector(bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    began = bench.clock.now
    is_done = collector.collect(lambda: len(collector.reports.failed()) >= count, bench.node.limit(seconds))
    return is_done, queue.calls, bench.clock.now - began


@pytest.mark.parametrize(
    ("batches", "count", "seconds", "result"),
    [
        ([], 0, 60, (True, [], 0)),
        ([[1], [2]], 2, 60, (True, [POLL_SECONDS, POLL_SECONDS, "delete 2"], PAUSE_SECONDS)),
        ([[1]], 2, 0, (False, [], 0)),
        ([], 2, 10, (False, [7, 3], 10)),
        ([[1]], 2, 5, (False, [5, 3, "delete 1"], 5)),
        ([[1]], 2, 16, (False, [7, 7, "delete 1", 7], 16)),
        (
            [*(range(ten, ten + 10) for ten in (0, 10, 20)), [30]],
            31,
            60,
            (True, [7, 0, 0, 0, *3 * ["delete 10"], "delete 1"], 0),
        ),
    ],
    ids=[
        "a complete collection polls nothing",
        "reports are collected until they are complete and deleted once",
        "no poll begins after the deadline",
        "the deadline shortens the last poll",
        "the deadline ends a collection that is not complete",
        "reports are deleted at the first empty poll",
        "full batches are followed by the next without waiting",
    ],
)
def test_reports_are_collected_until_they_are_complete_or_the_deadline(empty_bench, batches, count, seconds, result):
    assert collect(empty_bench, *batches, count=count, seconds=seconds) == result


def test_a_poll_that_ends_early_is_not_followed_by_the_next_at_once(empty_bench):
    queue = Queue(empty_bench.clock)
    queue.receive_message = lambda **_: queue.calls.append("receive") or {}
    collector = ReportCollector(empty_bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert not collector.collect(lambda: False, empty_bench.node.limit(2 * POLL_SECONDS))
    assert queue.calls == ["receive"] * 2


def test_a_round_has_forty_batches_at_most(empty_bench):
    queue = Queue(empty_bench.clock, *[range(10)] * 50)
    collector = ReportCollector(empty_bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert collector.receive(empty_bench.node.limit(60)) == 400
    assert queue.calls == [7, *[0] * 39, *["delete 10"] * 40]


def test_a_round_ends_at_its_deadline(empty_bench):
    queue = Queue(empty_bench.clock, range(10), range(10))
    collector = ReportCollector(empty_bench.node, SimpleNamespace(sqs=queue), POLL_SECONDS)
    assert collector.receive(empty_bench.node.limit(0)) == 10
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
