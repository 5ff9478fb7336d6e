"""The queues, as the agent meets them: poison, duplicates, empty polls, refusals and anything at all in a body."""

import json
import random
from types import SimpleNamespace

import documents
import pytest
from fault_proxy import RESET_AFTER, Answer, Fault, die_after, refuse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deeplearning_agent.coordination.queues import (
    POLL_SECONDS,
    NotificationQueue,
    ReportQueue,
    notification_generation,
    send_report,
)
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import ClusterNotification, NodeReport, ReportStage
from deeplearning_contract.reason import MAX_REASON, Reason
from deeplearning_node.aws_clients import AwsFailure, call_for
from deeplearning_node.deadline import Deadline

ROLE = "AROAEXAMPLE"
WORKER = "i-0123456789abcdef1"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey1"
AWS_SECONDS = 300
MIB = 1024 * 1024
EMPTY = Fault(lambda call, answer: Answer(200, (("Content-Type", "application/x-amz-json-1.0"),), b"{}"))


def fill_sender(parsed, **_):
    """Say what moto cannot: who sent a message."""
    for message in parsed.get("Messages", []):
        message.setdefault("Attributes", {})["SenderId"] = f"{ROLE}:{WORKER}"


@pytest.fixture
def url(clients, proxy):
    found = clients.sqs.create_queue(QueueName="queue", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    clients.sqs.meta.events.register("after-call.sqs.ReceiveMessage", fill_sender)
    proxy.clear()
    return found


class Reports(ReportQueue):
    """Both ends of the queue."""

    def __init__(self, clients, url):
        super().__init__(clients, url, "training", ROLE, 0)

    def send(self):
        send_report(self._clients, self._url, joined())

    def notifications(self):
        return NotificationQueue(self._clients, self._url, "training", is_shared=False, poll_seconds=0)


@pytest.fixture
def reports(clients, url):
    return Reports(clients, url)


def joined():
    return NodeReport("training", WORKER, ReportStage.JOINED, member=Member(WORKER, "10.0.0.10", 1, KEY))


def receive_from_fake(body):
    """Return what the agent makes of one message with a body, and the handles that it deletes."""
    deleted = []
    message = {"Body": body, "ReceiptHandle": "r", "Attributes": {"SenderId": f"{ROLE}:{WORKER}"}}
    sqs = SimpleNamespace(
        receive_message=lambda **_: {"Messages": [message]},
        delete_message_batch=lambda **given: deleted.extend(e["ReceiptHandle"] for e in given["Entries"]) or {},
    )
    queue = ReportQueue(SimpleNamespace(sqs=sqs), "url", "training", ROLE, 0)
    found = queue.receive(SimpleNamespace(remaining=0.0))
    queue.delete_read()
    return found, deleted


@pytest.mark.fault(23)
@pytest.mark.defect("D27", "D46")
def test_poison_is_removed_after_one_receipt_and_hides_nobody(clients, reports, url, clock):
    for number in range(25):
        clients.sqs.send_message(QueueUrl=url, MessageBody="poison{" if number % 5 else joined().to_body())
    found, receipts = [], 0
    while len(found) < 5:
        found += reports.receive(Deadline.after(clock, 20))
        reports.delete_read()
        receipts += 1
        assert receipts <= 25
    left = clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    while left["ApproximateNumberOfMessages"] != "0":
        reports.receive(Deadline.after(clock, 20))
        reports.delete_read()
        receipts += 1
        left = clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        assert receipts <= 25
    assert set(found) == {joined()}


@pytest.mark.fault(23, 31)
def test_poison_on_the_broadcast_rings_nobody_and_costs_one_poll_in_twenty_seconds(clients, proxy, url, clock):
    for body in (
        "poison{",
        "[]",
        ClusterNotification("another", 9).to_body(),
        '{"kind":"notification","cluster":"training"}',
    ):
        clients.sqs.send_message(QueueUrl=url, MessageBody=body)
    queue = NotificationQueue(clients, url, "training", is_shared=True, poll_seconds=POLL_SECONDS)
    proxy.inject(EMPTY, "ReceiveMessage", on=(2, 3))
    die_after(clients.sqs.meta.events, 100)  # Whoever spins would never end.
    assert not queue.wait(0, Deadline.after(clock, 600))
    assert proxy.count("ReceiveMessage") <= 600 / POLL_SECONDS + 1
    assert proxy.count("DeleteMessageBatch") == 0, "others read the same rings"


@pytest.mark.fault(29)
@pytest.mark.parametrize("seed", range(5))
def test_a_notification_that_seven_polls_in_ten_miss_is_received(clients, proxy, url, clock, seed):
    chance = random.Random(seed)  # noqa: S311 - the same in every run
    clients.sqs.send_message(QueueUrl=url, MessageBody=ClusterNotification("training", 3).to_body())
    proxy.inject(
        Fault(lambda call, answer: EMPTY.respond(call, None) if chance.random() < 0.7 else answer, has_effect=True),
        "ReceiveMessage",
    )
    queue = NotificationQueue(clients, url, "training", is_shared=True, poll_seconds=POLL_SECONDS)
    assert queue.wait(2, Deadline.after(clock, 600))
    assert proxy.count("ReceiveMessage") < 30


@pytest.mark.fault(30)
def test_a_broadcast_queue_over_its_limit_is_waited_for(clients, proxy, url, clock):
    clients.sqs.send_message(QueueUrl=url, MessageBody=ClusterNotification("training", 3).to_body())
    proxy.inject(refuse("OverLimit", 403), "ReceiveMessage", on=tuple(range(1, 8)))
    queue = NotificationQueue(clients, url, "training", is_shared=True, poll_seconds=POLL_SECONDS)
    assert call_for(clock, AWS_SECONDS, lambda: queue.wait(2, Deadline.after(clock, 60)))


@pytest.mark.fault(17, 41)
def test_a_report_whose_answer_is_lost_is_sent_again_and_counts_once(proxy, reports, clock, machine):
    proxy.inject(RESET_AFTER, "SendMessage", on=(1, 2, 3))
    call_for(clock, AWS_SECONDS, reports.send)
    found = reports.receive(Deadline.after(clock, 20))
    assert found == (joined(),) * 4
    node = machine.node()
    digests = []
    for report in found:
        WorkerReports(node).record(report)
        digests.append({path: path.read_bytes() for path in machine.root.rglob("*.json")})
    assert digests[0]
    assert all(digest == digests[0] for digest in digests)


@pytest.mark.fault(39, 41)
@pytest.mark.parametrize("fault", [refuse("RequestThrottled"), refuse("InternalFailure", 500), RESET_AFTER])
def test_reports_that_cannot_be_read_for_a_while_are_read_later(proxy, reports, clock, fault):
    reports.send()
    proxy.inject(fault, "ReceiveMessage", on=(1, 2, 3, 4, 5))
    assert joined() in call_for(clock, AWS_SECONDS, lambda: reports.receive(Deadline.after(clock, 20)))


@pytest.mark.fault(23, 39)
@pytest.mark.parametrize("fault", [refuse("RequestThrottled"), refuse("InternalFailure", 500)])
def test_a_deletion_that_fails_ends_nothing_and_the_message_comes_back(proxy, reports, clock, fault):
    reports.send()
    proxy.inject(fault, "DeleteMessageBatch")
    assert reports.receive(Deadline.after(clock, 20)) == (joined(),)
    reports.delete_read()
    proxy.clear()
    assert reports.receive(Deadline.after(clock, 20)) == (joined(),)


OVERSIZED = {
    "text": "x" * MIB,
    "nesting": "[" * MIB,
    "objects": '{"a":' * (MIB // 5),
    "number": '{"kind":"report","generation":' + "9" * (MIB // 2) + "}",
    "reason": NodeReport("training", WORKER, ReportStage.FAILED, reason=Reason("r"))
    .to_body()
    .replace('"r"', f'"{"r" * MIB}"'),
    "list": json.dumps({"kind": "report", "member": [0] * (MIB // 3)}),
}


@pytest.mark.fault(22, 23, 28)
@pytest.mark.parametrize("body", OVERSIZED.values(), ids=OVERSIZED)
def test_a_body_of_a_mebibyte_is_dropped_or_cut_and_its_log_stays_short(body, caplog):
    found, deleted = receive_from_fake(body)
    assert deleted == ["r"]
    assert all(len(str(report.reason)) <= MAX_REASON for report in found)
    assert all(len(record.getMessage()) < 2000 for record in caplog.records)
    assert notification_generation(body, "training") == -1


@pytest.mark.fault(22)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_report_with_one_wrong_place_is_dropped_or_is_still_a_report(data):
    body = json.dumps(data.draw(documents.nearly(documents.reports.map(lambda report: json.loads(report.to_body())))))
    found, deleted = receive_from_fake(body)
    assert deleted == ["r"]
    assert all(report.cluster == "training" and report.instance_id == WORKER for report in found)
    assert notification_generation(body, "training") == -1


@pytest.mark.fault(22)
@settings(max_examples=100, deadline=None)
@given(st.one_of(st.text(max_size=200), documents.json_values.map(json.dumps)))
def test_any_text_at_all_is_neither_a_report_nor_a_ring_and_ends_nothing(body):
    assert receive_from_fake(body) == ((), ["r"])
    assert notification_generation(body, "training") == -1


HARMFUL = ("\ud800", "\udfff", "\0", "\x07", "\r", "\x1b", "\x7f", "\x85", "\u202e", "\ufffe")
"""
Halves of surrogate pairs, control characters, and others that a terminal obeys.

Those outside of XML's characters are refused with InvalidMessageContents: Amazon SQS API Reference, SendMessage.
"""


@pytest.mark.fault(22)
@pytest.mark.parametrize("stage", [ReportStage.FAILED, ReportStage.LEAVING])
@pytest.mark.parametrize("text", ["cause", "remedy", "output"])
def test_harmful_characters_in_a_reason_become_spaces_before_the_master_keeps_it(machine, stage, text):
    told = NodeReport("training", WORKER, stage, reason=Reason("disk full"))
    harmful = {"cause": "disk full", text: f"disk\t1\n{'-'.join(HARMFUL)} é漢🙂"}
    body = json.dumps(json.loads(told.to_body()) | {"reason": harmful})
    (report,), _ = receive_from_fake(body)
    assert getattr(report.reason, text) == f"disk\t1\n{'-'.join(' ' for _ in HARMFUL)} é漢🙂"
    WorkerReports(machine.node()).record(report)
    kept = WorkerReports(machine.node())
    assert kept.is_leaving(WORKER) == (stage is ReportStage.LEAVING)
    assert str(kept.reason(WORKER)).encode()
    assert not set(HARMFUL) & set(str(kept.reason(WORKER)))


@pytest.mark.fault(22)
@pytest.mark.parametrize("name", ["cluster", "instance_id"])
def test_a_name_with_harmful_characters_is_no_name_of_the_cluster_and_is_logged_without_them(name, caplog):
    told = json.loads(joined().to_body())
    for character in HARMFUL:
        body = json.dumps(told | {name: f"{told[name]}{character}"})
        assert receive_from_fake(body) == ((), ["r"])
    assert not set(HARMFUL) & set(caplog.text)
    assert len(caplog.records) == len(HARMFUL)


@pytest.mark.fault(42)
@pytest.mark.parametrize("operation", ["ReceiveMessage", "SendMessage"])
def test_a_queue_that_is_closed_to_the_node_is_named_with_the_action(proxy, reports, clock, operation):
    reports.send()
    proxy.inject(refuse("AccessDenied", 403), operation)

    def use():
        reports.send()
        return reports.notifications().wait(0, Deadline.after(clock, 5))

    with pytest.raises(AwsFailure, match=f"{operation} operation") as raised:
        call_for(clock, 3000, use)
    assert raised.value.is_denied
