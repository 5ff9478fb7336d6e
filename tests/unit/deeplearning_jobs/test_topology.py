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


P4D = make_hosts("p4d.24xlarge", 3)
CPU = make_hosts("c7i.4xlarge")
UNEQUAL = make_hosts("p4d.24xlarge", gpu_counts=[8, 7, 8])


@pytest.mark.defect("D69", "D70")
@pytest.mark.parametrize(
    ("hosts", "changes", "expected"),
    [
        (P4D, {}, (3, 8, 24)),
        (P4D, {"ranks": 24}, (3, 8, 24)),
        (P4D, {"ranks": 16}, (2, 8, 16)),
        (P4D, {"ranks": 8}, (1, 8, 8)),
        (P4D, {"ranks": 5}, (1, 5, 5)),
        (P4D, {"ranks": 1}, (1, 1, 1)),
        (P4D, {"gpus_per_member": 1}, (3, 1, 3)),
        (P4D, {"gpus_per_member": 3, "ranks": 9}, (3, 3, 9)),
        (make_hosts("p4d.24xlarge", 5), {}, (5, 8, 40)),
        (make_hosts("c7i.4xlarge", 7), {}, (7, 1, 7)),
        (CPU, {}, (2, 1, 2)),
        (CPU, {"gpus_per_member": 4}, (2, 4, 8)),
        *((make_hosts("p4d.24xlarge", gpu_counts=[gpus] * 2), {}, (2, gpus, 2 * gpus)) for gpus in (1, 3, 5, 7)),
        (UNEQUAL, {"gpus_per_member": 7}, (3, 7, 21)),
    ],
)
def test_ranks_are_hosts_times_slots_asked_for_or_not(hosts, changes, expected):
    found = plan(hosts, **changes)
    assert (len(found.hosts), found.slots, found.ranks) == expected


UNKNOWN = [[P4D[0], replace(P4D[1], gpu_count=gpus)] for gpus in (None, -1)]
MIXED = [CPU[0], *P4D[1:]]
NOT_A_MULTIPLE = "--np must be at most 8, the slots of a host, or a multiple of it, got "
NOT_EQUAL = "gpu_count must be equal on every host, got 8 on deeplearning-worker1, 7 on "


@pytest.mark.defect("D69", "D70")
@pytest.mark.parametrize(
    ("hosts", "changes", "said", "remedy"),
    [
        (P4D, {"ranks": 9}, f"{NOT_A_MULTIPLE}9", "the nearest are 8 and 16"),
        (P4D, {"ranks": 15}, f"{NOT_A_MULTIPLE}15", "the nearest are 8 and 16"),
        (P4D, {"ranks": 17}, f"{NOT_A_MULTIPLE}17", "the nearest are 16 and 24"),
        (P4D, {"ranks": 25}, "--np must not exceed 3 hosts x 8 slots = 24, got 25", "leave it out for 24"),
        (P4D, {"ranks": 32}, "--np must not exceed 3 hosts x 8 slots = 24, got 32", "leave it out for 24"),
        (P4D, {"gpus_per_member": 9}, "--slots must not exceed the GPUs of a host, got 9 > 8", "leave it out for 8"),
        (UNKNOWN[0], {}, "gpu_count of deeplearning-worker2 must be known, got none", ""),
        (UNKNOWN[1], {}, "gpu_count of deeplearning-worker2 must be known, got none", ""),
        (
            make_hosts("p4d.24xlarge", gpu_counts=[8, 0]),
            {},
            "gpu_count of deeplearning-worker2 must be 8, which p4d.24xlarge has, got 0",
            "",
        ),
        (UNEQUAL, {}, NOT_EQUAL, "add --slots 7"),
        (UNEQUAL, {"gpus_per_member": 8}, NOT_EQUAL, "add --slots 7"),
        (MIXED, {}, "gpu_count must be 0 on every host or on none, got 0 on", ""),
        (MIXED, {"gpus_per_member": 1}, "gpu_count must be 0 on every host or on none, got 0 on", ""),
        ([], {}, "hosts must be at least one, got none", "wait until the cluster has formed"),
    ],
)
def test_hosts_and_ranks_that_do_not_go_together_are_refused_with_a_remedy(hosts, changes, said, remedy):
    with pytest.raises(PlanError) as caught:
        plan(hosts, **changes)
    assert str(caught.value).startswith(said)
    assert remedy in str(caught.value).partition("; ")[2]


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
