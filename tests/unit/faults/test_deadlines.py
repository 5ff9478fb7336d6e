"""Inner deadlines end before outer ones, so that the user reads a reason and not CloudFormation's time-out."""

import ast
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import botocore.endpoint
import pytest
from aws_cdk import Duration
from botocore.exceptions import ReadTimeoutError
from fault_proxy import VirtualClock, stall
from hypothesis import given, settings
from hypothesis import strategies as st

from deeplearning_agent import role
from deeplearning_agent.master import Master
from deeplearning_agent.membership import formation_outcome as outcome
from deeplearning_agent.membership.formation import reserve_seconds
from deeplearning_cdk.training_cluster import _count_formation_seconds
from deeplearning_contract import web
from deeplearning_node import aws_clients, instance_metadata
from deeplearning_node.aws_clients import (
    ANSWER_SECONDS,
    CREDENTIALS_SECONDS,
    LONGEST_CALL_SECONDS,
    AwsClients,
    call_until,
)
from deeplearning_node.deadline import LONGEST_PAUSE_SECONDS, Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import LIMIT_SECONDS

USERDATA = Path(__file__).parents[3] / "userdata"
BOOT_SECONDS = 60
"""From the start of the stack's wait, when the groups begin, to the first start of the agent: launch, boot, fetch."""
SHORTEST_MINUTES, LONGEST_MINUTES = 10, 12 * 60

timeouts = st.integers(SHORTEST_MINUTES, LONGEST_MINUTES)


@pytest.mark.fault(63)
@pytest.mark.defect("D42", "D43")
@settings(max_examples=100, deadline=None)
@given(timeouts)
def test_the_set_up_time_leaves_room_for_the_boot_and_a_signal(minutes):
    left = minutes * 60 - _count_formation_seconds(Duration.minutes(minutes))
    assert left >= BOOT_SECONDS + web.SIGNAL_TIMEOUT_SECONDS


@pytest.mark.fault(63)
@settings(max_examples=100, deadline=None)
@given(timeouts)
def test_the_waits_of_a_node_before_its_first_report_fit_into_the_set_up_time(minutes):
    """Identity and credentials; whatever comes after them ends with the set-up time, in tests of their own."""
    setup = _count_formation_seconds(Duration.minutes(minutes))
    assert setup > LIMIT_SECONDS + CREDENTIALS_SECONDS + 2 * LONGEST_PAUSE_SECONDS
    assert 0 < reserve_seconds(setup) < setup / 5
    assert reserve_seconds(setup) / 2 > 20, "time to ring the workers and hear of them after somebody is left out"


@pytest.mark.fault(39, 63)
@settings(max_examples=100, deadline=None)
@given(st.floats(0, 5000), st.lists(st.floats(0, LONGEST_CALL_SECONDS), min_size=1, max_size=5))
def test_a_retry_loop_ends_no_later_than_its_deadline_and_one_call(seconds, durations):
    clock, calls = VirtualClock(), []

    def fail():
        calls.append(clock.now)
        clock.wait(durations[len(calls) % len(durations)])
        raise ConnectionError

    deadline = Deadline.after(clock, seconds)
    for _ in deadline.attempts():
        with pytest.raises(ConnectionError):
            fail()
    assert clock.now <= deadline.at + LONGEST_CALL_SECONDS + 0.1
    assert calls[-1] <= max(deadline.at, calls[0]) + 0.1, "the last call begins before the deadline"
    assert len(calls) <= 12 + seconds / 10, "with pauses that grow, not as fast as it goes"


@pytest.fixture
def silent_table(proxy):
    proxy.inject(stall(ANSWER_SECONDS))
    return AwsClients("eu-west-1")


@pytest.mark.fault(63)
@pytest.mark.parametrize("minutes", [SHORTEST_MINUTES, 55, LONGEST_MINUTES])
def test_the_master_signals_its_failure_before_the_stack_gives_up_even_without_a_table(
    silent_table, machine, clock, monkeypatch, minutes
):
    """DynamoDB has been silent since before the set-up time ended; CloudFormation's URL still answers."""
    sent = []
    monkeypatch.setattr(outcome, "send_signal", lambda url, body: sent.append(clock.now))
    setup = _count_formation_seconds(Duration.minutes(minutes))
    agent = Master(machine.node(setup_seconds=setup, signal_url="http://127.0.0.1:9/"), silent_table, 0)
    began = clock.now
    agent.report_failure(StageFailure("workers are missing", "", stage="form the cluster"))
    assert sent[0] - began <= minutes * 60 - setup - BOOT_SECONDS - LONGEST_CALL_SECONDS


@pytest.fixture
def silent_address(monkeypatch):
    """Return the address of a server that takes connections and never answers; clients have little real patience."""
    for owner, limit in (
        (aws_clients, "ANSWER_SECONDS"),
        (instance_metadata, "ANSWER_SECONDS"),
        (web, "SIGNAL_TIMEOUT_SECONDS"),
    ):
        monkeypatch.setattr(owner, limit, 0.05)
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None))
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        yield url


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    "ask",
    [
        lambda url, clients: clients.dynamodb.list_tables(),
        lambda url, clients: instance_metadata.request(url, "GET", {}),
        lambda url, clients: web.send_signal(url, b""),
    ],
    ids=["aws", "metadata", "signal"],
)
def test_a_client_gives_up_a_server_that_never_answers(silent_address, ask):
    """For real: elsewhere a call that stalls ends without a wait, as this time-out would."""
    with pytest.raises((OSError, ReadTimeoutError), match=r"(?i)timed out|read timeout"):
        ask(silent_address, AwsClients("eu-west-1"))


@pytest.mark.fault(54)
def test_a_wall_clock_that_jumps_moves_no_deadline(monkeypatch):
    """For real, but without a real wait: only the sleep is the test's."""
    jumps = iter([600.0, -600.0] * 1000)
    wall, slept = time.time, []
    monkeypatch.setattr(time, "time", lambda: wall() + next(jumps))
    monkeypatch.setattr(time, "sleep", slept.append)
    deadline = Deadline.after(Clock(), 3600)
    assert 3599 < deadline.remaining <= 3600
    deadline.pause(10)
    assert slept == [10]
    assert call_until(deadline, lambda: "done") == "done"
    assert not deadline.is_over


WALL_CLOCK_NAMES = {"time", "now", "utcnow", "today", "localtime", "gmtime"}
WALL_CLOCK_READERS = {
    "log_records.py": "stamps the lines of the log",
    "aws_clients.py": "says by how much the clock is wrong",
    "node_check.py": "compares the nodes' clocks",
    "cluster_check.py": "compares the nodes' clocks",
    "log_shipper.py": "stamps the line that tells of dropped ones",
    "interruption_notice.py": "says when a notice came",
}


@pytest.mark.fault(54)
@pytest.mark.defect("D31")
def test_nothing_that_waits_reads_the_wall_clock():
    found = set()
    for path in (
        path for room in ("deeplearning_agent", "deeplearning_node") for path in (USERDATA / room).rglob("*.py")
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCK_NAMES:
                owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
                if owner in {"time", "datetime", "date"}:
                    found.add(path.name)
    assert found <= set(WALL_CLOCK_READERS), "deadlines are kept by the monotonic clock"
    assert "aws_clients.py" in found, "the search finds what is there"


def test_the_constants_that_these_tests_assume_are_those_of_the_agent():
    assert (role.AWS_SECONDS, role.READ_SECONDS) == (300, 60)
    assert outcome.SIGNAL_ATTEMPTS * outcome.SIGNAL_SECONDS <= 600
