"""Paid seconds by cause: each second of each node has one cause, and their sum is what is billed."""

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_rehearsal.run.timeline import Event, Span
from deeplearning_rehearsal.kubernetes_jobs import name_node
from deeplearning_rehearsal.report.paid_seconds import (
    CAUSES,
    DATA,
    DETECTION,
    NO_JOB,
    SET_UP,
    SOFTWARE,
    TRAINING,
    UPLOAD,
    WAITING,
    PaidNode,
    read_node,
    reckon,
)
from deeplearning_rehearsal.training_jobs import TrainingJobs
from tests.depth import EXAMPLES

NODE = PaidNode(10.0, 100.0, set_up=20.0, joined=30.0, brought={"data:coco": 40.0, "environment": 45.0})
MACHINE = SimpleNamespace(instance_id="i-1", address="10.0.0.5", region="us-east-1")
MOMENTS = st.floats(0, 1000, allow_nan=False)


def _spend(node, *job):
    return {cause: seconds for cause, seconds in reckon([node], job).items() if seconds}


def test_each_second_of_a_node_has_the_cause_of_its_moment():
    spent = _spend(NODE, Span(TRAINING, 42.0, 28.0))
    assert spent == {SET_UP: 10.0, WAITING: 10.0, DATA: 10.0, SOFTWARE: 5.0, TRAINING: 25.0, NO_JOB: 30.0}


def test_a_node_without_power_costs_money_until_it_is_found_dead():
    node = PaidNode(0.0, 50.0, died=35.0, set_up=5.0, joined=10.0)
    assert _spend(node, Span(TRAINING, 10.0, 100.0)) == {SET_UP: 5.0, WAITING: 5.0, TRAINING: 25.0, DETECTION: 15.0}


def test_a_node_that_never_joins_is_set_up_or_waits_for_others():
    assert _spend(PaidNode(0.0, 9.0)) == {SET_UP: 9.0}
    assert _spend(PaidNode(0.0, 9.0, set_up=4.0)) == {SET_UP: 4.0, WAITING: 5.0}


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_the_causes_add_up_to_what_is_billed(data):
    nodes = []
    for _ in range(data.draw(st.integers(1, 4))):
        launched, ended, died, set_up, joined, brought = (data.draw(MOMENTS) for _ in range(6))
        nodes.append(PaidNode(launched, max(launched, ended), died, set_up, joined, {"data:x": brought}))
    edges = sorted(data.draw(st.lists(MOMENTS, max_size=6)))
    job = [Span(TRAINING, begin, end - begin) for begin, end in zip(edges[::2], edges[1::2], strict=False)]
    spent = reckon(nodes, job)
    assert set(spent) == set(CAUSES)
    assert sum(spent.values()) == pytest.approx(sum(node.ended - node.launched for node in nodes))


def test_the_lines_of_an_agent_are_the_moments_of_its_node():
    lines = (
        (2.0, "run the set-up script: done in 0.1 s"),
        (3.0, "install generation 1: done in 0.9 s"),
        (4.0, "data:coco is done: 3 files"),
        (5.0, "environment is failed: no room"),
        (6.0, "run the set-up script: done in 0.1 s"),
        (7.0, "install generation 2: done in 0.9 s"),
    )
    node = read_node(0.0, 9.0, math.inf, [Event(at, "worker", text) for at, text in lines])
    assert node == PaidNode(0.0, 9.0, math.inf, 2.0, 3.0, {"data:coco": 4.0, "environment": 5.0})
    assert read_node(0.0, 9.0, math.inf, [Event(3.0, "core", "install generation 1: done in 1 s")]).set_up == 3.0


def test_the_agent_has_a_step_of_the_name_that_is_read():
    steps = Path("userdata/deeplearning_agent/boot/steps.py").read_text()
    assert 'run("run the set-up script"' in steps
    assert 'f"install generation {' in steps


def test_a_node_of_kubernetes_is_set_up_when_it_is_ready():
    node = read_node(0.0, 9.0, math.inf, [Event(3.0, "ip-10-0-0-5.ec2.internal", "node is Ready")])
    assert (node.set_up, node.joined) == (3.0, 3.0)
    assert name_node([MACHINE], MACHINE.instance_id) == "ip-10-0-0-5.ec2.internal"


def test_instances_of_a_training_job_are_billed_while_it_trains(monkeypatch):
    begin = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def at(seconds):
        return begin + timedelta(seconds=seconds)

    statuses = (("Starting", 0, 10), ("Downloading", 10, 14), ("Training", 14, 44), ("Uploading", 44, None))
    transitions = [
        {"Status": status, "StartTime": at(start)} | ({"EndTime": at(end)} if end else {})
        for status, start, end in statuses
    ]
    job = {"TrainingStartTime": at(10), "TrainingEndTime": at(46), "ResourceConfig": {"InstanceCount": 2}}
    nothing = None
    jobs = TrainingJobs(nothing, nothing, nothing, nothing, nothing, nothing)
    monkeypatch.setattr(jobs, "names", lambda: ["ended", "refused"])
    monkeypatch.setattr(jobs, "describe", {"ended": job | {"SecondaryStatusTransitions": transitions}}.get)
    assert {cause: seconds for cause, seconds in jobs.reckon_paid().items() if seconds} == {
        DATA: 8.0,
        TRAINING: 60.0,
        UPLOAD: 4.0,
    }
