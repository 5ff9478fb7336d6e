"""Changes of a formed cluster: newcomers, members that leave, their replacements, and the master that takes over."""

import pytest
from membership_bench import Bench, member, name
from model_settings import CLUSTER

from deeplearning_agent.master import MasterEpoch
from deeplearning_agent.membership import transitions
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.transitions import Change
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import MAX_REASON, NO_REASON, Reason

NOBODY = (set(), [])
"""The change of a cluster that stays as it is."""


@pytest.fixture
def ready_bench(bench):
    """A formed cluster of a master and two workers, all healthy."""
    bench.acknowledge(1, 2)
    return bench


# --- Newcomers ----------------------------------------------------------------------------------------


def test_a_worker_that_joins_is_admitted_unless_it_is_silent():
    bench = Bench(workers=4)
    bench.acknowledge(1, 2)
    bench.found = MemberHealth(unanswered={name(4)})
    assert bench.plan() == (set(), [3])
    assert bench.probed == (bench.state().members, (member(3), member(4)))


def test_a_member_that_joins_again_elsewhere_is_no_newcomer(bench):
    bench.join(1, sequence=2, address="10.0.0.99")
    assert bench.plan() == NOBODY


def test_a_worker_that_joined_before_the_member_with_its_address_is_not_admitted():
    bench = Bench(workers=0)
    bench.join(3, address="10.0.0.12")
    bench.join(2, address="10.0.0.99")
    bench.keys["10.0.0.12"] = member(3).host_key
    assert bench.plan() == NOBODY


def test_a_worker_that_proves_to_have_a_members_address_is_admitted_in_its_place(bench):
    bench.keys["10.0.0.11"] = member(3).host_key
    bench.join(3, address="10.0.0.11")
    left = {name(1): Reason(f"its address 10.0.0.11 is {name(3)}'s now")}
    assert bench.controller.plan_change(bench.state()) == Change(left, (member(3, address="10.0.0.11"),))


def test_a_newcomer_that_failed_is_replaced_and_not_admitted_again(ready_bench):
    ready_bench.fail(3, sequence=1)
    assert ready_bench.plan() == NOBODY
    assert ready_bench.ordered == [name(3)]
    ready_bench.join(3, sequence=2)
    assert ready_bench.plan() == NOBODY


def test_a_newcomer_that_is_short_of_gpus_is_replaced_and_not_admitted_however_often_it_asks(ready_bench):
    for sequence in (1, 2, 3):
        ready_bench.join(3, 1, sequence)
        assert ready_bench.plan() == NOBODY
    assert ready_bench.ordered == [name(3)]
    ready_bench.join(4)
    assert ready_bench.plan() == (set(), [4])


def test_a_newcomer_with_more_gpus_moves_no_member():
    bench = Bench(workers=1)
    bench.acknowledge(1)
    bench.join(3, 99)
    left, _ = bench.plan(1)
    assert not left
    assert bench.ordered == []


# --- Members that leave -------------------------------------------------------------------------------


def test_a_member_that_does_not_acknowledge_leaves_after_a_minute_and_has_another_one_when_it_returns(bench):
    bench.acknowledge(1)
    for seconds, left in ((0, set()), (60 - 1, set()), (1, {2})):
        assert bench.plan(after=seconds) == (left, [])
    bench.controller.forget_departed(Change({name(2): Reason("late")}))
    bench.join(2, sequence=2)
    assert bench.plan() == NOBODY


def test_members_that_failed_are_unfit_or_silent_leave():
    bench = Bench(workers=4)
    bench.acknowledge(1, 2, 3, 4)
    bench.fail(1)
    bench.found = MemberHealth(silent={name(2): "it is silent"}, unfit={name(3): "gpu"}, unanswered={name(2)})
    assert bench.plan(4) == ({1, 2, 3}, [])
    assert bench.ordered == [name(1), name(3)]
    assert bench.node.path("/opt/deeplearning/ready_hosts").read_text().splitlines() == [f"{name(0)}:2", f"{name(4)}:2"]


def test_a_former_member_must_join_again(ready_bench):
    ready_bench.controller.forget_departed(Change({name(2): Reason("it is silent")}))
    assert ready_bench.plan(1) == NOBODY
    ready_bench.join(2, sequence=2)
    assert ready_bench.plan(1) == (set(), [2])
    assert not ready_bench.reports.is_ready(name(2), 1)


def test_a_failed_member_is_forgotten_once_its_replacement_is_ordered(ready_bench):
    ready_bench.fail(2)
    assert ready_bench.plan() == ({2}, [])
    ready_bench.controller.forget_departed(Change({name(2): Reason("broken")}))
    assert ready_bench.reports.failed() == ()


# --- Replacements -------------------------------------------------------------------------------------


@pytest.fixture
def make_silent():
    """Return a function that makes a bench whose second worker left because it is silent."""

    def make(*, has_answer=True):
        bench = Bench()
        bench.acknowledge(1, 2)
        bench.found = MemberHealth(silent={name(2): "it is silent"}, unanswered={name(2)}, has_answer=has_answer)
        assert bench.plan() == ({2}, [])
        bench.controller.forget_departed(Change({name(2): Reason("it is silent")}))
        bench.found = MemberHealth(unanswered={name(2)}, has_answer=has_answer)
        return bench

    return make


def test_a_short_silence_costs_no_instance(make_silent):
    bench = make_silent()
    bench.plan(1, after=60 - 1)
    assert (bench.ordered, bench.replacements.awaited()) == ([], (member(2),))
    bench.plan(1, after=1)
    assert (bench.ordered, bench.replacements.awaited()) == ([name(2)], ())


def test_a_silent_node_that_responds_again_has_ten_minutes_to_join(make_silent):
    bench = make_silent()
    bench.found = MemberHealth()
    bench.plan(1, after=600 - 1)
    assert bench.ordered == []
    bench.plan(1, after=1)
    assert bench.ordered == [name(2)]


def test_nobody_is_replaced_while_nobody_responds(make_silent):
    bench = make_silent(has_answer=False)
    bench.plan(1, after=10 * 60)
    assert bench.ordered == []


def test_a_node_that_fails_before_the_cluster_forms_is_replaced_once_it_has_formed(bench):
    bench.acknowledge(1)
    bench.fail(2)
    change = bench.collect_ready()
    assert set(change.left) == {name(2)}
    bench.controller.forget_departed(change)
    bench.restart()
    assert bench.plan(1) == NOBODY
    assert bench.ordered == [name(2)]


def test_a_node_that_ec2_takes_is_not_replaced(ready_bench):
    ready_bench.leave(2)
    ready_bench.found = MemberHealth(silent={name(2): "it is silent"}, unanswered={name(2)})
    ready_bench.plan()
    ready_bench.plan(1, after=60)
    assert ready_bench.ordered == []


def test_a_refused_order_is_repeated_after_a_minute_and_an_accepted_one_never(ready_bench):
    ready_bench.refusals = 1
    ready_bench.fail(2)
    for _ in range(3):
        ready_bench.plan()
    assert ready_bench.ordered == []
    ready_bench.join(2, sequence=3)
    assert ready_bench.plan(1) == NOBODY
    for _ in range(3):
        ready_bench.plan(1, after=60)
    assert ready_bench.ordered == [name(2)]


def test_an_order_for_a_node_that_auto_scaling_has_replaced_is_made(bench):
    bench.is_gone = True
    assert bench.replacements._replace(name(2))
    assert bench.replacements.has_ordered(name(2))


def test_a_silent_node_whose_order_failed_may_come_back(make_silent):
    bench = make_silent()
    bench.refusals = 1
    bench.plan(1, after=60)
    bench.found = MemberHealth()
    bench.join(2, sequence=2)
    assert bench.plan(1) == (set(), [2])
    bench.acknowledge(2)
    assert bench.plan(after=10 * 60) == NOBODY
    assert bench.ordered == []


def test_a_silent_node_whose_order_failed_is_replaced_a_minute_later(make_silent):
    bench = make_silent()
    bench.refusals = 1
    for seconds, ordered in ((60, []), (60 - 1, []), (1, [name(2)]), (60, [name(2)])):
        bench.plan(1, after=seconds)
        assert bench.ordered == ordered


# --- A former master ----------------------------------------------------------------------------------


@pytest.fixture
def followed(bench):
    """A state record in which another instance followed the bench as the master."""
    state, follower = bench.state(), member(9)
    bench.keys[follower.address] = follower.host_key
    members = (follower, *state.members[1:])
    return ClusterState(CLUSTER, 4, 2, Phase.FORMED, 3, state.expected, members=members, has_formed=True)


MUTE = MemberHealth(unanswered={name(9)})


def test_a_master_that_responds_is_not_vacant(bench, followed):
    for _ in range(10):
        assert not bench.controller.is_vacant(followed, member(0))
        bench.clock.now += 900
    assert bench.probed == ((member(0),), followed.members)


@pytest.mark.parametrize(
    ("health", "seconds"),
    [(MUTE, 180), (MemberHealth(unanswered={name(9)}, has_answer=False), 900)],
    ids=["others respond", "nobody responds, so that this node may be the one that is cut off"],
)
def test_a_silent_master_is_vacant_after_minutes(bench, followed, health, seconds):
    bench.found = health
    for pause, is_vacant in ((0, False), (seconds - 1, False), (1, True)):
        bench.clock.now += pause
        assert bench.controller.is_vacant(followed, member(0)) is is_vacant


def test_a_masters_silence_is_counted_anew_after_a_response(bench, followed):
    for health in (MUTE, MemberHealth(), MUTE):
        bench.found = health
        bench.clock.now += 180
        assert not bench.controller.is_vacant(followed, member(0))


def test_a_master_whose_address_has_another_key_is_vacant(bench, followed):
    bench.keys[member(9).address] = member(5).host_key
    bench.controller.is_vacant(followed, member(0))
    bench.clock.now += 180
    assert bench.controller.is_vacant(followed, member(0))


def test_a_master_knows_that_it_was_followed(bench):
    epoch, state = MasterEpoch(bench.node), bench.state()
    assert not epoch.is_superseded(state)
    epoch.record(2)
    assert not epoch.is_superseded(state)
    assert MasterEpoch(bench.node).is_superseded(transitions.take_over(state, member(9), ""))


def test_a_new_master_finds_newcomers_that_respond():
    bench, own = Bench(workers=4), member(9)
    bench.found = MemberHealth(unanswered={name(4)})
    assert bench.controller.look_for_newcomers(bench.state(), own) == (member(3),)
    assert bench.probed == ((own,), (member(3), member(4)))


# --- State records ------------------------------------------------------------------------------------


def test_the_first_membership_contains_the_workers_that_were_left_out():
    state = ClusterState(CLUSTER, 1, 0, Phase.LAUNCHED, 3, ())
    following = transitions.publish(state, [member(0), member(1)], {name(2): Reason("x" * 5000)}, "ssh-ed25519 key")
    assert (following.generation, following.phase, following.user_key) == (1, Phase.PUBLISHED, "ssh-ed25519 key")
    assert following.members == (member(0), member(1))
    assert following.reason.cause.startswith(f"left out {name(2)}: x")
    assert len(str(following.reason)) == MAX_REASON
    assert [gone.instance_id for gone in following.departed] == [name(2)]


def test_remaining_members_keep_their_order_and_newcomers_come_last(bench):
    change = Change({name(1): Reason("gone")}, (member(8), member(7)))
    following = transitions.follow_up(bench.state(3), change)
    assert [m.instance_id for m in following.members] == [name(n) for n in (0, 2, 3, 8, 7)]
    assert (following.generation, following.revision, following.phase) == (2, 4, Phase.FORMED)
    [gone] = following.departed
    assert (gone.instance_id, gone.generation, gone.reason) == (name(1), 2, Reason("gone"))


def test_a_cluster_of_the_requested_size_has_no_reason():
    small = ClusterState(CLUSTER, 3, 1, Phase.FORMED, 3, (), Reason("no capacity"), (member(0), member(1)))
    assert transitions.follow_up(small, Change({}, (member(2),))).reason == NO_REASON
    assert transitions.follow_up(small, Change({name(1): Reason("gone")})).reason == Reason("no capacity")


@pytest.mark.parametrize(
    ("address", "joined", "others", "departed"),
    [("", (), (1, 2), (0,)), (member(1).address, (), (2,), (0, 1)), (member(1).address, (3,), (3,), (0, 1, 2))],
    ids=[
        "the others stay",
        "a worker whose address the master has is gone",
        "newcomers take the place of workers whose address they have",
    ],
)
def test_a_new_master_comes_first_and_waits_for_acknowledgements(bench, address, joined, others, departed):
    master, newcomers = member(9, address=address), [member(number, address=member(2).address) for number in joined]
    following = transitions.take_over(bench.state(), master, "ssh-ed25519 key", newcomers)
    assert following.members[0] == master
    assert [m.instance_id for m in following.members[1:]] == [name(number) for number in others]
    assert [(gone.instance_id, gone.generation) for gone in following.departed] == [(name(n), 2) for n in departed]
    assert (following.phase, following.generation, following.user_key) == (Phase.PUBLISHED, 2, "ssh-ed25519 key")
    assert following.has_formed


def test_several_reasons_are_one_with_all_causes_and_the_first_remedy_and_output():
    reasons = [Reason("a"), Reason("b", "do", "1"), Reason("c", "or do", "2")]
    assert transitions.join_reasons(reasons) == Reason("a; b; c", "do", "1")
    assert transitions.join_reasons(reasons[:1]) == Reason("a")
