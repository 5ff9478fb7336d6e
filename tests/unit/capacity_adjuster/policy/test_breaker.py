"""The breaker, rule by rule, on values, and its record."""

from dataclasses import replace

import pytest
from test_decision import MASTER, NOW, WORKERS, launch, nodes

from capacity_adjuster.aws.state_table import StateTable
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
from capacity_adjuster.policy.decision import (
    Outcome,
    Resume,
    Wait,
    decide,
)
from capacity_adjuster.policy.observation import ClusterObservation, Instance, needs_activities
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS, Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
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


LOST = replace(WORKERS, activities=(launch(0), lose(11), lose(12), lose(13)))
FORMED = ClusterState(
    "training", 3, 1, Phase.FORMED, 4, ("i-00000064",), members=(member(100), member(1)), user_key=member(1).host_key
)
ARMED = Breaker(2, "w", members=("i-00000001", "i-00000064"))
TRIPPED = replace(ARMED, revision=4, is_tripped=True, reason=Reason("why", "resume"))
HELD = replace(LOST, suspended=frozenset({"Launch"}))


@pytest.mark.parametrize("cause", CAUSES)
def test_three_workers_that_a_health_check_took_trip_it(cause):
    lost = replace(LOST, activities=tuple(lose(number, cause=cause) for number in (11, 12, 13)))
    decision = judge_breaker(lost, FORMED, ARMED, NOW)
    assert isinstance(decision, Trip)
    assert decision.failed == ("i-0000000b", "i-0000000c", "i-0000000d")
    assert (decision.breaker.revision, decision.breaker.is_tripped) == (3, True)
    assert cause.partition("taken out")[2].rstrip(".") in str(decision.breaker.reason)
    assert "resume the process Launch of w" in str(decision.breaker.reason)
    assert "(i-0000000b, i-0000000c, i-0000000d)" in decision.breaker.reason.cause
    assert " within 30 minutes " in decision.breaker.reason.cause
    assert not decision.breaker.reason.cause.endswith(".")


@pytest.mark.parametrize("cause", OTHER_CAUSES)
def test_a_termination_by_a_user_or_a_refresh_is_no_failure(cause):
    gone = replace(LOST, activities=tuple(lose(number, cause=cause) for number in (11, 12, 13)))
    assert judge_breaker(gone, FORMED, ARMED, NOW) is None


@pytest.mark.parametrize(
    "workers",
    [
        replace(LOST, activities=LOST.activities[:3]),
        replace(LOST, activities=(lose(11), lose(11), lose(11))),
        replace(LOST, activities=(lose(1), lose(12), lose(13))),
        replace(LOST, activities=(lose(11, at=500 - FAILURE_SECONDS - 1), lose(12), lose(13))),
        replace(LOST, activities=None),
    ],
    ids=["two", "the same thrice", "a member among them", "an old one among them", "not read"],
)
def test_less_than_three_within_half_an_hour_do_not(workers):
    assert judge_breaker(workers, FORMED, ARMED, NOW) is None


def test_a_member_that_left_is_known_by_the_departures_and_by_the_record():
    departed = replace(FORMED, departed=(Departure("i-0000000b", 2, "died"),))
    assert judge_breaker(LOST, departed, ARMED, NOW) is None
    assert judge_breaker(LOST, FORMED, replace(ARMED, members=(*ARMED.members, "i-0000000c")), NOW) is None


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


class Table:
    """One item, with DynamoDB's conditions left to their own test."""

    def __init__(self):
        self.items = {}

    def put_item(self, *, Item, **_):  # noqa: N803 - boto3's name
        self.items[Item["cluster"]["S"]] = Item

    def get_item(self, *, Key, **_):  # noqa: N803 - boto3's name
        return {"Item": self.items.get(Key["cluster"]["S"], {})}


@pytest.mark.fault(28)
def test_a_verdict_on_fifteen_thousand_nodes_survives_its_items():
    table = Table()
    records = StateTable(table, "state", "training")
    names = tuple(f"i-{number:017x}" for number in range(15_000))
    state = ClusterState("training", 1, 1, Phase.LAUNCHED, 15_000, names)
    assert records.write_state(state)
    assert records.read_state() == state
    assert all(len(str(item)) < 400_000 for item in table.items.values())
    assert len(table.items) > 1, "one item would not have held it"


def test_the_record_survives_its_item():
    table = Table()
    records = StateTable(table, "state", "training")
    assert records.read(Breaker) is None
    records.write(TRIPPED)
    assert records.read(Breaker) == TRIPPED
    assert set(table.items) == {"training#breaker"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adjustment", Adjustment), ("breaker", Breaker), ("stop", StopRecord), ("request", RequestedCapacity)],
)
def test_an_unreadable_record_is_replaced_and_delays_nothing(name, kind):
    table = Table()
    records = StateTable(table, "state", "training")
    table.items[f"training#{name}"] = {"cluster": {"S": f"training#{name}"}, "revision": {"N": "7"}}
    blank = records.read(kind)
    assert (blank.revision, blank.lease_until) == (7, 0)
    assert records.write(replace(blank, revision=8))


def test_some_bad_hosts_among_hundreds_do_not_trip_it():
    large = replace(LOST, desired=100)
    assert isinstance(judge_breaker(LOST, FORMED, ARMED, NOW), Trip)
    assert not isinstance(judge_breaker(large, FORMED, ARMED, NOW), Trip)
    five = judge_breaker(replace(large, activities=tuple(lose(number) for number in range(11, 16))), FORMED, ARMED, NOW)
    assert isinstance(five, Trip)
    assert "(i-0000000b, i-0000000c, i-0000000d, …)" in five.breaker.reason.cause
