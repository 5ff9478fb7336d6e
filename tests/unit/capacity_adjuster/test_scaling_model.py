"""The adjuster keeps its promises in whatever order the world moves; planted defects are in `mutants.py`."""

import itertools

import pytest
from cluster_machine import ClusterMachine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from model_invocation import Invocation, invoke
from scaling_model import World

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from tests.depth import EXAMPLES

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
        verdicts.add((world.state.phase, world.state.requested, len(world.state.expected), world.state.reason))
    assert len(verdicts) == 1


def test_n_events_cost_a_few_calls_each():
    world = World(minimum=1, workers=40)
    for role in NodeRole:
        world.react(role)
    world.end_launch(NodeRole.MASTER)
    calls = 0
    for _ in range(40):
        world.end_launch(NodeRole.WORKER)
        invocation = Invocation(world, crash_at=None, lag=0.0, meanwhile=[])
        invocation.run()
        calls += len(invocation.log)
    assert world.state.phase is Phase.LAUNCHED
    assert calls <= 2 * 40 + 12
