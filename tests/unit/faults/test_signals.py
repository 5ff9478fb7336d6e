"""The signal to CloudFormation: broken, duplicated, late and refused; and what a full disk makes of its mark."""

import json

import pytest
from fault_proxy import RESET_AFTER, RESET_BEFORE, FaultProxy, forward_over_http, garble_status, refuse, stall

from deeplearning_agent.membership.formation_outcome import SIGNAL_SECONDS, FormationOutcome, signal_stack
from deeplearning_contract import web
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_node.deadline import LONGEST_PAUSE_SECONDS
from tests.real_time import GENEROUS_SECONDS

FORMED = ClusterState("training", 1, 1, Phase.FORMED, 0, ())


def read_verdicts(signals):
    """Return status and reason by UniqueId, of which the first signal counts, as CloudFormation has it."""
    found = {}
    for body in signals.bodies:
        found.setdefault(body["UniqueId"], (body["Status"], body["Reason"]))
    return found


@pytest.fixture
def cloudformation(signals, clock, monkeypatch):
    monkeypatch.setattr(web, "SIGNAL_TIMEOUT_SECONDS", GENEROUS_SECONDS)
    found = FaultProxy(forward_over_http(signals.url), spent=clock.spend)
    with found.serve():
        yield found


@pytest.fixture
def node(machine, cloudformation):
    return machine.node(signal_url=f"{cloudformation.url}/signal?X-Amz-Signature=abc")


FAULTS = {
    "unavailable": refuse("ServiceUnavailable", 503),
    "slow-down": refuse("SlowDown", 503),
    "reset": RESET_BEFORE,
    "lost-answer": RESET_AFTER,
    "stall": stall(30),
    "no-http": garble_status(),
}


@pytest.mark.fault(41, 64)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_signal_is_sent_until_it_is_taken_and_repetitions_change_nothing(node, signals, cloudformation, fault):
    cloudformation.inject(fault, on=(1, 2, 3))
    assert signal_stack(node, "SUCCESS", "4 of 4 nodes")
    assert read_verdicts(signals) == {"training": ("SUCCESS", "4 of 4 nodes")}
    assert len(cloudformation.calls) == 4
    assert len({json.dumps(body, sort_keys=True) for body in signals.bodies}) == 1


@pytest.mark.fault(47, 64)
def test_a_success_is_sent_once_an_instance_and_a_failure_after_it_does_not_count(node, signals):
    FormationOutcome(node, None, None, None).report_success(FORMED)
    FormationOutcome(node, None, None, None).report_success(FORMED)  # After a restart of the agent.
    assert signal_stack(node, "FAILURE", "the run script could not start")
    assert read_verdicts(signals) == {"training": ("SUCCESS", "0 of 0 nodes formed generation 1")}
    assert [body["Status"] for body in signals.bodies] == ["SUCCESS", "FAILURE"]


@pytest.mark.fault(64)
@pytest.mark.defect("D42")
def test_a_late_signal_to_a_url_that_has_expired_is_given_up_at_once(node, cloudformation, clock):
    cloudformation.inject(refuse("AccessDenied", 403, "Request has expired"))
    began = clock.now
    assert not signal_stack(node, "FAILURE", "late")
    assert len(cloudformation.calls) == 1
    assert clock.now - began < 1


@pytest.mark.fault(63)
@pytest.mark.parametrize("name", ["unavailable", "reset", "stall"])
def test_a_signal_that_is_never_taken_ends_in_bounded_time(node, cloudformation, clock, name):
    cloudformation.inject(FAULTS[name])
    began = clock.now
    assert not signal_stack(node, "FAILURE", "why")
    assert clock.now - began < SIGNAL_SECONDS + 30 + LONGEST_PAUSE_SECONDS
    assert len(cloudformation.calls) < SIGNAL_SECONDS / 2


@pytest.mark.fault(55, 64)
def test_a_full_disk_does_not_undo_a_success_that_cloudformation_has(node, signals, machine):
    (machine.root / "var/lib").write_text("a file where a folder must be")
    outcome = FormationOutcome(node, None, None, None)
    outcome.report_success(FORMED)
    outcome.report_success(FORMED)
    outcome.report_decided_failure(FORMED)
    assert len(signals.bodies) == 1
