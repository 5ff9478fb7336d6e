"""An invocation may die before or after any call; the next ones converge to the same end (FAULTS 33, 34, 36)."""

import invariants
import pytest
from model_invocation import Invocation, invoke
from scaling_model import World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

pytestmark = pytest.mark.usefixtures("silence")
MOST_CALLS = 42


def make_world(outcomes, *, minimum=1, master="", **options):
    """Return a world in which every launch has ended."""
    world = World(minimum=minimum, workers=len(outcomes), **options)
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
    invocation = Invocation(make_world(["", "", "capacity", ""]))
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


def test_a_users_suspension_survives_a_crash_around_any_call():
    for crash_at in range(2 * MOST_CALLS):
        world = make_world(["", "", "capacity", ""])
        world.user_suspends("AZRebalance")
        invoke(world, crash_at=crash_at)
        tick(world)
        assert world.workers.suspended == {"AZRebalance"}
