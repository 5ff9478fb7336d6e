"""Log lines are read whoever wrote them; those of nodes and adjuster come merged by time, and each once."""

import itertools
import json
import time

import boto3
import pytest
from hypothesis import given

from deeplearning_contract.reason import Reason
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.log_lines import clean, read_line, read_lines
from deeplearning_view.log_search import LogSearch, Source, choose_sources
from tests.unit.deeplearning_contract.documents import json_values
from tests.unit.deeplearning_view.cluster_responses import (
    LOST_ID,
    MASTER_ID,
    SECONDS,
    WORKER_ID,
    make_line,
    make_responses,
)

BEGIN = time.time() - 100.0
AGO = BEGIN - SECONDS
"""CloudWatch Logs takes lines of about now only."""


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


# --- Search -------------------------------------------------------------------------------------------


def write(group, *lines):
    logs = boto3.client("logs")
    for line in lines:
        stream = line["logStreamName"].replace("[$LATEST]", "")
        known = [entry["logStreamName"] for entry in logs.describe_log_streams(logGroupName=group)["logStreams"]]
        if stream not in known:
            logs.create_log_stream(logGroupName=group, logStreamName=stream)
        event = {"timestamp": line["timestamp"], "message": line["message"]}
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])


@pytest.fixture
def groups(aws):
    for group in ("node-log", "adjuster-log"):
        boto3.client("logs").create_log_group(logGroupName=group)
    write(
        "node-log",
        make_line(MASTER_ID, "master", "second", seconds=AGO + 2),
        make_line(WORKER_ID, "worker", "first", seconds=AGO + 1),
        make_line(WORKER_ID, "worker", "detail", level="DEBUG", seconds=AGO + 4),
        make_line(WORKER_ID, "worker", "trouble", level="WARNING", seconds=AGO + 5),
    )
    write("adjuster-log", make_line("adjuster", "adjuster", "third", seconds=AGO + 3))
    return boto3.client


@pytest.mark.parametrize(
    ("asked", "level", "expected"),
    [
        (("all", "", ""), "INFO", ["first", "second", "third", "trouble"]),
        (("all", "", ""), "DEBUG", ["first", "second", "third", "detail", "trouble"]),
        (("all", "", ""), "WARNING", ["trouble"]),
        (("deeplearning-worker2", WORKER_ID, "worker"), "INFO", ["first", "trouble"]),
        ((LOST_ID, LOST_ID, "worker"), "INFO", []),
        (("adjuster", "", ""), "INFO", ["third"]),
    ],
    ids=["all", "all of any level", "all warnings", "one node", "a node that logged nothing", "the adjuster"],
)
def test_lines_of_the_sources_at_or_above_a_level_are_merged_by_time(groups, asked, level, expected):
    found = LogSearch(groups, choose_sources(make_responses(), *asked), level).read(BEGIN)
    assert [line.message for line in found] == expected


def test_one_node_is_read_from_its_own_stream():
    sources = choose_sources(make_responses(), "deeplearning-worker2", WORKER_ID, "worker")
    assert sources == [Source("node-log", f"worker/{WORKER_ID}")]


def test_followed_lines_come_once_and_as_they_are_logged(groups):
    pauses = iter(range(9))

    def pause(_seconds):
        number = next(pauses)
        write("node-log", make_line(WORKER_ID, "worker", f"news {number}", seconds=time.time() - SECONDS))

    search = LogSearch(groups, choose_sources(make_responses(), "all", "", ""))
    looks = itertools.islice(search.follow(BEGIN, pause), 3)
    messages = [[line.message for line in lines] for lines in looks]
    assert messages == [["first", "second", "third", "trouble"], ["news 0"], ["news 1"]]


def test_a_log_group_that_cannot_be_read_is_an_error_with_the_remedy(aws):
    search = LogSearch(boto3.client, [Source("nothing")])
    with pytest.raises(ViewError, match=r"log group nothing cannot be read: .*; request the permission logs:F"):
        search.read(0)


def test_a_stack_without_log_groups_is_an_error_with_the_remedy():
    with pytest.raises(ViewError, match="the stack has no log group yet; wait until it is being created"):
        choose_sources(make_responses(resources=[]), "all", "", "")
