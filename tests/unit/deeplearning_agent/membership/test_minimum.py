"""The user's minimum remains whoever is left out, and one worker's GPU count moves nobody else."""

import pytest
from rule_checks import Bench, change_of, name

from deeplearning_contract.reason import Reason
from deeplearning_node.failure import StageFailure


def make_bench(minimum, counts):
    """Return a bench whose workers have joined with some GPU counts."""
    bench = Bench(minimum, workers=0)
    for number, gpus in enumerate(counts, start=1):
        bench.join(number, gpus)
    return bench


def form(minimum, counts):
    """Return who is left out of workers with some GPU counts; the state record has the minimum."""
    return make_bench(minimum, counts).leave_out(*range(1, len(counts) + 1))


def test_a_worker_that_is_short_of_gpus_is_left_out_while_the_minimum_remains():
    assert form(2, [2, 2, 1]) == {name(3): Reason("GPU count: it joined with 1 GPUs, most workers have 2")}


def test_a_cluster_never_forms_below_the_minimum_for_a_worker_that_is_short_of_gpus():
    with pytest.raises(StageFailure) as failure:
        form(3, [2, 2, 1])
    assert str(failure.value.reason("master")) == (
        f"worker {name(3)}: 1 of 3 workers failed and at least 3 must remain; the first: "
        "GPU count: it joined with 1 GPUs, most workers have 2"
    )


def test_missing_nodes_and_nodes_short_of_gpus_count_together():
    bench = make_bench(3, [2, 2, 2, 1])
    assert bench.leave_out(1, 2, 3, 4, 9) is None
    bench.clock.now = bench.formation.joined_by.at + 1
    assert set(bench.leave_out(1, 2, 3, 4, 9)) == {name(4), name(9)}
    bench.reports.forget(name(1))
    with pytest.raises(StageFailure, match="joined with 1 GPUs, most workers have 2"):
        bench.leave_out(1, 2, 3, 4, 9)


@pytest.mark.parametrize("counts", [[2, 99], [99, 2], [1, 2], [2, 2, 1, 1], [2, 2, 99], [1, 1, 2], [0, 1, 2], [2]])
def test_without_a_majority_no_node_is_left_out_and_extra_gpus_are_no_fault(counts):
    assert form(0, counts) == {}


@pytest.fixture
def formed():
    """A formed cluster of a master and two workers."""
    bench = Bench()
    bench.acknowledge(1, 2)
    return bench


def test_a_worker_that_is_short_of_gpus_is_replaced_and_not_admitted_however_often_it_asks(formed):
    for sequence in (1, 2, 3):
        formed.join(3, 1, sequence)
        assert change_of(formed) == (set(), [])
    assert formed.ordered == [name(3)]


def test_a_replacement_with_as_many_gpus_as_the_others_is_admitted(formed):
    formed.join(3, 1)
    formed.join(4)
    assert change_of(formed) == (set(), [name(4)])


def test_a_newcomer_that_says_it_has_more_gpus_moves_no_member():
    bench = Bench(workers=1)
    bench.acknowledge(1)
    bench.join(3, 99)
    left, _ = change_of(bench, 1)
    assert not left
    assert bench.ordered == []
