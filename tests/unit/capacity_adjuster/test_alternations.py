"""Invocations that alternate, call by call, break no promise of the search for capacity."""

from functools import partial

import hypothesis.strategies as st
import pytest
from alternation import Turn, alternate
from cluster_machine import act, crashes, lags
from hypothesis import given, settings
from search_machine import LEASE_SECONDS
from search_model import B, Pool, ask_for_four, begin_search, run_minutes, search_invoke
from test_scaling_model import THOROUGH

from capacity_adjuster.reconcile.adapters import LOST_RACE
from deeplearning_contract.cluster_state import Phase

pytestmark = pytest.mark.usefixtures("silence")
FIRST, SECOND = 0, 1


def live_later(world):
    """Let the groups live, at a time when the watch of one that decides is over."""
    world.pass_time(25)
    world.live_forth()


def begin(steps, minutes=0):
    """Return a world whose first candidate gives so much, some minutes after the stack has asked it."""
    world = begin_search({"0": Pool(steps), B: Pool()})
    run_minutes(world, minutes)
    world.live_forth()
    world.pass_time(60)
    return world


def end(world):
    """Let the timer invoke the adjuster until there is a verdict, and hold it to what each history must come to."""
    world.pass_time(LEASE_SECONDS)
    run_minutes(world, 20)
    assert world.state is not None, "there is no verdict"
    assert world.occupied() <= {world.state.candidate}
    if world.state.phase is Phase.LAUNCHED:
        assert not any(group.suspended for group in world.groups.values()), "a suspension was left behind"


invocations = st.builds(
    partial, st.sampled_from([search_invoke, search_invoke, ask_for_four]), crash_at=crashes, lag=lags
)
numbers = st.sampled_from([FIRST, SECOND])
changes = st.builds(Turn, numbers, st.integers(0, 4))
calls = st.builds(Turn, numbers, st.integers(1, 20), is_every_call=st.just(value=True))
happenings = st.sampled_from([live_later, act("live_forth"), act("react_all"), act("pass_time", 1)])


@pytest.mark.fault(36)
@settings(THOROUGH)
@given(
    steps=st.sampled_from([[(0, 0)], [(0, 1)], [(0, 2)], [(0, 1), (70, 2)], [(0, 2), (70, 0)]]),
    minutes=st.sampled_from([0, 0, 1, 2]),
    pair=st.tuples(invocations, invocations),
    schedule=st.lists(st.one_of(changes, changes, calls, happenings), min_size=3, max_size=9),
)
def test_no_history_of_two_that_alternate_breaks_a_promise(steps, minutes, pair, schedule):
    world = begin(steps, minutes)
    alternate(world, pair, schedule)
    end(world)


@pytest.mark.fault(36)
def test_a_departure_waits_for_a_request_that_another_invocation_applies():
    world = begin([(0, 1)])
    # The request has read the search when the departure begins, and sets desired after it.
    schedule = [Turn(FIRST, 1), Turn(SECOND, 2)]
    timer, request = alternate(world, [search_invoke, ask_for_four], schedule)
    assert timer.outcome == "the candidate is left after the request for its capacity"
    assert request.log.count("set_desired") == 2
    end(world)
    assert len(world.state.expected) == 5


@pytest.mark.fault(36)
def test_a_request_waits_for_a_departure_that_begins_after_it_has_read_the_search():
    world = begin([(0, 1)])
    # The departure finds no request under way, and lowers both groups before this one's record.
    schedule = [Turn(FIRST, 1), Turn(SECOND, 1)]
    timer, request = alternate(world, [search_invoke, ask_for_four], schedule)
    assert timer.outcome == "candidate 0 is being left"
    assert request.outcome == "the request is recorded"
    assert "set_desired" not in request.log
    end(world)
    assert (world.state.candidate, len(world.state.expected)) == (B, 5)


@pytest.mark.fault(36)
def test_a_departure_waits_for_a_shrink_of_another_invocation():
    world = begin([(0, 1), (70, 2)])
    # Too few had launched for the one that leaves, and enough for the one that shrinks.
    schedule = [Turn(FIRST, 1), live_later, Turn(SECOND, 2)]
    timer, event = alternate(world, [search_invoke, search_invoke], schedule)
    assert timer.outcome == "the candidate is left after a shrink"
    assert (event.outcome, event.log.count("set_desired")) == (LOST_RACE, 1)
    end(world)


@pytest.mark.fault(36)
@pytest.mark.parametrize("last", [[Turn(FIRST, 2), Turn(SECOND, 2)], []], ids=["resumes", "raises"])
def test_a_shrink_yields_to_a_departure_that_has_found_none(last):
    """It would resume the processes without which nothing may be lowered, or raise again what has been lowered."""
    world = begin([(0, 1), (70, 2)])
    schedule = [Turn(FIRST, 1), live_later, Turn(SECOND, 0), Turn(FIRST, 1), Turn(SECOND, 2), *last]
    timer, event = alternate(world, [search_invoke, search_invoke], schedule)
    assert (timer.outcome, event.outcome) == ("candidate 0 is being left", LOST_RACE)
    assert not {"suspend", "set_desired", "resume"}.intersection(event.log)
    end(world)
    assert (world.state.candidate, len(world.state.expected)) == (B, 4)
