"""Workers of the first membership: which are left out, the minimum that remains, and the set-up time."""

import contextlib

import pytest
from membership_bench import Bench, member, name

from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.transitions import Change
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.reason import Reason
from deeplearning_node.failure import StageFailure


def make_bench(minimum, counts):
    """Return a bench whose workers have joined with some GPU counts."""
    bench = Bench(minimum, workers=0)
    for number, gpus in enumerate(counts, start=1):
        bench.join(number, gpus)
    return bench


def form(minimum, counts):
    """Return the workers that are left out of some with these GPU counts."""
    return make_bench(minimum, counts).leave_out(*range(1, len(counts) + 1))


# --- Workers that are short of GPUs -------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "counts", [[2, 8], [2, 99], [99, 2], [1, 2], [2, 2, 1, 1], [2, 2, 99], [1, 1, 2], [0, 1, 2], [2]]
)
def test_without_a_majority_no_node_is_left_out_and_extra_gpus_are_no_fault(counts):
    assert form(0, counts) == {}


# --- Workers that failed or are missing ---------------------------------------------------------------


def test_all_workers_may_fail_when_none_is_needed(bench):
    bench.fail(1, 2)
    assert set(bench.leave_out(1, 2)) == {name(1), name(2)}


def test_a_failure_below_the_minimum_fails_the_cluster():
    bench = Bench(minimum=2)
    bench.fail(2)
    with pytest.raises(StageFailure, match=f"worker {name(2)}: 1 of 2 workers failed and at least 2"):
        bench.leave_out(1, 2)


@pytest.mark.parametrize("cause", ["broken", f"{name(1)} is broken"])
def test_the_only_worker_is_blamed_alone_and_named_once(cause):
    bench = Bench(workers=1, minimum=1)
    bench.fail(1, reason=Reason(cause, "mend it", "the last line"))
    with pytest.raises(StageFailure) as failure:
        bench.leave_out(1)
    assert (failure.value.remedy, failure.value.output) == ("mend it", "the last line")
    assert str(failure.value) == (cause if name(1) in cause else f"worker {name(1)}: {cause}")


@pytest.mark.fault(43, 51)
@pytest.mark.defect("D20", "D22", "D23")
def test_missing_workers_below_the_minimum_fail_the_cluster_at_the_reserve():
    bench = Bench(minimum=3)
    bench.clock.now += 899
    with pytest.raises(StageFailure) as failure:
        bench.leave_out(1, 2, 3, 4)
    cause = "the set-up time of 900 s is over and 2 of 4 workers are missing: "
    missing = f"{name(3)} never reported, {name(4)} never reported"
    told = failure.value
    assert (told.cause, told.stage, told.where) == (cause + missing, "form the cluster", None)
    assert told.remedy == "read the agent's log on them, or allow more time"


def test_a_missing_worker_is_waited_for_until_the_reserve(bench):
    assert bench.leave_out(1, 2, 3) is None
    bench.clock.now += 900 - 89
    assert bench.leave_out(1, 2, 3) == {name(3): Reason(f"{name(3)} never reported")}


def test_half_of_the_reserve_is_for_acknowledgements(bench):
    formation = bench.formation
    assert (formation.joined_by.at, formation.ready_by.at) == (formation.deadline.at - 90, formation.deadline.at - 45)


def test_the_end_of_the_set_up_time_has_a_cause_and_no_remedy(bench):
    bench.formation.check_deadline("nobody came")
    bench.clock.now += 900
    with pytest.raises(StageFailure) as failure:
        bench.formation.check_deadline("nobody came")
    told = (failure.value.cause, failure.value.remedy, failure.value.stage)
    assert told == ("the set-up time of 900 s is over: nobody came", "", "form the cluster")


@pytest.mark.parametrize(
    ("minimum", "expected", "is_complete"),
    [
        (0, (1, 2), True),
        (0, (1, 2, 3), False),
        (3, (1, 3), False),
        (0, (1, 2, 4), True),
        (3, (1, 2, 3, 4), False),
        (4, (1, 2, 3, 4), True),
    ],
)
def test_no_failed_worker_is_waited_for_and_none_at_all_when_too_few_are_left(minimum, expected, is_complete):
    bench = Bench(minimum=minimum)
    bench.fail(4, sequence=1)
    with contextlib.suppress(StageFailure):
        bench.leave_out(*expected)
    assert bench.is_complete is is_complete


@pytest.mark.parametrize(
    ("workers", "minimum", "has_formed", "is_enough"), [(2, 2, False, True), (1, 2, False, False), (1, 2, True, True)]
)
def test_a_membership_has_enough_with_the_minimum_and_always_once_it_has_formed(
    bench, workers, minimum, has_formed, is_enough
):
    state = Bench(minimum=minimum).state(workers, Phase.PUBLISHED, has_formed=has_formed)
    assert bench.formation.has_enough(state) is is_enough


# --- Acknowledgements ---------------------------------------------------------------------------------

SILENT = Reason("it is silent")


@pytest.fixture
def make_half_ready():
    """Return a function that makes a bench whose first worker is ready and whose second one is silent."""

    def make(minimum=2):
        bench = Bench(minimum=minimum)
        bench.acknowledge(1)
        bench.found = MemberHealth(silent={name(2): SILENT.cause})
        return bench

    return make


def test_a_silence_before_the_cluster_forms_is_a_reboot_at_first():
    bench = Bench(workers=3)
    bench.acknowledge(1)
    state = bench.state(workers=3, phase=Phase.PUBLISHED)
    bench.found = MemberHealth(silent=dict.fromkeys((name(1), name(2)), SILENT.cause))
    for seconds in (0, 45 - 1):
        bench.clock.now += seconds
        assert bench.collect_ready(state) is None
    bench.clock.now += 1
    assert bench.collect_ready(state) == Change({name(2): SILENT}), "the third is awaited"


def test_a_silent_worker_without_which_too_few_remain_is_awaited_until_the_reserve(make_half_ready):
    bench = make_half_ready()
    assert bench.collect_ready() is None
    bench.clock.now = bench.formation.ready_by.at - 1
    assert bench.collect_ready() is None
    bench.clock.now += 1
    with pytest.raises(StageFailure, match="1 of 2 workers failed and at least 2 must remain; the first: it is silent"):
        bench.collect_ready()


def test_a_replacement_takes_the_place_of_a_silent_worker_once_it_is_no_reboot(make_half_ready):
    bench = make_half_ready()
    bench.join(3)
    assert bench.collect_ready() is None
    bench.clock.now += 45
    assert bench.collect_ready() == Change({name(2): SILENT}, (member(3),))


@pytest.mark.parametrize("number", [1, 2])
def test_a_replacement_at_the_address_of_a_worker_shows_that_it_is_gone(make_half_ready, number):
    bench, newcomer = make_half_ready(), member(3, address=member(number).address)
    bench.keys[newcomer.address] = newcomer.host_key
    bench.join(3, address=newcomer.address)
    cause = Reason(f"its address {newcomer.address} is {name(3)}'s now")
    assert bench.collect_ready() == Change({name(number): cause}, (newcomer,))


def test_nobody_joins_before_the_cluster_forms_while_nobody_is_lost(make_half_ready):
    bench = make_half_ready(minimum=0)
    bench.join(3)
    assert bench.collect_ready() is None

    def acknowledge_meanwhile(state):
        bench.acknowledge(2)
        return bench.controller.look(state)

    for look in (acknowledge_meanwhile, bench.controller.look):
        assert bench.collect_ready(look=look) == Change({})


def test_a_new_master_of_a_formed_cluster_admits_nobody_before_the_acknowledgements(make_half_ready):
    bench = make_half_ready()
    bench.join(3)
    state = bench.state(phase=Phase.PUBLISHED, has_formed=True)
    assert bench.collect_ready(state) == Change({name(2): SILENT})


def test_a_cluster_that_has_formed_may_lose_all_its_workers():
    bench = Bench(minimum=2)
    bench.fail(1, 2)
    change = bench.collect_ready(bench.state(phase=Phase.PUBLISHED, has_formed=True))
    assert (set(change.left), change.joined) == ({name(1), name(2)}, ())
