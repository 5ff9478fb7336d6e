"""The promises are all there, and each can be broken: a check that cannot fail would hold nothing."""

import invariants
import pytest
from invariants import INVARIANTS
from model_invocation import invoke
from scaling_model import World
from test_crashes import make_world
from test_histories import boot_in_vain, form, kill, launch
from test_requested_capacity import create

from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason


def break_i3():
    world = launch()
    kill(world, NodeRole.WORKER)
    invariants.i3_the_verdict_names_what_lives(world, world.state)


def break_i4():
    first = launch().state
    other = first.advance(Phase.LAUNCHED, expected=first.expected[:2])
    invariants.i4_each_generation_is_one_membership(first, other)


def break_i6():
    world = World(minimum=1, workers=2)
    world.react(NodeRole.WORKER)
    invariants.i6_nothing_is_decided_while_anything_runs(world)


def break_i8():
    world = launch(3)
    world.user_sets_desired(2)
    invariants.i8_desired_is_what_lives(world.state, [(None, world.workers.observe())])


def break_i11():
    world = form()
    invariants.i11_the_stack_hears_nothing_early(world, None, world.state)


def break_b2():
    world = form()
    kill(world, NodeRole.WORKER)
    boot_in_vain(world, 3)
    world.workers.suspended.clear()
    invariants.b2_the_breaker_trips(world)


def break_s2():
    world = World(minimum=1, workers=2)
    world.stop = StopRecord(stopped_at=1)
    invariants.s2_a_stop_and_a_shrink_exclude_each_other(world, is_stop=False)


def break_e1():
    world = launch()
    world.state = world.state.advance(Phase.FAILED, reason=Reason("why"))
    event = ClusterEvent(kind=EventKind.FAILED, cluster="training", generation=1, nodes=0, reason=Reason("why"))
    invariants.e1_a_failure_is_reported_once(world, event)
    world.failures_told = 1
    invariants.e1_a_failure_is_reported_once(world, event)


def break_w4():
    world = create()
    world.workers.desired = 1
    invariants.w4_the_request_is_carried_out(world)


def requested(**changes):
    world = create()
    for name, value in changes.items():
        setattr(world, name, value)
    return world


def break_w5():
    world = requested(stop=StopRecord(stopped_at=1))
    for group in world.groups.values():
        group.desired = 0
    invariants.w5_a_request_gives_way(world)


BREAKS = {
    "W1": lambda: invariants.w1_no_more_is_asked_for_than_requested(requested(), NodeRole.WORKER, 4),
    "W2": lambda: invariants.w2_nobodys_own_scaling_is_overwritten(NodeRole.WORKER, {NodeRole.WORKER}),
    "W3": lambda: invariants.w3_nothing_is_asked_for_after_the_end(requested(is_deleted=True)),
    "W4": break_w4,
    "W5": break_w5,
    "E1": break_e1,
    "I1": lambda: invariants.i1_desired_keeps_to_the_policy(World(minimum=2, workers=3), 1),
    "I2": lambda: invariants.i2_desired_is_only_lowered(World(minimum=1, workers=3), 3),
    "I3": break_i3,
    "I4": break_i4,
    "I5": lambda: invariants.i5_a_verdict_comes(World(minimum=1, workers=3)),
    "I6": break_i6,
    "I7": lambda: invariants.i7_a_shrink_terminates_nothing(launch(3), 2),
    "I8": break_i8,
    "I9": lambda: invariants.i9_the_order_says_nothing(["launched", "failed"]),
    "I10": lambda: invariants.i10_again_is_the_same(launch(2).record, launch(3).record),
    "I11": break_i11,
    "I12": lambda: invariants.i12_quiet_after_the_verdict(invoke(make_world(["", ""])).changes),
    "B1": lambda: invariants.b1_the_breaker_trips_for_a_cause(form()),
    "B2": break_b2,
    "S1": lambda: invariants.s1_a_stop_has_its_time(World(minimum=1, workers=2, stop_after=600)),
    "S2": break_s2,
    "S3": lambda: invariants.s3_a_stop_comes(World(minimum=1, workers=2)),
    "S4": lambda: invariants.s4_a_stop_is_reported_once(World(minimum=1, workers=2), 1),
}


def test_every_invariant_of_the_catalogue_is_checked():
    assert set(INVARIANTS) == set(BREAKS)
    assert len(BREAKS) == 24


@pytest.mark.parametrize("number", BREAKS)
def test_each_invariant_can_be_broken(number):
    with pytest.raises(AssertionError, match=f"^{number}: "):
        BREAKS[number]()
