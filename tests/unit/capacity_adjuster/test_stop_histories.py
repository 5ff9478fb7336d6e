"""A cluster that stops by itself, told as histories of the model, and the search for one that goes wrong."""

import dataclasses

import invariants
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from model_invocation import invoke, warn
from stop_machine import BUDGET_TOPIC, LEASE_SECONDS, StopMachine
from test_crashes import MOST_CALLS, make_world, tick
from test_scaling_model import THOROUGH

from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

pytestmark = pytest.mark.usefixtures("silence")
HOUR = 3600


def form():
    """Return a world whose master has formed a cluster that stops after an hour."""
    world = make_world([""] * 3, stop_after=HOUR, budget=BUDGET_TOPIC)
    invoke(world)
    world.master_publishes()
    world.master_forms()
    return world


@pytest.mark.parametrize("phase", [Phase.LAUNCHED, Phase.PUBLISHED, Phase.FORMED, Phase.FAILED])
def test_a_cluster_stops_in_any_phase_and_within_two_ticks(phase):
    world = form()
    world.state = dataclasses.replace(world.state, phase=phase)
    tick(world, 59)
    assert (world.master.desired, world.workers.desired) == (1, 3)
    tick(world, 2)
    assert (world.master.desired, world.workers.desired) == (0, 0)
    (event,) = world.events
    assert (event.kind, event.generation, event.nodes, event.reason) == (EventKind.FINISHED, 1, 4, Reason("deadline"))


def test_a_cluster_that_was_ended_before_is_not_stopped_again_when_it_is_wanted():
    world = form()
    world.user_sets_desired(0)
    world.master.desired = 0
    world.forget_old_answers(world.master)
    tick(world, 62)
    assert world.events == []
    world.user_starts_again(2)
    tick(world, 59)
    assert (world.master.desired, world.workers.desired) == (1, 2)
    tick(world, 3)
    assert (world.master.desired, world.workers.desired) == (0, 0)
    assert len(world.events) == 1


def test_the_workers_end_before_the_master():
    world, order = form(), []
    world.pass_time(HOUR)
    invoke(world, meanwhile=[(n, lambda w: order.append((w.workers.desired, w.master.desired))) for n in range(20)])
    assert list(dict.fromkeys(order)) == [(3, 1), (0, 1), (0, 0)]


def test_a_longer_time_takes_the_notice_back_and_a_capacity_block_keeps_its_own():
    world = form()
    tick(world, 50)
    assert world.state.notice
    world.settings = dataclasses.replace(world.settings, stop_after_seconds=9 * HOUR)
    tick(world, 1)
    assert world.state.notice == ""
    warn(world)
    world.settings = dataclasses.replace(world.settings, stop_after_seconds=HOUR)
    tick(world, 1)
    assert "capacity block" in world.state.notice


def test_a_minimum_that_the_user_has_raised_is_kept():
    world = form()
    world.user_sets_minimum(2)
    tick(world, 62)
    assert (world.master.desired, world.workers.desired) == (0, 2)
    assert world.stop.is_stopped


def test_the_nodes_get_the_notice_once_and_it_goes_with_the_stop():
    world = form()
    tick(world, 44)
    assert world.state.notice == ""
    rings = len(world.notifications)
    tick(world, 14)
    assert world.state.notice.startswith("the cluster stops by itself at ")
    assert len(world.notifications) == rings + 1
    tick(world, 3)
    for role in NodeRole:
        world.react(role)
        world.end_terminations(role)
    tick(world, 2)
    assert world.state.notice == ""


@pytest.mark.fault(17, 36)
def test_a_shrink_gives_way_to_a_stop_that_has_begun_meanwhile():
    position = 1 + invoke(make_world(["", "capacity", ""], stop_after=HOUR)).log.index("suspend")
    world = make_world(["", "capacity", ""], stop_after=HOUR)
    begun = StopRecord(1, cause="deadline", lease_until=int(world.now) + LEASE_SECONDS)
    invoke(world, meanwhile=[(position, lambda w: setattr(w, "stop", begun))])
    assert world.workers.desired == 3, "its call may come after those of the stop"
    assert not world.workers.suspended


@pytest.mark.fault(17, 36)
def test_a_shrink_between_any_two_calls_of_a_stop_raises_nothing_again():
    for position in range(MOST_CALLS):
        world = make_world(["", "capacity", ""], stop_after=HOUR)
        world.pass_time(HOUR - 15)  # The shrink begins before the deadline, and the stop comes in its middle.
        invoke(world, meanwhile=[(position, lambda w: (w.pass_time(15), invoke(w)))])
        world.pass_time(LEASE_SECONDS)
        tick(world, 2)
        invariants.s3_a_stop_comes(world)
        assert not world.workers.suspended


def test_no_history_breaks_a_promise_of_a_stop():
    run_state_machine_as_test(StopMachine, settings=settings(THOROUGH, stateful_step_count=15))
