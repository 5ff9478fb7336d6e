"""A cluster stops by itself when its time or its budget is over: once, whatever dies, and never before."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling_model import START
from stop_machine import BUDGET_TOPIC

from capacity_adjuster.events.notifications import read_budget_message
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.stop_policy import (
    AlreadyStopped,
    ScaledUpAgain,
    StartStop,
    StopRecord,
    judge_stop,
    plan_notice,
)
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import AdjusterSettings

HOUR = 3600
GROUPS = tuple(GroupObservation(role.value, role, 0, 1, 3, created=START) for role in NodeRole)


def choose(stop_after=HOUR):
    return AdjusterSettings("c", "t", "q", "u", 1, 10, "", stop_after, BUDGET_TOPIC)


def judge(now, record=None, *, groups=GROUPS, stop_after=HOUR, message_id=""):
    return judge_stop(groups, record or StopRecord(), settings=choose(stop_after), message_id=message_id, now=now)


def test_the_deadline_counts_from_the_creation_of_the_older_group():
    younger = dataclasses.replace(GROUPS[1], created=START + 600)
    groups = (GROUPS[0], younger)
    assert judge(START + HOUR - 1, groups=groups) is None
    assert judge(START + HOUR, groups=groups) == StartStop(StopRecord(1, cause="deadline"))


def test_a_redeployed_time_takes_effect_at_once():
    assert judge(START + HOUR, stop_after=2 * HOUR) is None
    assert isinstance(judge(START + HOUR, stop_after=HOUR // 2), StartStop)
    assert judge(START + 99 * HOUR, stop_after=0) is None


def test_groups_of_unknown_age_are_not_as_old_as_the_epoch():
    assert isinstance(judge(START + HOUR, groups=(dataclasses.replace(GROUPS[0], created=0.0), GROUPS[1])), StartStop)
    assert judge(START, groups=tuple(dataclasses.replace(group, created=0.0) for group in GROUPS)) is None


@pytest.mark.parametrize("deleting", [0, 1])
def test_a_stack_that_is_being_deleted_is_left_alone(deleting):
    groups = [*GROUPS]
    groups[deleting] = dataclasses.replace(groups[deleting], is_deleting=True)
    assert judge(START + HOUR, groups=tuple(groups)) is None
    assert judge(START, groups=tuple(groups), message_id="m") is None
    assert judge(START + HOUR, groups=()) is None


def test_a_stopped_cluster_rests_until_it_is_scaled_up_and_then_has_all_of_its_time():
    stopped = StopRecord(2, cause="deadline", stopped_at=int(START) + HOUR)
    empty = tuple(dataclasses.replace(group, desired=0) for group in GROUPS)
    assert judge(START + 9 * HOUR, stopped, groups=empty) == AlreadyStopped("the cluster is stopped")
    assert judge(START + HOUR + 59, stopped) == AlreadyStopped("the cluster is stopped"), (
        "the read may be older than the stop"
    )
    assert isinstance(judge(START + HOUR + 60, stopped), ScaledUpAgain)
    allowed = judge(START + 9 * HOUR, stopped)
    assert allowed == ScaledUpAgain(StopRecord(3, counted_from=int(START) + 9 * HOUR, cause="deadline"))
    assert judge(START + 10 * HOUR - 1, allowed.record) is None
    assert isinstance(judge(START + 10 * HOUR, allowed.record), StartStop)


def test_a_budget_message_stops_at_once_and_its_copies_never():
    begun = judge(START, message_id="m-1")
    assert begun == StartStop(StopRecord(1, cause="budget used up", message_id="m-1"))
    allowed = begun.record.close(int(START)).allow(int(START) + 70)
    assert judge(START + 80, allowed, message_id="m-1") is None
    assert isinstance(judge(START + 80, allowed, message_id="m-2"), StartStop)


def test_a_stop_whose_invocation_died_is_carried_on_with_its_own_cause():
    held = StopRecord(4, cause="budget used up", message_id="m-1", lease_until=int(START) + 60)
    assert judge(START + 59, held) == AlreadyStopped("another invocation stops the cluster")
    assert judge(START + 60, held) == StartStop(dataclasses.replace(held, revision=5))


def test_nodes_get_the_notice_a_quarter_of_an_hour_before():
    def plan(now, record=None, groups=GROUPS):
        return plan_notice(groups, record or StopRecord(), settings=choose(), now=now)

    assert plan(START + HOUR - 901) == ""
    said = (
        "the cluster stops by itself at 2023-11-14T23:13:20Z, as long after its creation as spending.stop_after allows"
    )
    assert plan(START + HOUR - 900) == said
    assert plan(START + HOUR - 900, StopRecord(1, counted_from=int(START) + 60)) == ""
    assert plan(START + HOUR, StopRecord(1, stopped_at=int(START) + HOUR)) == ""
    assert plan(START + HOUR, groups=(dataclasses.replace(GROUPS[0], is_deleting=True), GROUPS[1])) == ""
    assert plan(START + HOUR, StopRecord(1, counted_from=int(START)), groups=()) == ""


def publish(topic=BUDGET_TOPIC, message="AWS Budget Notification", source="aws:sns"):
    sns = {"TopicArn": topic, "MessageId": "m-1", "Message": message, "Subject": "AWS Budgets: used up"}
    return {"Records": [{"EventSource": source, "EventSubscriptionArn": f"{topic}:1", "Sns": sns}]}


def test_a_message_is_the_budgets_by_its_topic_and_never_by_its_words():
    assert read_budget_message(publish(), BUDGET_TOPIC) == "m-1"
    assert read_budget_message(publish(message=json.dumps({"Event": "autoscaling:LAUNCH"})), BUDGET_TOPIC) == "m-1"
    assert read_budget_message(publish(topic="arn:aws:sns:us-east-1:123456789012:events"), BUDGET_TOPIC) == ""
    assert read_budget_message(publish(source="somebody"), BUDGET_TOPIC) == ""
    assert read_budget_message(publish(), "") == ""


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just(BUDGET_TOPIC),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["Records", "Sns", "TopicArn"]) | st.text(), inner),
    max_leaves=6,
)


@given(anything)
def test_any_event_is_read_as_a_budget_message_or_as_none(event):
    assert read_budget_message(event, BUDGET_TOPIC) == ""


def test_the_ends_and_the_capacity_block_travel_through_the_environment():
    chosen = dataclasses.replace(choose(), capacity_reservation_id="cr-1")
    assert AdjusterSettings.from_environment(chosen.to_environment()) == chosen
    never = AdjusterSettings("c", "t", "q", "u", 0, 0)
    assert AdjusterSettings.from_environment(never.to_environment()) == never
    optional = {"STOP_AFTER_SECONDS", "BUDGET_TOPIC_ARN", "CAPACITY_RESERVATION_ID"}
    assert not {f"DEEPLEARNING_{name}" for name in optional} & never.to_environment().keys()
    assert {f"DEEPLEARNING_{name}" for name in optional} <= chosen.to_environment().keys()
    assert (never.has_end, chosen.has_end) == (False, True)


FAR = int(START) + 10_000 * HOUR
FORGED = [StopRecord(7, lease_until=FAR), StopRecord(7, stopped_at=FAR), StopRecord(7, counted_from=FAR)]


@pytest.mark.parametrize("record", FORGED, ids=["lease", "stop", "allowance"])
def test_a_time_that_lies_far_ahead_holds_up_no_stop(record):
    decision = judge(START + HOUR, record)
    assert isinstance(decision, StartStop)
    assert decision.record.revision == 8


def test_a_lease_that_an_invocation_can_have_is_believed_to_its_end():
    record = StopRecord(7, cause="deadline", lease_until=int(START) + HOUR + 125)
    assert isinstance(judge(START + HOUR, record), AlreadyStopped)
    assert isinstance(judge(START + HOUR + 125, record), StartStop)
