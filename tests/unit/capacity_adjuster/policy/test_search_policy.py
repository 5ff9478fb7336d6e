"""The policy of a search for capacity, step by step, on values."""

from dataclasses import replace

import pytest
import test_decision

from capacity_adjuster.policy.candidate_content import CandidateContent, find_zones, read_content
from capacity_adjuster.policy.candidate_search import (
    CandidateSearch,
    Refusal,
    Rest,
    Stage,
    explain_search,
    list_contents,
    list_order,
)
from capacity_adjuster.policy.decision import Outcome, Wait, decide
from capacity_adjuster.policy.observation import ClusterObservation
from capacity_adjuster.policy.requested_capacity import CapacityRequest, GroupTarget, RequestedCapacity, is_idle
from deeplearning_contract.launch_failures import Scope
from deeplearning_contract.reason import MAX_REASON

LACK_WORDS = test_decision.LACK
NOW = 1_700_000_600
ORDER = ("0", "b", "c")
CONTENTS = list_contents(ORDER, "p4d.24xlarge-on-demand-1f3a")
LIMITS = {"patience_seconds": 180, "search_seconds": 1200}
ASKING = CandidateSearch(3, "0", Stage.ASKING, began=NOW - 100, since=NOW - 60)
LACK = Refusal(Scope.CANDIDATE, "InsufficientInstanceCapacity", 3, 8, zone="us-east-1a")
LEAVING = replace(ASKING, stage=Stage.LEAVING, resting={"0": Rest(NOW + 180, 180)})
REQUEST = CapacityRequest("r", "capacity-1", 1, 8, "0", is_creation=True)
APPLIED = RequestedCapacity(3, REQUEST, ("r",), asks=(GroupTarget("w", 0, 8),), is_open=False)


def rest(search, *refused):
    return replace(search, resting={name: Rest(NOW + 100 * place, 180) for place, name in enumerate(refused, 1)})


def test_a_refusal_is_recorded_with_what_the_candidate_gave():
    left = ASKING.leave(LACK, CONTENTS, NOW)
    (attempt,) = left.attempts
    assert (attempt.launched, attempt.requested, attempt.kind) == (3, 8, "InsufficientInstanceCapacity")
    assert (attempt.began, attempt.ended, attempt.words) == (NOW - 60, NOW, "p4d.24xlarge in us-east-1a")
    assert (left.stage, left.revision, left.candidate) == (Stage.LEAVING, 4, "0")


def test_a_rest_doubles_with_each_refusal_up_to_its_longest():
    search, seconds = ASKING, []
    for _ in range(5):
        search = search.leave(LACK, CONTENTS, NOW)
        seconds.append(search.resting["0"].until - NOW)
    assert seconds == [180, 360, 720, 900, 900]


def test_the_next_is_the_one_after_in_the_order_of_the_settings():
    assert LEAVING.ask_next(ORDER, NOW, **LIMITS).candidate == "b"
    assert LEAVING.ask_next(("0", "c", "b"), NOW, **LIMITS).candidate == "c"
    assert replace(LEAVING, candidate="b").ask_next(ORDER, NOW, **LIMITS).candidate == "c"


def test_the_one_after_the_last_is_the_first_unless_it_rests():
    last = replace(LEAVING, candidate="c", resting={})
    assert last.ask_next(ORDER, NOW, **LIMITS).candidate == "0"
    assert rest(last, "0").ask_next(ORDER, NOW, **LIMITS).candidate == "b"
    assert rest(last, "0").ask_next(ORDER, NOW + 100, **LIMITS).candidate == "0"


def test_a_candidate_that_an_update_has_removed_is_followed_by_the_first():
    assert replace(LEAVING, candidate="gone", resting={}).ask_next(ORDER, NOW, **LIMITS).candidate == "0"


def test_the_next_is_asked_anew():
    held = replace(LEAVING, lease_until=NOW + 60, processes={"w": ("Launch",)}, asked=4)
    following = held.ask_next(ORDER, NOW, **LIMITS)
    assert (following.stage, following.since, following.lease_until) == (Stage.ASKING, 0, 0)
    assert (following.processes, following.asked, following.revision) == ({}, 5, held.revision + 1)


def test_the_search_rests_while_all_do_and_ends_when_none_is_back_in_time():
    search = rest(replace(LEAVING, began=NOW - 900), *ORDER)
    latest = NOW - 900 + LIMITS["search_seconds"] - LIMITS["patience_seconds"]
    assert search.ask_next(ORDER, NOW, **LIMITS).stage is Stage.RESTING
    late = replace(search, resting={name: Rest(latest + 1, 900) for name in ORDER})
    assert late.ask_next(ORDER, NOW, **LIMITS) is None
    one = replace(late, resting={**late.resting, "b": Rest(latest, 900)})
    assert one.ask_next(ORDER, NOW, **LIMITS).stage is Stage.RESTING
    assert one.ask_next(ORDER, latest, **LIMITS).candidate == "b"
    assert one.ask_next(ORDER, latest + 1, **LIMITS) is None


def test_patience_counts_from_the_request_and_ends_with_the_search():
    assert replace(ASKING, since=0).end_patience(180, 1200) == float("inf")
    assert ASKING.end_patience(180, 1200) == NOW + 120
    assert ASKING.end_patience(180, 150) == NOW + 50


QUOTA = replace(LACK, scope=Scope.QUOTA, kind="VcpuLimitExceeded", launched=0)
SMALL, SAME, OTHER = "us-east-1b-p4d.12xlarge-1111", "us-east-1c-p3dn.24xlarge-2222", "us-east-1c-g5.48xlarge-3333"
SPOT, BLOCK = "us-east-1c-p4d.24xlarge-spot-4444", "us-east-1c-p4d.24xlarge-block-5555"


def test_a_quota_rests_what_needs_as_many_of_its_vcpus_and_is_not_reserved():
    order = ("0", SMALL, SAME, OTHER, SPOT, BLOCK)
    contents = list_contents(order, "us-east-1a-p4d.24xlarge-on-demand-0000")
    assert ASKING.leave(QUOTA, contents, NOW).resting == {"0": Rest(NOW + 180, 180), SAME: Rest(NOW + 180, 0)}
    same = replace(ASKING, candidate=SAME).leave(QUOTA, contents, NOW)
    assert set(same.resting) == {"0", SAME}
    assert set(ASKING.leave(LACK, contents, NOW).resting) == {"0"}


@pytest.mark.parametrize(
    ("refused", "other", "is_rested"),
    [
        ("us-east-1a-g5.2xlarge-0001", "us-east-1b-g5.xlarge-0002", False),
        ("us-east-1a-g5.xlarge-0001", "us-east-1b-g5.2xlarge-0002", True),
        ("us-east-1a-m5.xlarge-0001", "us-east-1b-m5.large-0002", False),
        ("us-east-1a-m5.large-0001", "us-east-1b-m5.xlarge-0002", True),
        ("us-east-1a-c7i.metal-24xl-0001", "us-east-1b-c7i.metal-48xl-0002", False),
        ("us-east-1a-g5.xlarge-spot-0001", "us-east-1b-g5.2xlarge-spot-0002", True),
        ("us-east-1a-g5.xlarge-spot-0001", "us-east-1b-g6.xlarge-spot-0002", False),
        ("us-east-1a-p4d.24xlarge-block-0001", "us-east-1b-p4d.24xlarge-block-0002", False),
        ("unknown", "unknown-too", False),
    ],
)
def test_a_quota_that_refuses_a_candidate_rests_another_only_if_it_certainly_refuses_it_too(refused, other, is_rested):
    left = replace(ASKING, candidate=refused).leave(QUOTA, list_contents((refused, other), ""), NOW)
    assert (other in left.resting) is is_rested


def test_a_longer_rest_of_its_own_is_kept_when_the_quota_of_another_rests_a_candidate():
    order = ("us-east-1a-p4d.24xlarge-0001", SAME)
    search = replace(ASKING, candidate=order[0], resting={SAME: Rest(NOW + 500, 360)})
    assert search.leave(QUOTA, list_contents(order, ""), NOW).resting[SAME] == Rest(NOW + 500, 360)


def test_the_rest_of_a_candidate_that_an_update_has_removed_is_forgotten():
    search = replace(ASKING, resting={"gone": Rest(NOW + 100, 180)})
    assert set(search.leave(LACK, CONTENTS, NOW).resting) == {"0"}


def test_a_candidate_is_asked_again_when_its_rest_is_over_and_not_before():
    search = replace(LEAVING, resting={name: Rest(NOW + 100, 180) for name in ORDER})
    assert search.ask_next(ORDER, NOW + 99, **LIMITS).stage is Stage.RESTING
    assert search.ask_next(ORDER, NOW + 100, **LIMITS).stage is Stage.ASKING


def test_a_rest_for_the_quota_of_another_is_no_refusal_of_its_own():
    left = replace(ASKING, candidate=SAME, resting={SAME: Rest(NOW, 0)}).leave(
        LACK, list_contents((SAME, "0"), ""), NOW
    )
    assert left.resting[SAME] == Rest(NOW + 180, 180)


@pytest.mark.parametrize(
    ("tag", "content", "words"),
    [
        ("0", CandidateContent(), "a candidate"),
        (
            "us-east-1b-p4d.24xlarge-spot-1f3a",
            CandidateContent("us-east-1b", "p4d.24xlarge", is_spot=True),
            "p4d.24xlarge in us-east-1b, spot",
        ),
        (
            "us-gov-west-1a-g5.xlarge-block-1f3a",
            CandidateContent("us-gov-west-1a", "g5.xlarge", is_reserved=True),
            "g5.xlarge in us-gov-west-1a, reserved",
        ),
        ("us-west-2-lax-1a-g5.large-1f3a", CandidateContent("us-west-2-lax-1a", "g5.large"), None),
    ],
)
def test_a_tag_tells_zone_type_and_purchase(tag, content, words):
    assert read_content(tag) == content
    assert words in (None, content.words)


def test_the_zones_that_ec2_names_are_part_of_the_reason_and_not_of_the_choice():
    """EC2 names zones that have capacity, some wrongly (danvk/mapsnap#432)."""
    message = "choosing us-east-1b, us-east-1d. Our system will be working on provisioning additional capacity"
    assert find_zones(message) == ("us-east-1b", "us-east-1d")
    search = ASKING.leave(replace(LACK, message=message), CONTENTS, NOW)
    search = replace(search, candidate=OTHER).leave(QUOTA, CONTENTS, NOW)
    reason = explain_search(search, 6, NOW + 3500)
    assert reason.cause == (
        "no candidate gave at least 6 workers in 60 min: p4d.24xlarge in us-east-1a: "
        "InsufficientInstanceCapacity, 3 of 8; g5.48xlarge in us-east-1c: VcpuLimitExceeded, 0 of 8"
    )
    assert reason.remedy.startswith("EC2 names us-east-1b, us-east-1d; try again later")


def test_the_reason_has_the_last_attempt_of_each_candidate_and_a_bounded_length():
    search = ASKING
    for number in range(40):
        name = f"us-east-1b-p4d.24xlarge-{number % 8:04x}"
        search = replace(search, candidate=name).leave(LACK, CONTENTS, NOW)
    assert len(search.attempts) == 16
    reason = explain_search(search, 0, NOW)
    assert reason.cause.startswith("no candidate gave at least 1 workers in 2 min: ")
    assert reason.cause.count("3 of 8") == 8
    assert reason.remedy == "try again later, add a candidate to workers.fallbacks, or reserve capacity"
    assert len(str(reason)) <= MAX_REASON


def test_the_order_is_that_of_the_settings_and_none_without_fallbacks():
    assert list_order("") == ()
    assert list_order("0,b,a") == ("0", "b", "a")
    assert list(list_contents(("0", "b", "a"), "")) == ["0", "b", "a"]


def test_a_request_follows_the_search_with_an_id_of_its_own_that_is_not_known():
    moved = APPLIED.address("b", 1)
    assert (moved.request.candidate, moved.request.request_id, moved.known) == ("b", "r#1", ("r",))
    assert (moved.is_open, moved.asks, moved.former) == (True, (), APPLIED.asks)
    assert not is_idle(None, moved, ())
    closed = replace(moved, is_open=False)
    assert closed.address("b", 1) == closed
    again = closed.address("b", 2)
    assert (again.request.request_id, again.is_open) == ("r#2", True)


def test_a_request_for_the_first_candidate_is_the_stacks_own():
    assert APPLIED.address("0", 0) == APPLIED


def test_a_request_of_a_stack_that_is_deleted_follows_nothing():
    over = APPLIED.end()
    assert over.address("b", 1) == over


@pytest.mark.parametrize(("message", "is_refused"), [(LACK_WORDS, True), ("PendingVerification", False)])
def test_patience_ends_with_a_refusal_unless_the_whole_region_waits(settings, message, is_refused):
    failed = replace(test_decision.launch(400, "Failed", message), message=message)
    pending = replace(test_decision.launch(450, "InProgress"), status="InProgress")
    workers = replace(test_decision.EMPTY, activities=(pending, failed))
    groups = ClusterObservation((test_decision.MASTER, workers))
    options = {"state": None, "adjustment": None, "breaker": None, "settings": settings, "now": test_decision.NOW}
    assert isinstance(decide(groups, **options), Wait)
    assert isinstance(decide(groups, **options, patience_until=test_decision.NOW + 1), Wait)
    assert isinstance(decide(groups, **options, patience_until=test_decision.NOW), Outcome) is is_refused


def judge_patience(settings, workers, master=test_decision.MASTER):
    settings = replace(settings, worker_min_capacity=2, patience_seconds=90)
    options = {"state": None, "adjustment": None, "breaker": None, "settings": settings, "now": test_decision.NOW}
    groups = ClusterObservation((master, replace(workers, activities=(*workers.activities, PENDING))))
    return decide(groups, **options, patience_until=test_decision.NOW)


PENDING = test_decision.launch(450, "InProgress")


def test_a_candidate_has_its_minimum_when_the_patience_is_over_or_is_refused_with_what_it_gave(settings):
    assert isinstance(judge_patience(settings, replace(test_decision.WORKERS, instances=test_decision.nodes(2))), Wait)
    later = replace(test_decision.launch(440, "Failed", LACK_WORDS.replace("1a)", "1b)")), zone="eu-west-1b")
    failed = (later, test_decision.FAILED)
    decision = judge_patience(
        settings, replace(test_decision.SHORT, instances=test_decision.nodes(1), activities=failed)
    )
    assert decision.state.reason.cause == "worker must launch within 90 s, got 1 of 3 workers"
    assert decision.refusal == Refusal(
        Scope.CANDIDATE, "InsufficientInstanceCapacity", 1, 3, message=later.message, zone="eu-west-1b"
    )


def test_a_candidate_without_an_answer_for_its_master_is_refused_for_its_master(settings):
    master = replace(test_decision.MASTER, instances=(), activities=())
    decision = judge_patience(settings, replace(test_decision.WORKERS, instances=test_decision.nodes(2)), master)
    assert decision.state.reason.cause == "master must launch within 90 s, got 2 of 3 workers"
    assert decision.refusal == Refusal(Scope.CANDIDATE, "master: nothing within 90 s", 2, 3)


def test_the_tried_candidates_count_once():
    search = ASKING.leave(LACK, CONTENTS, NOW).leave(LACK, CONTENTS, NOW)
    assert search.count_tried() == 1
    assert replace(search, candidate="b").count_tried() == 2
