"""The page of a cluster can be read by people: aligned, wrapped, and nothing that matters broken."""

from datetime import datetime, timedelta, timezone

import pytest

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.reason import Reason
from deeplearning_view.rendering import WIDTH, format_age, render_page, render_text
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view.cluster_responses import (
    MASTER_ID,
    make_instance,
    make_item,
    make_line,
    make_responses,
    make_rolled_back,
)

NOW = datetime(2026, 11, 22, 10, 2, tzinfo=timezone.utc)


def render(responses):
    return render_text(make_view(responses, NOW))


def test_a_formed_cluster_is_a_line_for_each_node_below_a_heading():
    lines = render(make_responses()).splitlines()
    assert lines[:2] == [
        "stack      training  CREATE_COMPLETE  us-east-1",
        "cluster    FORMED, 2 of 2 nodes, generation 1, for 2 min 0 s",
    ]
    assert lines[2].startswith("nodes      name                  role    instance             type ")
    assert lines[3].startswith(
        f"           deeplearning-worker1  master  {MASTER_ID}  g5.12xlarge  10.0.0.4  us-east-1a"
    )
    assert lines[3].endswith("running, InService  formed  4     2 min 0 s")
    assert lines[5:] == [
        "image      ami-0123456789abcdef0",
        f"log in     aws ssm start-session --region us-east-1 --target {MASTER_ID}",
    ]


def test_a_failure_is_the_cause_then_what_to_do_then_the_last_lines():
    reason = Reason("master did not launch: no room", "make room")
    lines = [make_line("adjuster", "adjuster", str(reason), "ERROR", reason=reason)]
    page = render(make_rolled_back(str(reason), adjuster_lines=lines))
    assert page.splitlines() == [
        "stack      training  ROLLBACK_COMPLETE  us-east-1",
        "cluster    FAILED, for 2 min 0 s",
        "why        stack: master did not launch: no room",
        "do         make room",
        "log        10:00:00 ERROR   master did not launch: no room; make room",
    ]


def test_long_reasons_are_wrapped_and_no_word_is_broken():
    name = "arn:aws:iam::123456789012:role/" + "x" * 150
    page = render(make_rolled_back(f"{'word ' * 60}{name}; {'more ' * 60}"))
    assert name in page
    assert all(len(line) <= WIDTH or name in line for line in page.splitlines())
    assert all(line.startswith(("stack", "cluster", "why", "do", " " * 11)) for line in page.splitlines())


def test_of_many_nodes_that_are_gone_the_youngest_are_shown():
    gone = [make_instance(f"i-{number:017x}", "worker", "", "terminated") for number in range(20)]
    page = render(make_responses(instances=[*gone, *make_responses().instances]))
    assert page.count("terminated") == 8
    assert "and 12 that are gone" in page


def test_a_failed_read_is_one_line_and_the_rest_of_the_page_is_there():
    page = render(make_responses(unread=["the nodes' log: FilterLogEvents returned AccessDeniedException"]))
    assert page.splitlines()[-1] == "not read   the nodes' log: FilterLogEvents returned AccessDeniedException"
    assert "deeplearning-worker2" in page


def test_a_forming_cluster_shows_its_progress():
    page = render(make_responses("CREATE_IN_PROGRESS", item=make_item(Phase.LAUNCHED, ()), events=[]))
    assert "cluster    FORMING, 0 of 2 nodes, generation 1, phase launched, for 2 min 0 s" in page


def test_a_failure_stands_out_on_a_terminal():
    styles = {line.text[:11].strip(): line.style for line in render_page(make_view(make_rolled_back("no; do"), NOW))}
    assert styles == {"stack": "", "cluster": "bold red", "why": "bold red", "do": "green"}


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=3, seconds=1), "3 min 1 s"),
        (timedelta(hours=5, minutes=30), "5 h 30 min"),
        (timedelta(days=2, hours=1), "2 d 1 h"),
        (timedelta(seconds=-3), "0 s"),
    ],
)
def test_ages_have_two_units_at_most(age, text):
    assert format_age(age.total_seconds()) == text
