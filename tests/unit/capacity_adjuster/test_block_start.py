"""Workers wait for the start of their Capacity Block beside a head that forms alone."""

from dataclasses import replace
from datetime import datetime, timezone

import pytest
from botocore.exceptions import ClientError
from model_invocation import RESERVATION, Invocation, ask, invoke
from request_machine import LEASE_SECONDS
from test_requested_capacity import launch_all, make_world, sizes

from capacity_adjuster.policy.requested_capacity import record_request
from capacity_adjuster.reconcile.block_start import LOOK_SECONDS, BlockStart
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import Observer
from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.cluster_state import Phase

pytestmark = pytest.mark.usefixtures("silence")
START = int(datetime(2026, 12, 1, 11, 30, tzinfo=timezone.utc).timestamp())
# EC2 API reference, CapacityReservation, and botocore 1.44.5, `CapacityReservationState`.
WAITING = ["scheduled", "payment-pending", "delayed", "pending", "assessing", "unavailable", "a state of next year"]
OVER = ["expired", "cancelled", "failed", "unsupported", "payment-failed", "not found"]
MOST_CALLS = 20


def seen(state, **changes):
    return replace(CapacityBlock(RESERVATION, state, START, 0), **changes)


def create(state="scheduled", *, minimum=2, crash_at=None):
    """Return a world whose stack has asked for three workers of a block in a state."""
    world = make_world()
    world.settings = replace(world.settings, worker_min_capacity=minimum)
    world.block = seen(state)
    ask(world, world.stack_request("Create", 3), crash_at=crash_at)
    return world


def tick(world, times=1):
    """Let the timer invoke the adjuster; return the last invocation."""
    for _ in range(times):
        world.pass_time(60)
        launch_all(world)
        world.asked = world.workers.desired
        invocation = invoke(world)
    return invocation


def form(world):
    """Let the head launch, and its agent form the cluster."""
    tick(world)
    world.master_publishes()
    world.master_forms()
    return world


def refuse_reads(world, code="UnauthorizedOperation"):
    world.block_error = ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeCapacityReservations")


def begin_block(world, **changes):
    world.block = seen("active", **changes)
    return tick(world)


@pytest.mark.parametrize("state", WAITING)
def test_before_the_start_of_a_block_the_stack_has_its_answer_and_the_master_alone_is_requested(state):
    world = create(state)
    assert sizes(world) == (1, 0)
    assert [answer["Status"] for answer in world.answers] == ["SUCCESS"]
    form(world)
    assert (world.state.phase, len(world.state.expected)) == (Phase.FORMED, 1)
    # The head forms although workers.min_capacity is 2; the agent reads that from the state.
    assert world.state.worker_minimum == 0
    tick(world, 3)
    assert sizes(world) == (1, 0)
    assert not world.signals


def test_an_active_block_is_requested_as_any_capacity_and_read_once():
    world = create("active")
    assert sizes(world) == (1, 3)
    assert world.requested.block is None
    invocations = [tick(world) for _ in range(3)]
    assert world.state.worker_minimum == 2
    assert not any("read_block" in invocation.log for invocation in invocations)


def test_workers_that_come_before_the_head_has_formed_are_counted_against_the_minimum():
    world = create()
    tick(world)
    assert world.state.worker_minimum == 0
    world.block = seen("active")
    tick(world, 2)
    assert (world.state.phase, len(world.state.expected), world.state.worker_minimum) == (Phase.LAUNCHED, 4, 2)


def test_a_block_is_read_at_most_once_a_minute_whatever_invokes_the_adjuster():
    world = form(create())
    world.pass_time(60)
    reads = [invoke(world).log.count("read_block") for _ in range(3)]
    assert reads == [1, 0, 0]
    world.pass_time(LOOK_SECONDS)
    assert invoke(world).log.count("read_block") == 1


def test_of_two_invocations_at_once_one_reads_the_block():
    for position in range(MOST_CALLS):
        world = form(create())
        world.pass_time(60)
        others = []
        mine = invoke(world, meanwhile=[(position, lambda world, others=others: others.append(invoke(world)))])
        assert sum(each.log.count("read_block") for each in (mine, *others)) == 1


@pytest.mark.fault(75)
@pytest.mark.parametrize("crash_at", range(2 * MOST_CALLS))
def test_a_crash_around_any_call_before_and_at_the_start_of_a_block_requests_everything_in_the_end(crash_at):
    world = create(crash_at=crash_at)
    if world.requested is None:
        ask(world, world.requests[0])
    world.pass_time(LEASE_SECONDS)
    tick(world, 2)
    assert sizes(world) == (1, 0)
    assert world.state.worker_minimum == 0
    form(world)
    world.block = seen("active")
    world.pass_time(60)
    invoke(world, crash_at=crash_at)
    world.pass_time(LEASE_SECONDS)
    tick(world, 3)
    assert sizes(world) == (1, 3)
    assert world.requested.block is None
    assert not world.requested.is_open


@pytest.mark.fault(75)
@pytest.mark.parametrize("crash_at", range(2 * MOST_CALLS))
def test_a_block_that_begins_while_a_request_for_the_master_alone_is_resumed_gets_its_workers(crash_at):
    world = create(crash_at=crash_at)
    if world.requested is None:
        ask(world, world.requests[0])
    world.block = seen("active")
    world.pass_time(LEASE_SECONDS)
    tick(world, 3)
    assert sizes(world) == (1, 3)
    assert world.requested.block is None


@pytest.mark.fault(75)
@pytest.mark.parametrize("state", OVER)
def test_a_block_that_never_begins_fails_the_stack_with_the_words(state):
    world = create(state)
    assert sizes(world) == (0, 0)
    assert [answer["Status"] for answer in world.answers] == ["SUCCESS"], "the wait condition fails, with the reason"
    world.asked = 3
    world.pass_time(60)
    invoke(world)
    (signal,) = world.signals
    assert signal.startswith(f"capacity block {RESERVATION} must be active or begin later, got {state}; deploy with")
    assert (world.state.phase, world.state.requested) == (Phase.FAILED, 4)
    world.pass_time(60)
    invoke(world)
    assert world.failures_told == len(world.signals) == 1


@pytest.mark.parametrize("state", OVER)
def test_a_block_that_is_lost_after_the_head_has_formed_leaves_the_head_and_is_reported(state):
    world = form(create())
    world.block = seen(state)
    tick(world, 2)
    assert (world.state.phase, world.signals, sizes(world)) == (Phase.FORMED, [], (1, 0))
    assert str(world.requested.block.reason).startswith(f"capacity block {RESERVATION} must be active")
    assert "read_block" not in begin_block(world).log, "a lost block does not come back"
    world.block = seen("scheduled", reservation_id="cr-0fedcba9876543210")
    tick(world, 2)
    assert sizes(world) == (1, 0), "another block in its place"
    assert world.requested.block.state == "scheduled"
    begin_block(world, reservation_id="cr-0fedcba9876543210")
    assert sizes(world) == (1, 3)


@pytest.mark.fault(75)
@pytest.mark.parametrize("code", ["UnauthorizedOperation", "RequestLimitExceeded"])
def test_a_refused_read_of_the_block_waits_and_is_reported(code):
    world = form(create())
    refuse_reads(world, code)
    tick(world, 5)
    assert (world.state.phase, world.signals, sizes(world)) == (Phase.FORMED, [], (1, 0))
    assert code in str(world.requested.block.reason)
    world.block_error = None
    tick(world)
    assert code not in str(world.requested.block.reason)
    begin_block(world)
    assert sizes(world) == (1, 3)


def test_a_read_that_is_refused_at_the_creation_is_made_again_before_anything_is_requested():
    """Workers of an active block must not be taken for ones that wait, while a new role is denied for some seconds."""
    world = make_world()
    world.block = seen("active")
    refuse_reads(world)
    ask(world, world.stack_request("Create", 3))
    assert sizes(world) == (0, 0)
    assert [answer["Status"] for answer in world.answers] == ["SUCCESS"]
    world.block_error = None
    tick(world)
    assert sizes(world) == (1, 3)


def end_cluster(world):
    """Lower the master, as `deeplearning end` does, or the master when it is idle."""
    world.master.desired = 0
    world.forget_old_answers(world.master)


@pytest.mark.fault(75)
@pytest.mark.parametrize(
    ("change", "requested"),
    [
        (lambda world: None, (1, 3)),
        (lambda world: world.user_sets_desired(1), (1, 1)),
        (end_cluster, (0, 0)),
        (lambda world: ask(world, world.stack_request("Update", 5)), (1, 5)),
    ],
    ids=[
        "nothing else happened",
        "the user scaled the workers",
        "the cluster has ended",
        "the stack asked for another count",
    ],
)
def test_workers_are_requested_once_when_their_block_is_active(change, requested):
    world = form(create())
    change(world)
    begin_block(world)
    assert sizes(world) == requested
    assert world.requested.block is None
    assert not any("read_block" in tick(world).log for _ in range(2))
    world.master_adapts()
    assert len(world.state.members) == max(1, sum(requested))


def give_up(world):
    tick(world)
    world.master_gives_up()


def start_to_delete(world):
    tick(world)
    world.user_deletes_the_stack()


@pytest.mark.parametrize("state", ["active", "cancelled"])
@pytest.mark.parametrize(
    "end", [give_up, start_to_delete, lambda world: ask(form(world), world.stack_request("Delete", 0))]
)
def test_no_block_is_read_for_a_cluster_that_has_failed_or_is_deleted(end, state):
    world = create()
    end(world)
    signals, phase = list(world.signals), world.state.phase
    world.block = seen(state)
    assert not {"read_block", "write_requested"}.intersection(tick(world).log)
    assert (world.workers.desired, world.signals, world.state.phase) == (0, signals, phase)


def test_a_record_of_a_request_waits_for_no_block_of_an_earlier_one():
    world = create()
    assert world.requested.block is not None
    request = replace(world.requested.request, request_id="another")
    assert record_request(world.requested, request).block is None


def test_a_request_without_workers_reads_no_block():
    world = make_world()
    world.block = seen("scheduled")
    invocation = ask(world, world.stack_request("Create", 0))
    assert "read_block" not in invocation.log
    assert sizes(world) == (1, 0)
    assert world.requested.block is None


def test_a_request_that_is_still_being_applied_is_left_to_its_own_invocation():
    """The start of the block would request the workers alone, and forget the master."""
    worlds = (create(crash_at=crash_at) for crash_at in range(2 * MOST_CALLS))
    world = next(world for world in worlds if world.requested is not None and world.requested.asks)
    assert world.requested.is_open
    assert sizes(world) == (0, 0)
    world.block = seen("active")
    world.pass_time(60)
    invocation = Invocation(world)
    observer = Observer(world.settings, invocation.adapters)
    observer.read_once()
    change = CapacityChange(invocation.adapters, observer)
    assert BlockStart(world.settings, invocation.adapters, observer, change).run() == ""
    assert not {"read_block", "write_requested"}.intersection(invocation.log)
