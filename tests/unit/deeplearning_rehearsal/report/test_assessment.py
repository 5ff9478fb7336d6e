"""The verdict: every broken promise has its line."""

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome, StackResource
from cdk_rehearsal.embedded_aws.server.call_log import CallCounts
from cdk_rehearsal.lab import StandIn
from cdk_rehearsal.run.timeline import Event, Span, Timeline
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import Reason
from deeplearning_contract.version import VERSION
from deeplearning_rehearsal.checks.contract_check import Membership
from deeplearning_rehearsal.checks.node_log import LogReport
from deeplearning_rehearsal.checks.results import CountReport, NodeReport, TrainingReport
from deeplearning_rehearsal.report.assessment import Evidence, bound_calls, bound_log_calls, find_problems, judge

HOSTS = (("deeplearning-worker1", "i-1", "10.0.0.5"), ("deeplearning-worker2", "i-2", "10.0.0.6"))
STATE = ClusterState("c", 3, 1, Phase.FORMED, 2, ("i-1", "i-2"))
TRAINED = TrainingReport("horovod", "torch", 2, ("a", "b"), "digits", 0.97, 3.0)
COMPLETE = StackOutcome("CREATE_COMPLETE", "", (StackResource("Q", "q", "AWS::SQS::Queue", "", ""),), {}, ())


def _node(rank, *, gpus="1", **checks):
    host, instance_id, address = HOSTS[rank]
    contract = {"DEEPLEARNING_WORKER_GPU_COUNT": gpus}
    return NodeReport(host, "worker" if rank else "master", instance_id, address, contract, {"shell": True} | checks)


@pytest.fixture
def evidence():
    return Evidence(
        stack="trial",
        overrides={},
        requested=2,
        outcome=COMPLETE,
        calls=CallCounts(40, {"sqs.SendMessage": 40}, {"lambda": 10, "worker": 30}, {}),
        formation_seconds=12.0,
        state=STATE,
        membership=Membership(1, HOSTS),
        nodes=(_node(0), _node(1)),
        training=TRAINED,
    )


def test_a_cluster_that_keeps_every_promise_passes(evidence):
    report = judge("trained", evidence, Timeline(), [StandIn("a", "b", "c")], 900, seed=7)
    assert (report["verdict"], report["reasons"]) == ("pass", ())
    assert [report["cluster"][name] for name in ("requested", "formed", "generation")] == [2, 2, 1]
    assert report["stack"]["resources"] == {"AWS::SQS::Queue": 1}
    assert report["stand_ins"] == [{"name": "a", "replaces": "b", "does": "c"}]
    assert json.loads(json.dumps(report)).keys() == {
        *("verdict", "expected", "reasons", "stack", "cluster", "nodes", "training", "count", "phases", "stand_ins"),
        *("peak_memory_mib", "timeline", "case", "launchers", "environment", "run", "kubernetes", "paid_seconds"),
    }
    assert (report["run"]["version"], report["run"]["seed"]) == (VERSION, 7)
    assert datetime.fromisoformat(report["run"]["at"]).utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"outcome": replace(COMPLETE, status="ROLLBACK_COMPLETE", reason="no capacity")},
            "the stack must complete, it is ROLLBACK_COMPLETE: no capacity",
        ),
        (
            {"outcome": replace(COMPLETE, status="CREATE_IN_PROGRESS")},
            "the stack must complete, it is CREATE_IN_PROGRESS: no reason given",
        ),
        ({"nodes": (_node(0), _node(1, sudo=False))}, "deeplearning-worker2 must keep the contract, it fails: sudo"),
        ({"requested": 4}, "a smaller cluster must give its reason, got 2 of 4 without"),
        ({"training": None}, "the cluster must train, it did not"),
        ({"training": replace(TRAINED, ranks=1)}, "a job must use every slot, got 1 ranks for 2 slots"),
        ({"training": replace(TRAINED, hosts=("a", "a"))}, "a job must run on each of 2 hosts, got ['a']"),
        ({"training": replace(TRAINED, accuracy=0.5)}, "held-out accuracy must be at least 0.9, got 0.500"),
        ({"problems": ["training printed no result"]}, "training printed no result"),
        (
            {"calls": CallCounts(60, {}, {"lambda": 10, "worker": 50}, {})},
            "2 nodes must form with at most 35 AWS calls of theirs, got 50",
        ),
    ],
)
def test_a_broken_promise_is_the_one_reason_of_the_verdict(evidence, changes, problem):
    report = judge("trained", replace(evidence, **changes), Timeline(), [], 0, seed=7)
    assert (report["verdict"], report["reasons"]) == ("fail", (problem,))


def test_slots_are_the_gpus_of_all_nodes_and_one_on_a_node_without(evidence):
    mixed = replace(evidence, nodes=(_node(0, gpus="0"), _node(1, gpus="8")))
    assert find_problems("trained", replace(mixed, training=replace(TRAINED, ranks=9))) == ()
    assert find_problems("trained", mixed) == ("a job must use every slot, got 2 ranks for 9 slots",)


def test_a_smaller_cluster_with_a_reason_passes(evidence):
    told = replace(evidence, requested=4, state=replace(STATE, reason=Reason("no capacity in eu-west-1a")))
    assert find_problems("trained", told) == ()


@pytest.mark.parametrize(
    ("count", "problems"),
    [
        (CountReport(2, ("a", "b")), ()),
        (
            CountReport(1, ("a",)),
            ("a job must use every slot, got 1 ranks for 2 slots", "on each of 2 hosts, got ['a']"),
        ),
        (CountReport(2, ("a", "a")), ("a job must run on each of 2 hosts, got ['a']",)),
        (None, ("a job must count its ranks, none did",)),
    ],
)
def test_the_job_that_counts_must_have_a_rank_for_each_slot_on_each_host(evidence, count, problems):
    found = find_problems("counted", replace(evidence, training=None, count=count))
    assert len(found) == len(problems)
    assert all(part in problem for part, problem in zip(problems, found, strict=True))


def test_formation_alone_is_judged_without_training(evidence):
    assert find_problems("formed", replace(evidence, training=None)) == ()


def test_a_node_that_was_not_checked_fails(evidence):
    problems = find_problems("formed", replace(evidence, nodes=(_node(0),)))
    assert problems == ("every node of the membership must be checked, got 1 of 2",)


def test_a_cluster_without_a_membership_fails_though_its_stack_is_complete(evidence):
    empty = replace(evidence, membership=None, nodes=(), state=None, formation_seconds=None)
    assert find_problems("formed", empty) == ("every node of the membership must be checked, got 0 of 0",)


@pytest.mark.parametrize(
    ("status", "reason", "problems"),
    [
        ("ROLLBACK_COMPLETE", "no capacity", ()),
        ("ROLLBACK_COMPLETE", "", ("the stack must fail with a reason, it is ROLLBACK_COMPLETE",)),
        ("CREATE_COMPLETE", "", ("the stack must fail with a reason, it is CREATE_COMPLETE",)),
        ("CREATE_IN_PROGRESS", "", ("the stack must fail with a reason, it is CREATE_IN_PROGRESS",)),
    ],
)
def test_an_expected_failure_needs_a_rollback_with_a_reason(evidence, status, reason, problems):
    ended = replace(evidence, outcome=replace(COMPLETE, status=status, reason=reason))
    assert find_problems("failed", ended) == problems


def test_every_node_must_ship_its_log_and_nobody_elses(evidence):
    lines = {node.instance_id: 7 for node in evidence.nodes}
    assert find_problems("formed", replace(evidence, log=LogReport(lines, {}))) == ()
    lines.popitem()
    host = evidence.nodes[-1].host
    assert find_problems("formed", replace(evidence, log=LogReport(lines, {}, 2))) == (
        f"{host} must ship its log, there is no line of it",
        "the node log must hold lines of its nodes only, got 2 others",
    )


def test_shipping_logs_has_a_bound_of_its_own(evidence):
    formed = len(evidence.nodes)
    most = bound_log_calls(formed, evidence.formation_seconds or 0)
    kinds = {"lambda": 10, "worker": 30 + most}
    calls = CallCounts(40 + most, {"sqs.SendMessage": 40, "logs.PutLogEvents": most}, kinds, {})
    assert find_problems("formed", replace(evidence, calls=calls)) == ()
    calls = replace(calls, by_operation={**calls.by_operation, "events.PutEvents": 1}, total=calls.total + 1)
    (problem,) = find_problems("formed", replace(evidence, calls=calls))
    assert problem == f"{formed} nodes must ship their logs with at most {most} AWS calls, got {most + 1}"
    assert find_problems("formed", replace(evidence, calls=calls, ships_logs=False)) == ()


@pytest.mark.parametrize(
    ("nodes", "seconds", "calls"), [(1, 0, 26), (1, 1, 28), (4, 20, 49), (4, 21, 53), (4, 61, 65), (41, 15, 316)]
)
def test_the_bound_of_calls_grows_with_nodes_and_their_polls(nodes, seconds, calls):
    assert bound_calls(nodes, seconds) == calls


@pytest.mark.parametrize(
    ("ready", "phases"),
    [
        (90.0, [("check", 10.0, 10.0), ("software", 20.0, 70.0), ("train", 90.0, 10.0)]),
        (15.0, [("check", 10.0, 10.0), ("train", 20.0, 80.0)]),
        (None, [("check", 10.0, 10.0), ("train", 20.0, 80.0)]),
    ],
)
def test_training_begins_when_the_master_has_the_software_that_it_waits_for(evidence, ready, phases):
    """Workers that replace others have theirs later, while the job trains."""
    timeline = Timeline()
    timeline.spans = [Span("check", 10.0, 10.0), Span("train", 20.0, 80.0)]
    timeline.events = [Event(95.0, "worker 6", "environment is done: Horovod")]
    if ready is not None:
        timeline.events.append(Event(ready, "master 5", "environment is done: Horovod"))
    report = judge("trained", evidence, timeline, [], 0, seed=7)
    assert [(each["name"], each["start"], each["seconds"]) for each in report["phases"]] == phases
