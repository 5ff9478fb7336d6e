"""An invocation may die before or after any call; the next ones converge to the same end (FAULTS 33, 34, 36)."""

import itertools

import invariants
import pytest
from model_invocation import Invocation, invoke
from scaling_model import World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON

pytestmark = pytest.mark.usefixtures("silence")
MOST_CALLS = 42


def make_world(outcomes, *, minimum=1, master=""):
    """Return a world in which every launch has ended."""
    world = World(minimum=minimum, workers=len(outcomes))
    for role in NodeRole:
        world.react(role)
    for code in outcomes:
        world.end_launch(NodeRole.WORKER, code)
    world.end_launch(NodeRole.MASTER, master)
    return world


def tick(world, times=4):
    for _ in range(times):
        world.pass_time(60)
        invoke(world)


def crash_everywhere(outcomes, **options):
    """Yield the world after a crash around every call of the first invocation, and some ticks."""
    for crash_at in range(2 * MOST_CALLS):
        world = make_world(outcomes, **options)
        invoke(world, crash_at=crash_at)
        tick(world)
        invariants.i5_a_verdict_comes(world)
        yield world


def test_the_sweep_is_long_enough():
    invocation = Invocation(make_world(["", "", "capacity", ""]), crash_at=None, lag=0.0, meanwhile=[])
    invocation.run()
    assert invocation.log[-2:] == ["notify", "release_lock"]
    assert len(invocation.log) < MOST_CALLS


@pytest.mark.fault(33, 34)
@pytest.mark.defect("D15")
def test_a_crash_around_any_call_of_a_shrink_changes_nothing_in_the_end():
    for world in crash_everywhere(["", "", "capacity", ""]):
        assert world.state.phase is Phase.LAUNCHED
        assert (world.state.requested, len(world.state.expected)) == (5, 4)
        assert world.workers.desired == 3
        assert world.state.reason.cause.startswith(
            "3 of 4 workers launched, at least 1 were required: InsufficientInst"
        )
        assert not world.workers.suspended, "D15: a suspension was left behind"


@pytest.mark.fault(33, 34)
def test_two_crashes_in_a_row_change_nothing_in_the_end():
    for first, second in itertools.product(range(16, 2 * MOST_CALLS, 4), repeat=2):
        world = make_world(["", "", "capacity", ""])
        invoke(world, crash_at=first)
        world.pass_time(60)
        invoke(world, crash_at=second)
        tick(world, 6)
        assert (world.state.phase, world.state.requested, world.workers.desired) == (Phase.LAUNCHED, 5, 3)
        assert not world.workers.suspended


@pytest.mark.fault(33, 34)
def test_a_crash_around_any_call_of_a_failure_still_tells_the_stack():
    for world in crash_everywhere(["capacity", "capacity", ""], minimum=2):
        assert world.state.phase is Phase.FAILED
        assert set(world.signals) == {str(world.state.reason)}
        assert len(world.signals) <= 2


@pytest.mark.fault(33, 34)
def test_a_crash_around_any_call_of_a_success_tells_the_master_at_most_once():
    for world in crash_everywhere(["", ""]):
        assert world.state.phase is Phase.LAUNCHED
        assert world.state.reason == NO_REASON
        assert len(world.notifications) <= 1


@pytest.mark.fault(17, 36)
def test_another_invocation_between_any_two_calls_does_no_harm():
    for position in range(MOST_CALLS):
        world = make_world(["", "", "capacity", ""])
        invoke(world, meanwhile=[(position, invoke)])
        tick(world)
        assert (world.state.phase, world.state.requested, world.workers.desired) == (Phase.LAUNCHED, 5, 3)
        assert len(world.notifications) == 1
        assert not world.workers.suspended


@pytest.mark.fault(9, 37)
def test_capacity_that_comes_while_the_group_is_held_is_kept():
    """FAULTS 9: a launch that had begun before the processes were suspended ends well."""
    for position in range(MOST_CALLS):
        world = make_world(["", "", "capacity", ""])
        world.pass_time(30)
        happenings = [
            (position, lambda world: world.react(NodeRole.WORKER)),
            (position + 1, lambda world: world.end_launch(NodeRole.WORKER)),
        ]
        invoke(world, lag=3.0, meanwhile=happenings)
        tick(world)
        assert len(world.workers.live) == world.workers.desired == len(world.state.expected) - 1


def test_a_users_suspension_survives_a_crash_around_any_call():
    for crash_at in range(2 * MOST_CALLS):
        world = make_world(["", "", "capacity", ""])
        world.user_suspends("AZRebalance")
        invoke(world, crash_at=crash_at)
        tick(world)
        assert world.workers.suspended == {"AZRebalance"}
