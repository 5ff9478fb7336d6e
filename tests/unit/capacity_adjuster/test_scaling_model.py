"""The adjuster keeps its promises in whatever order the world moves."""

import itertools
import random

import invariants
import pytest
from cluster_machine import ClusterMachine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from model_invocation import invoke
from recorded_histories import RECORDED
from scaling_model import World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from tests.depth import EXAMPLES

pytestmark = pytest.mark.usefixtures("silence")
THOROUGH = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.fault(1, 2, 3, 9, 10, 14, 17, 18, 19, 20, 33, 34, 35, 36, 37)
@pytest.mark.defect("D01", "D02", "D03", "D04", "D05", "D07", "D15")
def test_no_history_breaks_a_promise():
    run_state_machine_as_test(ClusterMachine, settings=THOROUGH)


@pytest.mark.defect("D01", "D02", "D04", "D05", "D08", "D09", "D20")
@pytest.mark.parametrize("history", RECORDED)
def test_no_recorded_history_breaks_a_promise(history):
    machine, *steps = RECORDED[history]
    state = machine()
    for rule, options in steps:
        getattr(state, rule)(**options)
    state.revisions_follow_each_other()
    state.teardown()


@pytest.mark.fault(18)
@pytest.mark.defect("D04")
@pytest.mark.parametrize("failures", [0, 1, 2])
def test_the_verdict_does_not_depend_on_the_order_of_what_happened(failures):
    verdicts = set()
    for order in set(itertools.permutations(["capacity"] * failures + [""] * (4 - failures))):
        world = World(minimum=2, workers=4)
        for role in NodeRole:
            world.react(role)
        for code in order:
            world.end_launch(NodeRole.WORKER, code)
            invoke(world)
        world.end_launch(NodeRole.MASTER)
        invoke(world)
        state = world.state
        verdicts.add(state and (state.phase, state.requested, len(state.expected), state.reason))
    invariants.i9_the_order_says_nothing(verdicts)
    assert verdicts != {None}


SLEEPS = ("sleep",)
MOST_CALLS_TO_DECIDE = 14
"""Two looks of four or five reads each, the request, the watch, the verdict and the notification."""


def count_calls(invocation):
    return sum(name not in SLEEPS for name in invocation.log)


@pytest.mark.fault(17, 18, 19, 39)
@pytest.mark.parametrize("workers", [40, 1000])
def test_a_thousand_nodes_form_with_few_calls_whatever_becomes_of_their_events(workers):
    """Events come twice, out of order and not at all; at most two calls an event and a dozen for the decision."""
    world, chance = World(minimum=1, workers=workers), random.Random(workers)  # noqa: S311 - a seed, no secret
    for role in NodeRole:
        world.react(role)
    world.end_launch(NodeRole.MASTER)
    calls = events = 0
    while world.workers.running("launch"):
        world.end_launch(NodeRole.WORKER, count=20)
        world.pass_time(1)
        box, world.box = [event for event in world.box * 2 if chance.random() < 0.7], []
        for _ in box:
            calls += count_calls(invoke(world, lag=chance.choice((0.0, 3.0))))
        events += len(box)
    world.pass_time(60)
    calls += count_calls(invoke(world))
    assert world.state.phase is Phase.LAUNCHED
    assert len(world.state.expected) == 1 + workers
    assert calls <= 2 * events + MOST_CALLS_TO_DECIDE
    late = [count_calls(invoke(world)) for _ in range(20)]
    assert set(late) == {3}, "an event after the verdict costs three reads"
