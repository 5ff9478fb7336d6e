"""Hosts of a job and their ranks, for any request and any GPU counts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import PlanError
from deeplearning_jobs.plan.topology import list_places
from deeplearning_jobs.planner import make_plan
from tests.unit.deeplearning_jobs.plan_samples import make_hosts, make_request


def plan(hosts, launcher="horovod", **changes):
    return make_plan(hosts, make_request(launcher, hosts, **changes))


def size(hosts, **changes):
    """Return (hosts, slots, ranks) of a plan."""
    found = plan(hosts, **changes)
    return len(found.hosts), found.slots, found.ranks


def refusal(hosts, **changes):
    with pytest.raises(PlanError) as caught:
        plan(hosts, **changes)
    return str(caught.value)


P4D = make_hosts("p4d.24xlarge", 3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (3, 8, 24)),
        ({"ranks": 24}, (3, 8, 24)),
        ({"ranks": 16}, (2, 8, 16)),
        ({"ranks": 8}, (1, 8, 8)),
        ({"ranks": 5}, (1, 5, 5)),
        ({"ranks": 1}, (1, 1, 1)),
        ({"gpus_per_member": 1}, (3, 1, 3)),
        ({"gpus_per_member": 3, "ranks": 9}, (3, 3, 9)),
    ],
)
def test_ranks_are_hosts_times_slots_asked_for_or_not(changes, expected):
    assert size(P4D, **changes) == expected


@pytest.mark.defect("D69")
def test_an_odd_number_of_hosts_is_as_good_as_an_even_one():
    assert size(make_hosts("p4d.24xlarge", 5)) == (5, 8, 40)
    assert size(make_hosts("c7i.4xlarge", 7)) == (7, 1, 7)


@pytest.mark.defect("D69")
@pytest.mark.parametrize(("ranks", "nearest"), [(9, "8 and 16"), (15, "8 and 16"), (17, "16 and 24")])
def test_a_number_of_ranks_that_does_not_divide_is_refused_with_the_nearest_two(ranks, nearest):
    assert refusal(P4D, ranks=ranks) == (
        f"--np must be at most 8, the slots of a host, or a multiple of it, got {ranks}; the nearest are {nearest}"
    )


@pytest.mark.parametrize("ranks", [25, 32])
def test_more_ranks_than_slots_are_refused(ranks):
    expected = f"--np must not exceed 3 hosts x 8 slots = 24, got {ranks}; leave it out for 24"
    assert refusal(P4D, ranks=ranks) == expected


def test_more_slots_than_gpus_are_refused():
    assert (
        refusal(P4D, gpus_per_member=9) == "--slots must not exceed the GPUs of a host, got 9 > 8; leave it out for 8"
    )


def test_a_cpu_host_takes_as_many_slots_as_it_is_asked_to():
    assert size(make_hosts("c7i.4xlarge"), gpus_per_member=4) == (2, 4, 8)


@pytest.mark.defect("D70")
@pytest.mark.parametrize("missing", [None, -1])
def test_a_gpu_count_that_no_host_has_is_refused(missing):
    hosts = [P4D[0], replace(P4D[1], gpu_count=missing)]
    assert refusal(hosts).startswith("gpu_count of deeplearning-worker2 must be known, got none")


@pytest.mark.defect("D70")
def test_a_host_whose_type_has_gpus_and_whose_driver_shows_none_is_refused():
    found = refusal(make_hosts("p4d.24xlarge", gpu_counts=[8, 0]))
    assert found.startswith("gpu_count of deeplearning-worker2 must be 8, which p4d.24xlarge has, got 0;")


@pytest.mark.defect("D70")
def test_no_gpus_mean_one_rank_a_host_and_never_eight():
    assert size(make_hosts("c7i.4xlarge")) == (2, 1, 2)


@pytest.mark.parametrize("gpu_count", [1, 3, 5, 7])
def test_odd_gpu_counts_are_slots_like_any_other(gpu_count):
    assert size(make_hosts("p4d.24xlarge", gpu_counts=[gpu_count] * 2)) == (2, gpu_count, 2 * gpu_count)


@pytest.mark.parametrize("slots", [None, 8])
def test_unequal_gpu_counts_are_refused_with_what_every_host_has(slots):
    found = refusal(make_hosts("p4d.24xlarge", gpu_counts=[8, 7, 8]), gpus_per_member=slots)
    assert found.startswith("gpu_count must be equal on every host, got 8 on deeplearning-worker1, 7 on")
    assert "add --slots 7" in found


def test_unequal_gpu_counts_do_when_every_host_has_the_slots():
    assert size(make_hosts("p4d.24xlarge", gpu_counts=[8, 7, 8]), gpus_per_member=7) == (3, 7, 21)


def test_hosts_with_and_without_gpus_do_not_go_together():
    hosts = [make_hosts("c7i.4xlarge")[0], *P4D[1:]]
    for slots in (None, 1):
        assert refusal(hosts, gpus_per_member=slots).startswith(
            "gpu_count must be 0 on every host or on none, got 0 on"
        )


def test_no_hosts_are_refused():
    assert refusal([]) == "hosts must be at least one, got none; wait until the cluster has formed"


@pytest.mark.parametrize("launcher", ["mxnet", "tf-multiworker"])
def test_a_worker_that_drives_a_whole_host_gets_all_its_gpus(launcher):
    found = plan(P4D, launcher)
    assert (found.slots, found.ranks) == (1, 3)
    assert [place.gpus for place in list_places(found)] == [tuple(range(8))] * 3
    halves = plan(P4D, launcher, gpus_per_member=2)
    assert [place.gpus for place in list_places(halves)] == [(0, 1, 2, 3), (4, 5, 6, 7)] * 3


LAYOUTS = st.fixed_dictionaries(
    {
        "launcher": st.sampled_from(tuple(LAUNCHERS)),
        "counts": st.lists(st.integers(-1, 4), min_size=1, max_size=5) | st.integers(0, 9).map(lambda gpus: [gpus] * 3),
        "ranks": st.none() | st.integers(1, 30),
        "slots": st.none() | st.integers(1, 9),
    }
)


@given(LAYOUTS)
def test_any_accepted_plan_has_hosts_times_slots_ranks_that_are_neighbours(layout):
    hosts = [
        replace(P4D[0], name=f"n{at}", gpu_count=gpus, expected_gpu_count=0) for at, gpus in enumerate(layout["counts"])
    ]
    request = make_request(layout["launcher"], hosts, ranks=layout["ranks"], gpus_per_member=layout["slots"])
    found, refused = None, ""
    try:
        found = make_plan(hosts, request)
    except PlanError as error:
        refused = str(error)
    if found is None:
        assert "; " in refused, "a refusal says what to do"
        return
    places = list_places(found)
    assert found.ranks == len(found.hosts) * found.slots == len(places)
    assert layout["ranks"] in {None, found.ranks}
    assert found.hosts == tuple(hosts[: len(found.hosts)]), "the master is always among them, and first"
    assert [place.rank for place in places] == list(range(found.ranks))
    assert [place.host for place in places] == [host.name for host in found.hosts for _ in range(found.slots)]
    for host in found.hosts:
        own = [gpu for place in places if place.host == host.name for gpu in place.gpus]
        assert len(own) == len(set(own)), "no two ranks of a host share a GPU"
        assert all(gpu < host.gpu_count for gpu in own)
        cards = {card for place in places if place.host == host.name for card in place.cards}
        assert cards <= set(range(host.network_cards))
        assert all(place.cards for place in places)
        assert bool(own) == bool(host.gpu_count), "every rank of a GPU host has a GPU"
