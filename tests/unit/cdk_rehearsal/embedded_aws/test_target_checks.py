"""Health checks of a target: what one says, and what many make of its state."""

import socket

import pytest

from cdk_rehearsal.embedded_aws.balancing.probe import FAILED, TIMEOUT, HealthCheck, matches, probe
from cdk_rehearsal.embedded_aws.balancing.target_state import TargetState


@pytest.mark.parametrize(
    ("status", "matcher", "expected"),
    [(200, "200", True), (201, "200", False), (302, "200-399", True), (404, "200-399", False), (302, "200,302", True)],
)
def test_a_matcher_names_codes_and_ranges(status, matcher, expected):
    assert matches(status, matcher) is expected


@pytest.mark.parametrize("protocol", ["HTTP", "HTTPS", "TCP"])
def test_a_closed_port_fails_and_a_silent_one_times_out(protocol):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        silent = probe("127.0.0.1", port, HealthCheck(protocol, "/", "200", 0.05))
    assert silent == (None if protocol == "TCP" else TIMEOUT)
    assert probe("127.0.0.1", port, HealthCheck(protocol, "/", "200", 5)) == FAILED


def test_a_new_target_is_healthy_after_one_check_and_a_failing_one_after_as_many_as_the_threshold():
    """Application Load Balancer user guide, "Health checks for your target groups"."""
    state = TargetState(healthy_threshold=3, unhealthy_threshold=2)
    assert (state.state, state.failure.reason) == ("initial", "Elb.InitialHealthChecking")
    assert state.take(None)
    assert state.state == "healthy"
    assert not state.take(FAILED)
    assert not state.take(None)
    assert not state.take(FAILED)
    assert state.take(TIMEOUT)
    assert (state.state, state.failure) == ("unhealthy", TIMEOUT)
    changes = [state.take(None) for _ in range(3)]
    assert changes == [False, False, True]
    assert state.state == "healthy"


def test_a_new_target_that_fails_is_unhealthy_after_the_threshold():
    state = TargetState(healthy_threshold=5, unhealthy_threshold=2)
    assert [state.take(FAILED), state.state, state.take(FAILED), state.state] == [False, "initial", True, "unhealthy"]
