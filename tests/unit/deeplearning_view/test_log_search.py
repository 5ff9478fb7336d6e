"""Log lines of nodes and adjuster come merged by time, and each once."""

import itertools
import time

import boto3
import pytest

from deeplearning_view.aws_responses import ViewError
from deeplearning_view.log_search import LogSearch, Source, choose_sources
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


def read(clients, sources, level="INFO"):
    return [line.message for line in LogSearch(clients, sources, level).read(BEGIN)]


def test_all_lines_are_merged_by_time(groups):
    sources = choose_sources(make_responses(), "all", "", "")
    assert read(groups, sources) == ["first", "second", "third", "trouble"]


def test_one_node_is_read_from_its_own_stream(groups):
    sources = choose_sources(make_responses(), "deeplearning-worker2", WORKER_ID, "worker")
    assert sources == [Source("node-log", f"worker/{WORKER_ID}")]
    assert read(groups, sources) == ["first", "trouble"]


def test_a_node_that_logged_nothing_has_no_lines(groups):
    assert read(groups, choose_sources(make_responses(), LOST_ID, LOST_ID, "worker")) == []


def test_the_adjuster_is_read_alone(groups):
    assert read(groups, choose_sources(make_responses(), "adjuster", "", "")) == ["third"]


def test_the_level_is_the_lowest_that_is_shown(groups):
    sources = choose_sources(make_responses(), "all", "", "")
    assert read(groups, sources, "DEBUG") == ["first", "second", "third", "detail", "trouble"]
    assert read(groups, sources, "WARNING") == ["trouble"]


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
