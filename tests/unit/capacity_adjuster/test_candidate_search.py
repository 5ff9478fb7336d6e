"""Capacity is searched among candidates, one at a time, until one gives the minimum or the time is over."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from model_invocation import Invocation
from search_machine import LEASE_SECONDS, SearchMachine
from search_model import (
    MASTER,
    PATIENCE_SECONDS,
    SEARCH_SECONDS,
    WORKER,
    B,
    C,
    Pool,
    SearchInvocation,
    ask_for_four,
    begin_search,
    refuse_all,
    run_minutes,
    search_ask,
    search_invoke,
)
from test_crashes import make_world
from test_scaling_model import THOROUGH

from capacity_adjuster.policy.candidate_search import Stage
from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import Phase

pytestmark = pytest.mark.usefixtures("silence")
MOST_CALLS = 40


def test_no_history_breaks_a_promise():
    run_state_machine_as_test(SearchMachine, settings=settings(THOROUGH, stateful_step_count=20))


def stop(world):
    world.stop = StopRecord(revision=1, stopped_at=int(world.now) + 60)
    for group in world.groups.values():
        group.desired = 0
        world.forget_old_answers(group)


def search_in_the_second():
    """Return a world whose first candidate has refused, and whose second has launched."""
    world = begin_search({**refuse_all("0"), B: Pool()})
    run_minutes(world, 10)
    return world


@pytest.mark.parametrize(
    ("first", "kind", "launched"),
    [
        (Pool([(0, 0)]), "InsufficientInstanceCapacity", 0),
        (Pool([(0, 1)]), "InsufficientInstanceCapacity", 1),
        (Pool([(0, 0)], ""), f"nothing within {PATIENCE_SECONDS} s", 0),
        (Pool(master=False), "master: InsufficientInstanceCapacity", 3),
    ],
    ids=["gave nothing", "gave too few", "never answers", "refused its master"],
)
def test_a_candidate_below_the_minimum_is_emptied_and_the_cluster_launches_in_the_next(first, kind, launched):
    world = begin_search({"0": first, B: Pool()})
    run_minutes(world, 12)
    assert (world.state.phase, world.state.candidate, len(world.state.expected)) == (Phase.LAUNCHED, B, 4)
    (attempt,) = world.state.attempts
    assert (attempt.candidate, attempt.kind, attempt.launched) == ("0", kind, launched)
    assert attempt.words == "g5.48xlarge in eu-west-1a"
    assert attempt.ended - attempt.began <= PATIENCE_SECONDS + 60 + 10
    assert first.refusal or attempt.ended - attempt.began >= PATIENCE_SECONDS
    assert world.lowered == [WORKER, MASTER]
    assert world.occupied() == {B}
    assert not any(group.nodes for group in world.pair("0"))
    assert not any(group.suspended for group in world.groups.values())
    (moved,) = world.moves
    assert moved.kind is EventKind.CAPACITY_MOVED
    assert str(moved.reason) == f"capacity moves from candidate 0 to {B}: {kind}"


def test_a_candidate_holds_with_its_minimum():
    world = begin_search({"0": Pool([(0, 2)]), B: Pool()})
    run_minutes(world, 12)
    assert (world.state.phase, world.state.candidate, len(world.state.expected)) == (Phase.LAUNCHED, "0", 3)
    assert world.state.attempts == ()


def test_another_count_while_launches_never_end_does_not_keep_the_patience_from_its_begin():
    world = begin_search({"0": Pool([(0, 0)], ""), B: Pool()})
    world.react_all()
    ask_for_four(world, crash_at=4)
    run_minutes(world, 15)
    assert [attempt.candidate for attempt in world.state.attempts] == ["0"]
    assert (world.state.candidate, len(world.state.expected)) == (B, 5)


def test_a_search_that_is_over_names_what_each_candidate_gave():
    world = begin_search({"0": Pool([(0, 1)]), **refuse_all(B, C)})
    run_minutes(world, 60)
    assert world.state.phase is Phase.FAILED
    assert world.now - world.begun <= SEARCH_SECONDS + 60
    reason = str(world.state.reason)
    assert reason.startswith("no candidate gave at least 2 workers in 2")
    for words in (
        "g5.48xlarge in eu-west-1a: InsufficientInstanceCapacity, 1 of 3; ",
        "p4d.24xlarge in us-east-1b: InsufficientInstanceCapacity, 0 of 3; ",
        "p4d.24xlarge in us-east-1c, spot: InsufficientInstanceCapacity, 0 of 3",
    ):
        assert words in reason
    assert not world.occupied()
    assert world.signals == [reason]


@pytest.mark.parametrize("refusal", ["capacity", "quota", ""], ids=["capacity", "quota", "silent"])
@pytest.mark.parametrize("few", [0, 1])
@pytest.mark.parametrize("master", [True, False])
def test_an_instance_of_a_refused_candidate_is_paid_for_its_patience_and_three_minutes(few, master, refusal):
    world = begin_search({"0": Pool([(0, few)], refusal, master), B: Pool()})
    paid = 0
    while world.state is None:
        world.live_forth()
        paid += 60 * sum(len(group.live) for group in world.pair("0"))
        world.pass_time(60)
        search_invoke(world)
    (attempt,) = world.state.attempts
    assert paid <= (attempt.launched + master) * (PATIENCE_SECONDS + 180)


@pytest.mark.parametrize(
    ("refusal", "words", "seconds"),
    [("image", "", 300), ("volumes", "", 300), ("throttled", "RequestLimitExceeded", 720)],
)
def test_a_cause_that_no_candidate_mends_or_the_whole_region_shares_ends_the_search(refusal, words, seconds):
    world = begin_search({**refuse_all("0", refusal=refusal), B: Pool()})
    run_minutes(world, 12)
    assert world.state.phase is Phase.FAILED
    assert words in str(world.state.reason)
    assert world.now - world.begun <= seconds
    assert not world.moves


def test_a_quota_rests_the_candidates_that_it_refuses_too():
    small, large = "us-east-1b-p4d.12xlarge-1111", "us-east-1c-p4d.24xlarge-2222"
    spot, last = "us-east-1b-p4d.24xlarge-spot-3333", "us-east-1d-p4d.24xlarge-4444"
    pools = {"0": Pool([(0, 0)]), **refuse_all(large, small, last, refusal="quota"), spot: Pool()}
    world = begin_search(pools, order=("0", large, last, spot, small))
    run_minutes(world, 15)
    assert [attempt.candidate for attempt in world.state.attempts] == ["0", large]
    assert world.state.candidate == spot


@pytest.mark.parametrize("tag", ["0", B, C])
@pytest.mark.parametrize("refusal", ["capacity", "", "quota"])
def test_a_candidate_that_has_capacity_all_the_time_is_found(tag, refusal):
    world = begin_search({**refuse_all("0", B, C, refusal=refusal), tag: Pool()})
    run_minutes(world, 60)
    assert (world.state.phase, world.state.candidate) == (Phase.LAUNCHED, tag)


@pytest.mark.parametrize("begin", [300, 600, 900])
def test_a_candidate_that_gets_capacity_later_is_found_after_its_rest(begin):
    world = begin_search({"0": Pool([(0, 0), (begin, 9)]), **refuse_all(B, C)})
    run_minutes(world, 60)
    assert (world.state.phase, world.state.candidate) == (Phase.LAUNCHED, "0")
    assert world.requested.known == ("request-0",), "the search's own requests are not the stack's"


def test_a_lost_node_is_replaced_where_the_cluster_is():
    world = search_in_the_second()
    world.pools[B] = Pool([(0, 9), (700, 2)])
    world.master_publishes_in(B)
    moves = len(world.moves)
    world.lose_node((WORKER, B))
    for _ in range(20):
        world.live_forth()
        world.pass_time(60)
        search_invoke(world)
    assert world.occupied() == {B}
    assert len(world.moves) == moves


def test_another_count_goes_to_the_candidate_that_the_cluster_has_while_the_template_has_it():
    world = search_in_the_second()
    search_ask(world, world.stack_request("Update", 5))
    assert (world.groups[WORKER, B].desired, world.groups[WORKER].desired) == (5, 0)
    for event in list(world.requests):
        search_ask(world, event)
    assert (world.groups[WORKER, B].desired, world.groups[WORKER].desired) == (5, 0)
    for group in world.pair(B):
        group.exists, group.nodes, group.desired = False, [], 0
    world.set_order(("0", C))
    world.pools["0"] = Pool()
    ask_for_four(world)
    assert world.groups[WORKER].desired == 4


@pytest.mark.parametrize(
    ("minutes", "end"), [(0, stop), (1, lambda world: world.user_deletes_the_stack())], ids=["stop", "deletion"]
)
def test_the_search_does_not_undo_a_stop_or_a_deletion(minutes, end):
    world = begin_search({**refuse_all("0"), B: Pool()}, stop_after=3600)
    run_minutes(world, minutes)
    end(world)
    occupied = world.occupied()
    run_minutes(world, 10)
    assert world.occupied() <= occupied
    assert (world.state, world.moves) == (None, [])


def test_another_count_waits_while_a_candidate_is_left():
    world = begin_search({"0": Pool([(0, 1)]), B: Pool()})
    run_minutes(world, 1)
    assert world.search.stage is Stage.LEAVING
    ask_for_four(world)
    assert world.occupied() == {"0"}
    run_minutes(world, 12)
    assert (world.state.candidate, len(world.state.expected)) == (B, 5)


@pytest.mark.parametrize("first", [Pool([(0, 0)]), Pool([(0, 1)]), Pool([(0, 0)], "")], ids=["none", "some", "silent"])
@pytest.mark.parametrize("minutes", [0, 1, 2, 3, 4, 5])
def test_a_crash_around_any_call_changes_nothing_in_the_end(first, minutes):
    for crash_at in range(2 * MOST_CALLS):
        world = begin_search({"0": first, B: Pool()})
        run_minutes(world, minutes)
        world.live_forth()
        world.pass_time(60)
        if search_invoke(world, crash_at=crash_at).outcome != "crashed":
            break
        world.live_forth()
        world.pass_time(LEASE_SECONDS)
        run_minutes(world, 15)
        assert (world.state.phase, world.state.candidate) == (Phase.LAUNCHED, B), crash_at
        assert len(world.state.attempts) == 1
        assert not any(group.suspended for group in world.groups.values()), crash_at


def test_a_late_launch_after_the_departure_is_taken_back_before_the_next_is_asked():
    world = begin_search({"0": Pool([(0, 0)], ""), B: Pool()})
    for role in (MASTER, WORKER):
        world.react(role, listed=False)
    for _ in range(5):
        world.pass_time(60)
        search_invoke(world)
    assert world.search.stage is Stage.LEAVING, "a launch in progress may still give an instance"
    world.end_launch(WORKER)
    run_minutes(world, 12)
    assert world.state.candidate == B
    assert world.occupied() == {B}


def test_a_candidate_is_empty_in_two_reads_some_time_apart():
    world = begin_search({"0": Pool([(0, 0)], master=False), B: Pool()})
    world.live_forth()
    world.pass_time(60)
    invocation = search_invoke(world)
    last = invocation.log[: invocation.log.index("resume")]
    look = ["find", "read_activities", "read_activities"]
    assert last[-7:] == [*look, "sleep", *look]


def test_no_candidate_is_left_after_the_verdict():
    world = begin_search({"0": Pool([(0, 3), (90, 0)]), B: Pool()})
    run_minutes(world, 1)
    assert world.state.phase is Phase.LAUNCHED
    for _ in range(2):
        world.lose_node(WORKER)
    world.pass_time(60)
    for _ in range(5):
        world.live_forth()
        world.pass_time(60)
        search_invoke(world)
    assert (world.state.phase, world.state.candidate, world.moves) == (Phase.FAILED, "0", [])
    assert "InsufficientInstanceCapacity" in str(world.state.reason)


def search_beside_life(world):
    world.live_forth()
    search_invoke(world)
    world.live_forth()


def lose_and_search(world):
    world.pools["0"] = Pool([(0, 0)])
    for _node in world.groups[WORKER].live[1:]:
        world.lose_node(WORKER)
    world.live_forth()
    search_invoke(world)


@pytest.mark.parametrize("first", [Pool([(0, 0)]), Pool([(0, 1)]), Pool([(0, 2)])], ids=["none", "some", "enough"])
@pytest.mark.parametrize("minutes", [0, 1, 2])
@pytest.mark.parametrize("other", [search_invoke, search_beside_life, lose_and_search, ask_for_four])
def test_another_invocation_at_any_call_breaks_no_promise(first, minutes, other):
    for position in range(MOST_CALLS):
        world = begin_search({"0": replace(first), B: Pool()})
        run_minutes(world, minutes)
        world.live_forth()
        world.pass_time(60)
        if other is ask_for_four:
            invocation = ask_for_four(world, meanwhile=[(position, search_beside_life)])
        else:
            invocation = search_invoke(world, meanwhile=[(position, other)])
        if invocation.calls <= position:
            break
        world.pass_time(LEASE_SECONDS)
        run_minutes(world, 20)
        if other is lose_and_search and world.writes[0].phase is Phase.LAUNCHED and world.state.phase is Phase.FAILED:
            continue  # no candidate is left after a verdict
        assert world.state.phase is Phase.LAUNCHED
        assert len(world.state.attempts) <= 1
        assert world.occupied() == {world.state.candidate}
        assert len(world.state.expected) >= 3, "the minimum is two workers"
        assert not any(group.suspended for group in world.pair(world.state.candidate))


class CountingInvocation(Invocation):
    """An invocation of a cluster with one candidate."""

    def call(self, name, effect):
        assert "search" not in name, "a cluster with one candidate has no search"
        return super().call(name, effect)


READS = ["find", "read_state", "read_requested", "acquire_lock"]
LOOK = ["read_activities", "read_activities", "read_adjustment"]


@pytest.mark.parametrize(
    ("outcomes", "calls"),
    [
        (["", "", ""], ["write_state", "notify"]),
        (["capacity", "capacity", "capacity"], ["read_state", "signal", "write_state", "send_event"]),
    ],
)
def test_a_cluster_with_one_candidate_costs_the_same_calls_as_ever(outcomes, calls):
    invocation = CountingInvocation(make_world(outcomes))
    invocation.run()
    assert invocation.log == [*READS, *LOOK, "sleep", "find", *LOOK, *calls, "release_lock"]


def test_eight_candidates_cost_at_most_half_as_many_calls_again_while_they_wait():
    tags = [f"us-east-1b-p4d.24xlarge-{number:04x}" for number in range(7)]

    def count(*fallbacks):
        world = begin_search({"0": Pool([(0, 0)], ""), **refuse_all(*fallbacks)})
        for key in (WORKER, MASTER):  # Launches that are pending, and list no instance yet.
            world.react(key, listed=False)
        world.pass_time(60)
        search_invoke(world)
        world.pass_time(60)
        invocation = SearchInvocation(world)
        invocation.run()
        return len(invocation.log)

    assert count(*tags) <= 1.5 * count()
