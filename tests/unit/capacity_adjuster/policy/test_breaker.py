"""The breaker, rule by rule, on values."""

from dataclasses import replace

import pytest
from test_decision import MASTER, NOW, WORKERS, launch, nodes

from capacity_adjuster.policy.breaker import (
    FAILURE_SECONDS,
    MOST_FAILURES,
    Breaker,
    Rearm,
    RecordMembers,
    Trip,
    find_failures,
    judge_breaker,
    needs_record,
)
from capacity_adjuster.policy.decision import Outcome, Resume, Wait, decide
from capacity_adjuster.policy.observation import ClusterObservation, Instance, needs_activities
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS, Adjustment
from deeplearning_contract.cluster_state import ClusterState, Departure, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.reason import Reason

TAKEN = "At 2026-11-21T10:00:00Z an instance was taken out of service in response to"
CAUSES = [
    f"{TAKEN} a user health-check.",
    f"{TAKEN} an EC2 health check indicating it has been terminated or stopped.",
    f"{TAKEN} an EC2 instance status checks failure.",
    f"{TAKEN} an ELB system health check failure.",
]
OTHER_CAUSES = [
    f"At 2026-11-21T10:00:00Z a user request changed the capacity. {TAKEN} a difference between desired and ...",
    f"{TAKEN} a user request.",
    f"{TAKEN} an instance refresh.",
    "",
]


def lose(number, *, at=100.0, cause=CAUSES[1]):
    return replace(launch(at, kind="terminate"), instance_id=f"i-{number:08x}", cause=cause)


def member(number):
    return Member(f"i-{number:08x}", f"10.0.0.{number}", 0, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA")


def lose_three(cause):
    return replace(WORKERS, activities=tuple(lose(number, cause=cause) for number in (11, 12, 13)))


LOST = replace(WORKERS, activities=(launch(0), lose(11), lose(12), lose(13)))
FORMED = ClusterState(
    "training", 3, 1, Phase.FORMED, 4, ("i-00000064",), members=(member(100), member(1)), user_key=member(1).host_key
)
ARMED = Breaker(2, "w", members=("i-00000001", "i-00000064"))
TRIPPED = replace(ARMED, revision=4, is_tripped=True, reason=Reason("why", "resume"))
HELD = replace(LOST, suspended=frozenset({"Launch"}))


@pytest.mark.parametrize("cause", CAUSES)
def test_three_workers_that_a_health_check_took_trip_it(cause):
    decision = judge_breaker(lose_three(cause), FORMED, ARMED, NOW)
    assert isinstance(decision, Trip)
    assert decision.failed == ("i-0000000b", "i-0000000c", "i-0000000d")
    assert (decision.breaker.revision, decision.breaker.is_tripped) == (3, True)
    assert cause.partition("taken out")[2].rstrip(".") in str(decision.breaker.reason)
    assert "resume the process Launch of w" in str(decision.breaker.reason)
    assert "(i-0000000b, i-0000000c, i-0000000d)" in decision.breaker.reason.cause
    assert " within 30 minutes " in decision.breaker.reason.cause
    assert not decision.breaker.reason.cause.endswith(".")


DEPARTED = replace(FORMED, departed=(Departure("i-0000000b", 2, "died"),))


@pytest.mark.parametrize(
    ("workers", "state", "breaker"),
    [
        *((lose_three(cause), FORMED, ARMED) for cause in OTHER_CAUSES),
        (replace(LOST, activities=LOST.activities[:3]), FORMED, ARMED),
        (replace(LOST, activities=(lose(11), lose(11), lose(11))), FORMED, ARMED),
        (replace(LOST, activities=(lose(1), lose(12), lose(13))), FORMED, ARMED),
        (replace(LOST, activities=(lose(11, at=500 - FAILURE_SECONDS - 1), lose(12), lose(13))), FORMED, ARMED),
        (replace(LOST, activities=None), FORMED, ARMED),
        (LOST, DEPARTED, ARMED),
        (LOST, FORMED, replace(ARMED, members=(*ARMED.members, "i-0000000c"))),
        (replace(LOST, desired=100), FORMED, ARMED),
    ],
    ids=["scale-in", "user", "refresh", "no cause", "two", "the same thrice", "a member", "an old one", "not read",
         "a departed member", "a recorded member", "three of a hundred"],
)  # fmt: skip
def test_fewer_than_three_failures_of_newcomers_within_half_an_hour_do_not_trip_it(workers, state, breaker):
    assert judge_breaker(workers, state, breaker, NOW) is None


def test_five_failures_trip_it_in_a_group_of_a_hundred():
    lost = replace(LOST, desired=100, activities=tuple(lose(number) for number in range(11, 16)))
    five = judge_breaker(lost, FORMED, ARMED, NOW)
    assert isinstance(five, Trip)
    assert "(i-0000000b, i-0000000c, i-0000000d, …)" in five.breaker.reason.cause


def test_members_are_remembered_and_forgotten_only_when_nothing_names_them():
    assert judge_breaker(WORKERS, FORMED, None, NOW) == RecordMembers(Breaker(1, "w", ("i-00000001", "i-00000064")))
    old = Breaker(7, "w", ("i-00000002", "i-0000000b", "i-0000dead"))
    lost = replace(LOST, activities=LOST.activities[:2])
    assert judge_breaker(lost, FORMED, old, NOW) == RecordMembers(
        Breaker(8, "w", ("i-00000001", "i-00000002", "i-0000000b", "i-00000064"))
    )
    assert judge_breaker(lost, FORMED, ARMED, NOW) is None
    unread = judge_breaker(replace(lost, activities=None), FORMED, old, NOW)
    assert "i-0000dead" in unread.breaker.members, "what was not read names nobody"


def test_a_record_of_another_group_only_lends_its_revision():
    other = replace(TRIPPED, group="gone")
    assert judge_breaker(WORKERS, FORMED, other, NOW) == RecordMembers(Breaker(5, "w", ARMED.members))


def test_once_tripped_it_rests_until_the_user_resumes():
    assert judge_breaker(HELD, FORMED, TRIPPED, NOW) is None
    assert judge_breaker(LOST, FORMED, TRIPPED, NOW) == Rearm(TRIPPED)
    rearmed = TRIPPED.rearm(int(NOW))
    assert (rearmed.revision, rearmed.is_tripped, rearmed.counted_from) == (5, False, int(NOW))
    assert judge_breaker(LOST, FORMED, rearmed, NOW) is None, "the old losses count no more"


def test_an_interrupted_trip_is_completed_once_its_invocation_cannot_be_alive():
    dying = replace(TRIPPED, lease_until=int(NOW) + 10)
    assert judge_breaker(LOST, FORMED, dying, NOW) is None
    assert judge_breaker(LOST, FORMED, dying, NOW + 10 - LONGEST_LEASE_SECONDS) is None
    assert isinstance(judge_breaker(LOST, FORMED, dying, NOW + 10), Trip)
    completed = judge_breaker(replace(HELD, activities=()), FORMED, dying, NOW + 11)
    assert completed == Trip(replace(TRIPPED, revision=5), ())
    for workers in (LOST, HELD, replace(HELD, activities=())):
        assert isinstance(judge_breaker(workers, FORMED, dying, NOW + 11), Trip)
    assert judge_breaker(replace(LOST, activities=()), FORMED, dying, NOW + 11) == Rearm(dying)


def test_before_the_roster_the_cluster_fails_of_it(settings):
    observed = ClusterObservation((MASTER, HELD))
    for state in (None, replace(FORMED, phase=Phase.LAUNCHED, members=(), user_key="")):
        decision = decide(observed, state=state, adjustment=None, breaker=TRIPPED, settings=settings, now=NOW)
        assert isinstance(decision, Outcome)
        assert (decision.state.phase, decision.state.reason) == (Phase.FAILED, Reason("why", "resume"))


def test_a_shrink_under_way_comes_first(settings):
    record = Adjustment(1, "w", 4, 4, 3, Reason("why"), (), int(NOW) + 10)
    observed = ClusterObservation((MASTER, LOST))
    options = {"state": None, "breaker": None, "settings": settings}
    assert isinstance(decide(observed, adjustment=record, now=NOW, **options), Wait)
    assert isinstance(decide(observed, adjustment=record, now=NOW + 11, **options), Resume)


def test_its_record_is_read_only_where_it_can_matter():
    assert not needs_record(WORKERS, None, NOW)
    assert needs_record(WORKERS, FORMED, NOW)
    assert needs_record(HELD, None, NOW)
    assert needs_record(replace(WORKERS, suspended=frozenset({"Launch"})), None, NOW)
    assert needs_record(LOST, None, NOW)
    assert len(find_failures(LOST, None, None, NOW)) == MOST_FAILURES


@pytest.mark.parametrize(("lifecycle", "health"), [("Terminating", "Healthy"), ("InService", "Unhealthy")])
def test_a_node_that_goes_has_its_groups_activities_read(lifecycle, health):
    going = replace(WORKERS, instances=(*nodes(2), Instance("i-00000009", lifecycle, health), *nodes(1, "Pending", 20)))
    assert needs_activities(going, (going, MASTER))
