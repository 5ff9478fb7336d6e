"""The adjuster keeps its promises in whatever order the world moves, and planted defects are found."""

import itertools
from dataclasses import replace

import pytest
from cluster_machine import ClusterMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from scaling_model import Invocation, World

from capacity_adjuster import reconciliation
from capacity_adjuster.decision import decide
from capacity_adjuster.observation import GroupObservation, Instance
from capacity_adjuster.reconciliation import Reconciliation
from deeplearning_contract.cluster_state import Phase as StatePhase
from deeplearning_contract.names import NodeRole

THOROUGH = settings(
    max_examples=300,
    stateful_step_count=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
HUNT = settings(THOROUGH, max_examples=600, phases=[Phase.generate], print_blob=False)


@pytest.mark.fault(1, 2, 3, 9, 10, 14, 17, 18, 19, 20, 33, 34, 35, 36, 37)
@pytest.mark.defect("D01", "D02", "D03", "D04", "D05", "D07", "D15")
def test_no_history_breaks_a_promise():
    run_state_machine_as_test(ClusterMachine, settings=THOROUGH)


def count_pending_as_launched(patch):
    patch.setattr(Instance, "is_launched", property(lambda self: self.lifecycle in ("Pending", "InService")))
    act_while_activities_run(patch)


def act_while_activities_run(patch):
    patch.setattr(GroupObservation, "is_busy", property(lambda self: False))


def go_below_the_minimum(patch):
    def lax(*arguments, settings, **options):
        return decide(*arguments, settings=replace(settings, worker_min_capacity=0), **options)

    patch.setattr(reconciliation, "decide", lax)


def look_once(patch):
    patch.setattr(Reconciliation, "_settle", lambda self, state=None, own=None: self._look(state, own))


def write_before_signalling(patch):
    def give(self, verdict):
        self._edges.records.write_state(verdict.state)
        return ""

    patch.setattr(Reconciliation, "_give", give)


@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        (count_pending_as_launched, "I6|I3"),
        (go_below_the_minimum, "I1"),
        (look_once, "I2|I6|I7|I3"),
        (write_before_signalling, "failed without telling the stack first"),
    ],
)
def test_the_model_finds_a_planted_defect(plant, promise, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=promise):
        run_state_machine_as_test(ClusterMachine, settings=HUNT)


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
            world.invoke()
        world.end_launch(NodeRole.MASTER)
        world.invoke()
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
    assert world.state.phase is StatePhase.LAUNCHED
    assert calls <= 2 * 40 + 12
