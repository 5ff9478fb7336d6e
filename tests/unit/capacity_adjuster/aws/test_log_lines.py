"""Log of the adjuster: lines with the fields of the nodes' lines, and metrics of the capacity."""

import io
import json
import logging
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster.aws.log_lines import CLUSTER_VARIABLE, LineFormatter, line_fields, write_lines
from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import ClusterObservation, GroupObservation, Instance
from capacity_adjuster.reconcile.capacity_metrics import (
    PATIENCE_SECONDS,
    RECENT_SECONDS,
    log_capacity,
    measure_capacity,
)
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.log_record import FIELDS, LogLine
from deeplearning_contract.metrics import (
    CAPACITY_ASKED,
    CAPACITY_LAUNCHED,
    FORMATION_PENDING_SECONDS,
    LAUNCH_FAILURES,
    read_metrics,
)
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason

NOW = 10_000.0


def make_record(message="hello", **extra):
    record = logging.LogRecord("capacity_adjuster.policy.decision", logging.INFO, __file__, 1, message, (), None)
    record.__dict__.update(extra)
    return record


@given(st.text(st.characters(codec=None)))
def test_any_text_becomes_one_line_with_the_fields_of_the_nodes_lines(message):
    text = LineFormatter("cats").format(make_record(message))
    assert text.isprintable()
    line = LogLine.from_text(text)
    assert line.message == message
    assert (line.speaker.cluster, line.speaker.node, line.speaker.role) == ("cats", "adjuster", "adjuster")
    assert tuple(json.loads(text)) == FIELDS


def test_a_line_says_generation_details_and_metrics_when_they_are_known():
    record = make_record(**line_fields(3, {"reason": Reason("no capacity", "wait")}, {CAPACITY_ASKED: 4}))
    line = LogLine.from_text(LineFormatter("cats").format(record))
    assert (line.generation, line.details["reason"], line.details["Cluster"]) == (
        3,
        {"cause": "no capacity", "remedy": "wait"},
        "cats",
    )
    assert read_metrics(line.details) == {"CapacityAsked": 4}


def test_an_exception_is_part_of_its_line():
    try:
        {}["cause"]
    except KeyError:
        record = make_record(exc_info=sys.exc_info())
    line = LogLine.from_text(LineFormatter("cats").format(record))
    assert line.message == "hello"
    assert line.details["traceback"].endswith("KeyError: 'cause'")


class PlainHandler(logging.Handler):
    """Writes what the formatter gave and no more, as Lambda's own handler does."""

    def __init__(self, file):
        super().__init__()
        self.file = file

    def emit(self, record):
        self.file.write(self.format(record))


@pytest.mark.parametrize("make", [logging.StreamHandler, PlainHandler])
def test_every_handler_of_the_runtime_writes_one_line_a_record(monkeypatch, make, settings):
    file = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [make(file)])
    write_lines({"AWS_LAMBDA_FUNCTION_NAME": "adjuster", **settings.to_environment()})
    logging.getLogger().warning("one\ntwo")
    logging.getLogger().warning("three")
    assert file.getvalue().endswith("\n")
    lines = [LogLine.from_text(line) for line in file.getvalue().splitlines()]
    assert [line.message for line in lines] == ["one\ntwo", "three"]
    assert lines[0].speaker.cluster == settings.cluster
    assert CLUSTER_VARIABLE in settings.to_environment()


def test_outside_of_lambda_handlers_stay_as_they_are(monkeypatch):
    handler = logging.StreamHandler(io.StringIO())
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    write_lines({})
    assert handler.formatter is None


# --- Metrics ----------------------------------------------------------------------------------------


def make_group(role, desired, launched, **values):
    instances = tuple(Instance(f"i-{role.value}-{number}", "InService") for number in range(launched))
    return GroupObservation(role.value, role, 0, desired, 8, instances, created=NOW - 700, **values)


def observe(desired=3, launched=3, **values):
    return ClusterObservation(
        (make_group(NodeRole.MASTER, 1, 1), make_group(NodeRole.WORKER, desired, launched, **values))
    )


STATE = ClusterState("cats", 1, 2, Phase.LAUNCHED, 4, ("i-1",))
FORMED = STATE.advance(Phase.FORMED, has_formed=True)


def test_asked_and_launched_count_the_master_and_what_was_requested_of_a_smaller_cluster():
    metrics = measure_capacity(observe(desired=3, launched=2), STATE, None, NOW)
    assert (metrics[CAPACITY_ASKED], metrics[CAPACITY_LAUNCHED]) == (4, 3)
    smaller = replace(FORMED, reason=Reason("no capacity"), requested=6)
    assert measure_capacity(observe(), smaller, None, NOW)[CAPACITY_ASKED] == 6
    assert measure_capacity(observe(), replace(smaller, reason=NO_REASON), None, NOW)[CAPACITY_ASKED] == 4


def test_what_was_not_read_has_no_metric():
    assert measure_capacity(ClusterObservation(), None, None, NOW) == {}
    assert FORMATION_PENDING_SECONDS not in measure_capacity(observe(), None, None, NOW, is_state_known=False)
    unread = ClusterObservation(tuple(replace(group, activities=None) for group in observe().groups))
    assert LAUNCH_FAILURES not in measure_capacity(unread, STATE, None, NOW)


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (None, 700),
        (STATE, 700),
        (STATE.advance(Phase.PUBLISHED), 700),
        (FORMED, 0),
        (FORMED.advance(Phase.PUBLISHED), 0),
        (STATE.advance(Phase.FAILED), 0),
    ],
)
def test_a_formation_is_pending_until_it_has_formed_or_failed(state, seconds):
    assert measure_capacity(observe(), state, None, NOW)[FORMATION_PENDING_SECONDS] == seconds


def test_failed_launches_count_while_they_are_news():
    failed = tuple(
        Activity(f"a-{number}", "launch", "Failed", start=at, end=at)
        for number, at in enumerate((NOW - RECENT_SECONDS - 30, NOW - 60, NOW - 1))
    )
    assert measure_capacity(observe(activities=failed), STATE, None, NOW)[LAUNCH_FAILURES] == 2


def see(*, has_read_state):
    """Return the observations of an invocation."""
    return SimpleNamespace(
        cluster=observe(), state=None, adjustment=None, candidates_tried=0, has_read_state=has_read_state
    )


def fail():
    raise ZeroDivisionError


def test_the_state_is_read_only_when_it_is_not_known_and_the_groups_are_old(caplog):
    caplog.set_level(logging.INFO, "capacity_adjuster")
    log_capacity(see(has_read_state=True), NOW, fail)
    log_capacity(see(has_read_state=False), NOW - 700 + PATIENCE_SECONDS - 1, fail)
    log_capacity(see(has_read_state=False), NOW, lambda: FORMED)
    pending = [record.metrics.get(FORMATION_PENDING_SECONDS) for record in caplog.records]
    assert pending == [700, None, 0]
    assert caplog.records[2].generation == 2


def test_a_measure_that_fails_is_logged_and_no_more(caplog):
    log_capacity(see(has_read_state=False), NOW, fail)
    assert caplog.messages == ["could not measure the capacity"]
