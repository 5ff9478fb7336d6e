"""The policy of a search for capacity, step by step, on values."""

from dataclasses import replace

import pytest
from test_decision import EMPTY, FAILED, LACK, MASTER, NO_RECORDS, SHORT, WORKERS, launch, nodes

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

NOW = 1_700_000_600
ORDER = ("0", "b", "c")
CONTENTS = list_contents(ORDER, "p4d.24xlarge-on-demand-1f3a")
LIMITS = {"patience_seconds": 180, "search_seconds": 1200}
ASKING = CandidateSearch(3, "0", Stage.ASKING, began=NOW - 100, since=NOW - 60)
REFUSED = Refusal(Scope.CANDIDATE, "InsufficientInstanceCapacity", 3, 8, zone="us-east-1a")
LEAVING = replace(ASKING, stage=Stage.LEAVING, resting={"0": Rest(NOW + 180, 180)})
REQUEST = CapacityRequest("r", "capacity-1", 1, 8, "0", is_creation=True)
APPLIED = RequestedCapacity(3, REQUEST, ("r",), asks=(GroupTarget("w", 0, 8),), is_open=False)


def rest(search, *refused):
    return replace(search, resting={name: Rest(NOW + 100 * place, 180) for place, name in enumerate(refused, 1)})


LAST = replace(LEAVING, candidate="c", resting={})


def test_a_refusal_is_recorded_with_what_the_candidate_gave():
    left = ASKING.leave(REFUSED, CONTENTS, NOW)
    (attempt,) = left.attempts
    assert (attempt.launched, attempt.requested, attempt.kind) == (3, 8, "InsufficientInstanceCapacity")
    assert (attempt.began, attempt.ended, attempt.words) == (NOW - 60, NOW, "p4d.24xlarge in us-east-1a")
    assert (left.stage, left.revision, left.candidate) == (Stage.LEAVING, 4, "0")


def test_a_rest_doubles_with_each_refusal_up_to_its_longest():
    search, seconds = ASKING, []
    for _ in range(5):
        search = search.leave(REFUSED, CONTENTS, NOW)
        seconds.append(search.resting["0"].until - NOW)
    assert seconds == [180, 360, 720, 900, 900]


@pytest.mark.parametrize(
    ("search", "order", "after", "candidate"),
    [
        (LEAVING, ORDER, 0, "b"),
        (LEAVING, ("0", "c", "b"), 0, "c"),
        (replace(LEAVING, candidate="b"), ORDER, 0, "c"),
        (LAST, ORDER, 0, "0"),
        (rest(LAST, "0"), ORDER, 0, "b"),
        (rest(LAST, "0"), ORDER, 99, "b"),
        (rest(LAST, "0"), ORDER, 100, "0"),
        (replace(LAST, candidate="gone"), ORDER, 0, "0"),
    ],
    ids=["second", "order of the settings", "third", "first after the last", "first rests", "rests for a second more",
         "rest is over", "removed by an update"],
)  # fmt: skip
def test_the_next_is_the_one_after_it_that_does_not_rest(search, order, after, candidate):
    following = search.ask_next(order, NOW + after, **LIMITS)
    assert (following.stage, following.candidate) == (Stage.ASKING, candidate)


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


QUOTA = replace(REFUSED, scope=Scope.QUOTA, kind="VcpuLimitExceeded", launched=0)
SMALL, SAME, OTHER = "us-east-1b-p4d.12xlarge-1111", "us-east-1c-p3dn.24xlarge-2222", "us-east-1c-g5.48xlarge-3333"
FIRST, SPOT, BLOCK = (
    "us-east-1a-p4d.24xlarge-0001",
    "us-east-1c-p4d.24xlarge-spot-4444",
    "us-east-1c-p4d.24xlarge-block-5555",
)


def test_a_quota_rests_what_needs_as_many_of_its_vcpus_and_is_not_reserved():
    order = ("0", SMALL, SAME, OTHER, SPOT, BLOCK)
    contents = list_contents(order, "us-east-1a-p4d.24xlarge-on-demand-0000")
    assert ASKING.leave(QUOTA, contents, NOW).resting == {"0": Rest(NOW + 180, 180), SAME: Rest(NOW + 180, 0)}
    same = replace(ASKING, candidate=SAME).leave(QUOTA, contents, NOW)
    assert set(same.resting) == {"0", SAME}
    assert set(ASKING.leave(REFUSED, contents, NOW).resting) == {"0"}


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


@pytest.mark.parametrize(
    ("refusal", "resting", "expected"),
    [
        (QUOTA, {SAME: Rest(NOW + 500, 360)}, {FIRST: Rest(NOW + 180, 180), SAME: Rest(NOW + 500, 360)}),
        (REFUSED, {"gone": Rest(NOW + 100, 180)}, {FIRST: Rest(NOW + 180, 180)}),
        (REFUSED, {FIRST: Rest(NOW, 0)}, {FIRST: Rest(NOW + 180, 180)}),
    ],
    ids=[
        "keeps a longer one of its own",
        "forgets a removed candidate",
        "a rest for the quota of another does not count",
    ],
)
def test_a_refusal_adds_its_rest_to_those_that_last(refusal, resting, expected):
    search = replace(ASKING, candidate=FIRST, resting=resting)
    assert search.leave(refusal, list_contents((FIRST, SAME), ""), NOW).resting == expected


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
    search = ASKING.leave(replace(REFUSED, message=message), CONTENTS, NOW)
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
        search = replace(search, candidate=name).leave(REFUSED, CONTENTS, NOW)
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
    assert APPLIED.address("0", 0) == APPLIED, "a request for the first candidate is the stack's own"
    assert APPLIED.end().address("b", 1) == APPLIED.end(), "the stack is deleted"


@pytest.fixture
def judge_patience(settings):
    """Decide on groups with a launch under way, some seconds before the patience ends."""

    def judge(workers, master=MASTER, *, early=0):
        workers = replace(workers, activities=(*workers.activities, launch(450, "InProgress")))
        chosen = replace(settings, worker_min_capacity=2, patience_seconds=90)
        groups = ClusterObservation((master, workers))
        return decide(groups, settings=chosen, now=float(NOW), patience_until=NOW + early, **NO_RECORDS)

    return judge


@pytest.mark.parametrize(("message", "is_refused"), [(LACK, True), ("PendingVerification", False)])
def test_patience_ends_with_a_refusal_unless_the_whole_region_waits(judge_patience, message, is_refused):
    workers = replace(EMPTY, activities=(launch(400, "Failed", message),))
    assert isinstance(judge_patience(workers, early=float("inf")), Wait)
    assert isinstance(judge_patience(workers, early=1), Wait)
    assert isinstance(judge_patience(workers), Outcome) is is_refused


def test_a_candidate_has_its_minimum_when_the_patience_is_over_or_is_refused_with_what_it_gave(judge_patience):
    assert isinstance(judge_patience(replace(WORKERS, instances=nodes(2))), Wait)
    later = replace(launch(440, "Failed", LACK.replace("1a)", "1b)")), zone="eu-west-1b")
    decision = judge_patience(replace(SHORT, instances=nodes(1), activities=(later, FAILED)))
    assert decision.state.reason.cause == "worker must launch within 90 s, got 1 of 3 workers"
    assert decision.refusal == Refusal(
        Scope.CANDIDATE, "InsufficientInstanceCapacity", 1, 3, message=later.message, zone="eu-west-1b"
    )


def test_a_candidate_without_an_answer_for_its_master_is_refused_for_its_master(judge_patience):
    master = replace(MASTER, instances=(), activities=())
    decision = judge_patience(replace(WORKERS, instances=nodes(2)), master)
    assert decision.state.reason.cause == "master must launch within 90 s, got 2 of 3 workers"
    assert decision.refusal == Refusal(Scope.CANDIDATE, "master: nothing within 90 s", 2, 3)


def test_the_tried_candidates_count_once():
    search = ASKING.leave(REFUSED, CONTENTS, NOW).leave(REFUSED, CONTENTS, NOW)
    assert search.count_tried() == 1
    assert replace(search, candidate="b").count_tried() == 2
