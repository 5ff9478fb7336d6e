"""Log lines are read whoever wrote them."""

import json

import pytest
from hypothesis import given

from deeplearning_contract.reason import Reason
from deeplearning_view.log_lines import clean, read_line, read_lines
from tests.unit.deeplearning_contract.documents import json_values
from tests.unit.deeplearning_view.cluster_responses import SECONDS, WORKER_ID, make_line


def event(text, stream="2026/11/22/[$LATEST]1"):
    return {"message": text, "logStreamName": stream, "timestamp": int(SECONDS * 1000), "eventId": "1"}


def test_a_line_of_ours_has_its_fields():
    line = read_line(make_line(WORKER_ID, "worker", "mounted", level="WARNING", step="mount", reason=Reason("r", "do")))
    assert (line.node, line.role, line.level, line.message) == (WORKER_ID, "worker", "WARNING", "mounted")
    assert (line.step, line.reason) == ("mount", Reason("r", "do"))
    assert line.at.timestamp() == SECONDS


def test_a_reason_of_a_line_has_no_control_characters_and_its_output_keeps_its_lines():
    reason = Reason("a\x1b[2J\nb", "c\rd", "e\x07\nf\u2028g")
    line = read_line(make_line(WORKER_ID, "worker", "failed", level="ERROR", reason=reason))
    assert line.reason == Reason("a [2J b", "c d", "e\nf\ng")


@given(json_values)
def test_a_reason_of_another_shape_is_passed_over(value):
    line = read_line(make_line(WORKER_ID, "worker", "failed", level="ERROR", reason=value))
    assert line.message == "failed"
    parts = value if isinstance(value, dict) else {}
    assert not line.reason or line.reason.cause == clean(parts["cause"])


def test_the_node_of_a_line_comes_from_the_stream_and_not_from_the_line():
    forged = make_line("i-0000000000000000a", "master", "I am the master") | {"logStreamName": f"worker/{WORKER_ID}"}
    assert (read_line(forged).node, read_line(forged).role) == (WORKER_ID, "worker")


@pytest.mark.parametrize(
    ("text", "level", "message"),
    [
        ("START RequestId: 1 Version: $LATEST\n", "DEBUG", "START RequestId: 1 Version: $LATEST"),
        ("[ERROR] KeyError: 'x'\rTraceback", "ERROR", "[ERROR] KeyError: 'x' Traceback"),
        ("2026-11-22T10:00:00Z 1 Task timed out after 120.00 seconds", "ERROR", None),
        (json.dumps({"level": "WARNING", "message": "slow"}), "WARNING", "slow"),
        (json.dumps({"level": "loud", "message": "odd"}), "INFO", "odd"),
        (json.dumps({"type": "platform.start"}), "DEBUG", None),
        ("[" * 100_000, "INFO", None),
        ("plain words", "INFO", "plain words"),
    ],
)
def test_lambdas_own_lines_are_kept(text, level, message):
    line = read_line(event(text))
    assert (line.node, line.level) == ("adjuster", level)
    assert message is None or line.message == message


def test_lines_of_several_streams_are_merged_by_time_and_empty_ones_left_out():
    lines = [make_line(WORKER_ID, "worker", text, seconds=at) for at, text in ((2, "c"), (0, "a"), (1, ""), (1.5, "b"))]
    assert [line.message for line in read_lines(lines)] == ["a", "b", "c"]
