"""Deadlines and queues when the other side misbehaves."""

import json
import logging

import pytest

from deeplearning_agent.coordination.queues import NotificationQueue, ReportQueue, is_sent_by, notification_generation
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import ClusterNotification, NodeReport, ReportStage
from deeplearning_node.deadline import Deadline, setup_deadline

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey1"


def joined(lab, index, address="10.0.0.50"):
    member = Member(lab.instance(index), address, 1, KEY)
    return NodeReport("master-of-names", lab.instance(index), ReportStage.JOINED, member=member)


# --- Deadlines --------------------------------------------------------------------------------------


@pytest.mark.defect("D22")
def test_waiting_ends_at_the_deadline_and_not_before(ticking_clock):
    clock = ticking_clock()
    deadline = Deadline.after(clock, 600)
    began = clock.now
    attempts = sum(1 for _ in deadline.attempts())
    assert 540 < clock.now - began < 640
    assert attempts > 10


@pytest.mark.defect("D31")
def test_a_pause_is_never_negative_and_never_past_the_deadline(ticking_clock):
    clock = ticking_clock()
    Deadline(clock, clock.now - 5).pause(30)
    before = clock.now
    Deadline.after(clock, 10).pause(1000)
    assert clock.now - before <= 12


def test_a_deadline_in_the_past_still_allows_one_attempt(ticking_clock):
    clock = ticking_clock()
    assert list(Deadline(clock, 0).attempts()) == [1]


def test_a_restart_of_the_service_does_not_extend_the_set_up_time(ticking_clock, tmp_path):
    clock, file = ticking_clock(), tmp_path / "run" / "started"
    first = setup_deadline(clock, file, 3300)
    clock.now += 1000
    assert setup_deadline(clock, file, 3300).at == first.at
    file.unlink()  # a reboot empties /run
    assert setup_deadline(clock, file, 3300).at > first.at


@pytest.mark.fault(25)
@pytest.mark.defect("D24")
def test_a_cluster_whose_name_says_master_still_has_workers(lab):
    assert "master" in lab.node(1).settings.cluster
    assert not lab.node(1).is_master
    assert type(lab.agent(1)).__name__ == "Worker"


# --- Queues -----------------------------------------------------------------------------------------


@pytest.mark.fault(24)
@pytest.mark.defect("D45")
def test_only_the_instance_itself_is_believed(lab):
    report = joined(lab, 1)
    assert is_sent_by("AROAX", report, f"AROAX:{lab.instance(1)}")
    for sender in (f"AROAX:{lab.instance(2)}", f"AROAY:{lab.instance(1)}", lab.instance(1), "AROAX", "", ":"):
        assert not is_sent_by("AROAX", report, sender)
    assert not is_sent_by("", report, f":{lab.instance(1)}")


@pytest.mark.fault(22, 23, 24)
@pytest.mark.defect("D27")
def test_malformed_foreign_and_duplicate_reports_neither_block_nor_pass(lab, caplog):
    agent = lab.agent(0)
    queue = ReportQueue(agent.clients, lab.queues["report"], "master-of-names", "AROAEXAMPLEEXAMPLE123", 0)
    forged = json.loads(joined(lab, 3).to_body()) | {"sent_by": lab.instance(2)}
    other = json.loads(joined(lab, 4).to_body()) | {"cluster": "another"}
    for body in ("poison{", "[]", json.dumps(forged), json.dumps(other), *[joined(lab, 1).to_body()] * 2):
        lab.send("report", body)
    reports = queue.receive(agent.node.limit(1))
    queue.delete_read()
    assert [report.instance_id for report in reports] == [lab.instance(1)] * 2
    assert "dropped a malformed report" in caplog.text
    assert f"dropped a report about {lab.instance(3)} that AROAEXAMPLEEXAMPLE123:{lab.instance(2)} sent" in caplog.text
    attributes = lab.clients.sqs.get_queue_attributes(QueueUrl=lab.queues["report"], AttributeNames=["All"])[
        "Attributes"
    ]
    assert attributes["ApproximateNumberOfMessages"] == attributes["ApproximateNumberOfMessagesNotVisible"] == "0"


@pytest.mark.fault(26, 27)
@pytest.mark.defect("D29")
def test_a_stale_ring_is_followed_by_a_pause_and_not_by_a_spin(lab, ticking_clock):
    for generation in (1, 2):
        lab.send("worker", ClusterNotification("master-of-names", generation).to_body())
    lab.send("worker", "poison{")
    lab.send("worker", ClusterNotification("another-cluster", 9).to_body())
    clock, agent = ticking_clock(), lab.agent(1)
    queue = NotificationQueue(agent.clients, lab.queues["worker"], "master-of-names", is_shared=True)
    assert not queue.wait(2, Deadline.after(clock, 600))
    assert lab.calls["ReceiveMessage"] <= 600 / 20 + 1
    assert queue.wait(1, Deadline.after(clock, 600))


@pytest.mark.defect("D31")
def test_the_master_polls_long_and_deletes_its_rings(lab, ticking_clock):
    lab.send("master", ClusterNotification("master-of-names", 1).to_body())
    agent = lab.agent(0)
    assert agent.notifications.wait(0, Deadline.after(ticking_clock(), 60))
    assert lab.bodies("master") == []


def test_only_a_ring_of_the_cluster_has_a_generation():
    assert notification_generation(ClusterNotification("c", 3).to_body(), "c") == 3
    for body in ("", "{", "[]", '{"kind": "report"}', '{"kind":"notification","cluster":"c","generation":true}'):
        assert notification_generation(body, "c") == -1


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level(logging.INFO, "deeplearning_agent")
