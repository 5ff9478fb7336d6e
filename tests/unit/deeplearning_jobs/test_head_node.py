"""Jobs of a cluster whose master has no GPU: it starts them, and the workers' GPUs run the ranks."""

import itertools
from dataclasses import replace

import pytest

from deeplearning_contract.membership import Member, named_members
from deeplearning_jobs.hosts.preflight import Preflight
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import PlanError
from deeplearning_jobs.plan.topology import list_hosts, list_places
from deeplearning_jobs.planner import make_plan
from tests.unit.deeplearning_jobs.plan_samples import HARDWARE, make_request
from tests.unit.deeplearning_jobs.test_preflight import FIT

KEY = "ssh-ed25519 AAAAAAAAAAAAAAAAAAAA"


def make_cluster(workers=2):
    """Return the hosts of a CPU master and p4d workers, whose interfaces have other names than the master's."""
    head = Member("i-00000000000000000", "10.0.0.10", 0, KEY, trains=False)
    others = [Member(f"i-{index:017x}", f"10.0.0.{10 + index}", 8, KEY) for index in range(1, workers + 1)]
    both = {"master": HARDWARE["c7i.4xlarge"], "worker": HARDWARE["p4d.24xlarge"]}
    master, *rest = list_hosts(named_members((head, *others)), both, "ens5")
    return [master, *(replace(host, interface="ens32") for host in rest)]


def plan(launcher, workers=2, **changes):
    hosts = make_cluster(workers)
    return make_plan(hosts, make_request(launcher, hosts, **changes))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_are_on_the_workers_and_rank_0_on_the_first(launcher):
    found = plan(launcher)
    assert [host.name for host in found.hosts] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert found.ranks == (2 if LAUNCHERS[launcher].drives_whole_host else 16)
    assert list_places(found)[0].host == "deeplearning-worker1"
    started = {process.host for process in found.processes}
    assert started == ({"deeplearning-master"} if LAUNCHERS[launcher].is_central else {h.name for h in found.hosts})


@pytest.mark.parametrize(
    ("launcher", "workers", "options"),
    [
        ("horovod", 2, {"--network-interfaces": "ens5"}),
        ("horovod", 1, {"--network-interfaces": "ens5"}),
        ("mpi", 2, {"btl_tcp_if_include": "10.0.0.8/29", "oob_tcp_if_include": "10.0.0.8/29"}),
        ("torchrun", 2, {"--master_addr": "10.0.0.11"}),
    ],
    ids=["the master's interface", "no loopback", "a network that has the master", "the first worker"],
)
def test_ranks_meet_where_the_master_that_starts_them_is_reached(launcher, workers, options):
    argv = plan(launcher, workers).processes[0].argv
    found = dict(itertools.pairwise(argv))
    assert {name: found[name] for name in options} == options


def test_horovod_gets_the_workers_alone():
    files = {path.rpartition("/")[2]: text for path, text in plan("horovod").files.items()}
    assert files["hostfile"] == "deeplearning-worker1 slots=8\ndeeplearning-worker2 slots=8\n"
    one = {path.rpartition("/")[2]: text for path, text in plan("horovod", ranks=3).files.items()}
    assert one["addresses"] == "10.0.0.11\n"


def test_elastic_horovod_is_refused_with_torchrun_as_the_way_out_and_so_is_a_job_without_a_worker():
    with pytest.raises(PlanError, match="--elastic must go with --launcher torchrun where the master does not train"):
        plan("horovod", elastic=True)
    assert plan("torchrun", elastic=True).ranks == 16
    with pytest.raises(PlanError, match="workers must be at least one, got none: the master does not train"):
        plan("horovod", workers=0)


def test_the_master_may_have_a_driver_that_shows_nothing():
    """It starts from the workers' image: nvidia-smi is there, and fails for lack of a GPU."""
    silent = replace(FIT, gpu_count=None, gpu_detail="NVIDIA-SMI has failed")
    head = Preflight(3, {"deeplearning-master": "i-1"}, {"deeplearning-master": silent}, {})
    assert head.find_faults() == []
    worker = Preflight(3, {"deeplearning-worker1": "i-1"}, {"deeplearning-worker1": silent}, {})
    assert len(worker.find_faults()) == 1
