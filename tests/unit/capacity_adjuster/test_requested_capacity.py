"""Capacity that the stack requests is requested of the groups once, despite crashes, duplicates and delays."""

from dataclasses import replace
from functools import partial

import pytest
from alternation import Turn, alternate
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from model_invocation import ask, invoke
from request_machine import LEASE_SECONDS, RequestMachine
from scaling_model import World
from test_crashes import tick
from test_scaling_model import THOROUGH

from capacity_adjuster.policy.requested_capacity import CapacityRequest, RequestedCapacity, find_due, plan_targets
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from capacity_adjuster.reconcile.adapters import LOST_RACE
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

pytestmark = pytest.mark.usefixtures("silence")
WORKER, MASTER = NodeRole.WORKER, NodeRole.MASTER
MOST_CALLS = 14


def make_world(workers=3, *, spare=3, **options):
    """Return a world whose groups are as the template leaves them."""
    world = World(minimum=1, workers=workers, spare=spare, **options)
    world.lambda_seconds = 120
    world.wait_for_the_stack()
    return world


def create(workers=3, **options):
    """Return a world whose stack has asked for capacity."""
    world = make_world(workers, **options)
    ask(world, world.stack_request("Create", workers))
    return world


def sizes(world):
    return (world.master.desired, world.workers.desired)


def launch_all(world):
    for role in NodeRole:
        world.react(role)
        for _ in world.groups[role].running("launch"):
            world.end_launch(role)


def test_no_history_breaks_a_promise():
    run_state_machine_as_test(RequestMachine, settings=settings(THOROUGH, stateful_step_count=12))


def test_creation_asks_for_the_workers_first_and_the_master_last_and_is_answered():
    world = make_world()
    event = world.stack_request("Create", 3)
    invocation = ask(world, event)
    assert sizes(world) == (1, 3)
    assert [each.group for each in world.requested.asks] == ["worker-group", "master-group"]
    assert [name for name in invocation.changes if name != "write_requested"] == [
        "set_desired",
        "set_desired",
        "answer",
    ]
    (answer,) = world.answers
    assert (answer["Status"], answer["RequestId"]) == ("SUCCESS", event["RequestId"])
    assert answer["PhysicalResourceId"]


@pytest.mark.parametrize("is_tried_again", [False, True])
def test_a_crash_around_any_call_of_a_creation_asks_for_everything_in_the_end(is_tried_again):
    """By Lambda's second attempt, or by the timer once the request is recorded."""
    for crash_at in range(2 * MOST_CALLS):
        world = make_world()
        event = world.stack_request("Create", 3)
        ask(world, event, crash_at=crash_at)
        world.pass_time(60)
        if is_tried_again or world.requested is None:
            ask(world, event)
        world.pass_time(LEASE_SECONDS)
        tick(world, 2)
        assert sizes(world) == (1, 3)
        launch_all(world)
        tick(world)
        assert len(world.state.expected) == 4


def test_the_sweep_is_long_enough():
    world = make_world()
    assert len(ask(world, world.stack_request("Create", 3)).log) <= MOST_CALLS


def test_a_users_own_scaling_stays_whatever_is_delivered_again():
    world = create()
    ask(world, world.stack_request("Update", 4))
    world.user_sets_desired(5)
    for event in list(world.requests):
        ask(world, event)
    tick(world)
    assert sizes(world) == (1, 5)


def test_a_users_own_scaling_stays_after_a_crash():
    world = make_world()
    event = world.stack_request("Create", 3)
    ask(world, event, crash_at=11)  # Between the record and the first group.
    assert world.requested.asks
    assert sizes(world) == (0, 0)
    world.by_hand.add(WORKER)
    world.workers.desired = 6
    world.forget_old_answers(world.workers)
    world.pass_time(LEASE_SECONDS)
    tick(world, 2)
    assert sizes(world) == (1, 6)
    assert not world.requested.is_open


def test_a_cluster_of_an_earlier_version_is_not_rescaled():
    """Its template asked for the workers, and a shrink or its user has changed them since."""
    world = World(minimum=1, workers=3, spare=3)
    world.lambda_seconds = 120
    launch_all(world)
    tick(world)
    world.user_sets_desired(2)
    ask(world, world.stack_request("Create", 3))
    tick(world)
    assert sizes(world) == (1, 2)
    assert not world.requested.is_open


def test_a_deletion_in_the_middle_launches_nothing_afterwards():
    for crash_at in range(2 * MOST_CALLS):
        world = make_world()
        event = world.stack_request("Create", 3)
        ask(world, event, crash_at=crash_at)
        if world.requested is None:
            continue
        world.pass_time(LEASE_SECONDS)
        ask(world, world.stack_request("Delete", 0))
        before = sizes(world)
        ask(world, event)
        tick(world)
        assert world.requested.is_over
        assert sizes(world) == before


def test_an_update_that_arrives_after_the_deletion_asks_for_nothing():
    """Lambda tries again for hours what crashed before it was recorded; CloudFormation has gone on long since."""
    world = create(0)
    late = world.stack_request("Update", 3)
    ask(world, late, crash_at=0)
    ask(world, world.stack_request("Delete", 0))
    ask(world, late)
    tick(world)
    assert world.requested.is_over
    assert sizes(world) == (1, 0)


def test_a_deletion_waits_for_an_invocation_that_asks():
    world = make_world()
    ask(world, world.stack_request("Create", 3), crash_at=11)
    assert world.requested.lease_until > world.now
    invocation = ask(world, world.stack_request("Delete", 0))
    assert "sleep" in invocation.log
    assert not world.requested.is_over
    assert invocation.outcome == "crashed", "Lambda tries again"


def fail(world):
    launch_all(world)
    tick(world)
    world.write_as_master(Phase.FAILED, reason=Reason("why"))


def stop(world):
    world.stop = StopRecord(revision=1, stopped_at=int(world.now))
    world.wait_for_the_stack()


@pytest.mark.parametrize(("end", "left"), [(fail, (1, 3)), (stop, (0, 0))])
def test_a_failed_or_stopped_cluster_stays_so_whatever_the_stack_requests(end, left):
    world = create()
    end(world)
    assert "no capacity is requested" in ask(world, world.stack_request("Update", 6)).outcome
    tick(world)
    assert sizes(world) == left
    assert not world.requested.is_open


def test_a_request_waits_for_a_shrink_that_is_under_way_and_ends_one_that_died():
    world = create()
    world.adjustment = Adjustment(1, "worker-group", 3, 3, 2, Reason("why"), ("Launch",), int(world.now) + 300)
    world.workers.suspended = {"Launch"}
    ask(world, world.stack_request("Update", 5))
    assert sizes(world) == (1, 3)
    world.pass_time(301)
    tick(world, 2)
    assert sizes(world) == (1, 5)
    assert not world.workers.suspended


def test_a_request_that_a_shrink_kept_waiting_is_not_lost():
    """The shrink lowers the group between the two, so that it is no longer as the request had found it."""
    for position in range(30):
        world = make_shrinking()
        event = world.stack_request("Update", 5)
        asked = (position, lambda world, event=event: ask(world, event))
        invoke(world, meanwhile=[asked, (position, lambda world: world.react(WORKER))])
        for _ in range(3):
            launch_all(world)
            world.pass_time(LEASE_SECONDS)
            tick(world, 1)
        if world.requested.request.workers == 5:
            assert sizes(world) == (1, 5)


@pytest.mark.fault(36)
def test_a_shrink_yields_to_a_request_that_has_found_none():
    """It would lower again, in its last call, what the request raises after its last read."""
    world = make_shrinking()
    update = partial(ask, event=world.stack_request("Update", 5))
    # The request finds no shrink, and is about to set desired when the shrink begins.
    shrink, _ = alternate(world, [invoke, update], [Turn(0, 0), Turn(1, 2), Turn(0, 2), Turn(1, 9)])
    assert shrink.outcome == LOST_RACE
    assert sizes(world) == (1, 5)


def make_shrinking():
    """Return a world of which one worker could not be launched."""
    world = create()
    for role in NodeRole:
        world.react(role)
    world.end_launch(MASTER)
    for code in ("", "", "capacity"):
        world.end_launch(WORKER, code)
    return world


def test_a_stop_waits_for_capacity_that_is_being_asked_for():
    for position in range(MOST_CALLS):
        world = create(stop_after=600)
        for role in NodeRole:  # What is busy is not looked at for a request, but for a stop.
            world.react(role)
        world.pass_time(700)
        event = world.stack_request("Update", 5)
        ask(world, event, meanwhile=[(position, invoke)])
        world.pass_time(LEASE_SECONDS)
        tick(world, 3)
        assert sizes(world) == (0, 0)


def test_the_candidate_that_is_requested_is_asked_and_no_other():
    world = make_world()
    first, second = world.workers.observe(), replace(world.workers.observe(), name="second", candidate="1")
    request = CapacityRequest("r", "c", 1, 3, "1", is_creation=True)
    master = replace(world.master.observe(), candidate="1")
    asks = plan_targets(RequestedCapacity(1, request, ("r",)), (master, second, first))
    assert [(each.group, each.target) for each in asks] == [("second", 3), ("master-group", 1)]
    assert [each.group for each in find_due(asks, (master, replace(second, desired=7), first))] == ["master-group"]
    assert plan_targets(RequestedCapacity(1, request, ("r",)), (world.master.observe(), first)) is None
