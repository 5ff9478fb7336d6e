"""The agents keep their promises whatever happens to them, and many of them form in few calls."""

import time

import pytest
from cluster_model import count_allowed_calls, form_world
from hypothesis import HealthCheck, Phase, example, given, settings
from model_history import Event, History, histories, play
from told_histories import TOLD

from deeplearning_contract.cluster_state import Phase as StatePhase
from tests.depth import EXAMPLES, IS_DEEP

THOROUGH = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
NEW_HOLDER_OF_A_DEAD_MASTERS_ADDRESS = History(
    65527, 0, 0, (Event(60.0, "old ring"), Event(0.0, "two masters"), Event(30.0, "die", 1), Event(0.0, "grow"))
)
"""The second of two masters dies, and a new worker gets its address: the first must not take it for alive."""
SICK_AND_SILENT = History(
    1, 1, 0, (Event(70.0, "GPU fails"), Event(70.0, "worker is silent", 0, 4), Event(10.0, "GPU fails"))
)
ORDER_IS_LOST = History(
    0, 2, 0, (Event(70.0, "GPU fails"), Event(70.0, "cut off", 1, 34), Event(70.0, "cut off"), Event(0.3, "GPU fails"))
)
"""The call that asks for a replacement fails: it must be made again."""
ORDER_IS_LOST_AND_THE_NODE_COMES_BACK = History(
    0,
    4,
    0,
    (Event(70.0, "GPU fails"), Event(70.0, "cut off", 7, 35), Event(70.0, "cut off", 0, 1), Event(10.0, "grow")),
)
"""The same call fails, and the node that was silent answers again before the next one."""
MASTER_CANNOT_PREPARE_ITSELF = History(
    3, 2, 0, (Event(150.0, "master dies"), *[Event(2.0, "master's preparation fails")] * 40)
)
"""The replacement of a master fails its preparation: it must have itself replaced."""


@pytest.mark.fault(26, 27, 29, 32, 43, 44, 45, 46, 47, 48, 49, 56, 64)
@settings(THOROUGH)
@given(histories())
@example(NEW_HOLDER_OF_A_DEAD_MASTERS_ADDRESS)
@example(SICK_AND_SILENT)
@example(MASTER_CANNOT_PREPARE_ITSELF)
@example(ORDER_IS_LOST)
@example(ORDER_IS_LOST_AND_THE_NODE_COMES_BACK)
def test_no_history_breaks_a_promise(history):
    play(history)


@pytest.mark.defect("D22", "D23", "D24", "D27", "D28", "D29", "D30", "D31", "D37", "D41", "D42", "D47")
@pytest.mark.parametrize("history", TOLD.values(), ids=TOLD)
def test_no_told_history_breaks_a_promise(history):
    play(history)


@pytest.mark.parametrize("nodes", [1, 2, 8, 1_000 if IS_DEEP else 100])
def test_forms_within_the_bound_on_calls(nodes, capsys):
    began = time.process_time()
    formed = form_world(nodes)
    with capsys.disabled():
        used = time.process_time() - began
        print(f"\n{nodes} nodes form in {formed.seconds:.0f} s of the model, {used:.1f} s of CPU, {formed.calls} calls")
    assert formed.state.phase is StatePhase.FORMED
    assert len(formed.state.members) == nodes
    assert formed.calls <= count_allowed_calls(nodes, formed.seconds)
