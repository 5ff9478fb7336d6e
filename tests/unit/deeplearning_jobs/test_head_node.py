"""Jobs of a cluster whose master has no GPU: it starts them, and the workers' GPUs run the ranks."""

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


def test_horovod_meets_on_the_interface_of_the_master_that_starts_it():
    (launcher,) = plan("horovod").processes
    assert launcher.argv[launcher.argv.index("--network-interfaces") + 1] == "ens5"
    found = plan("horovod")
    (hostfile,) = (text for path, text in found.files.items() if path.endswith("/hostfile"))
    assert hostfile == "deeplearning-worker1 slots=8\ndeeplearning-worker2 slots=8\n"


def test_ranks_of_one_worker_do_not_meet_on_loopback_because_the_launcher_is_elsewhere():
    (launcher,) = plan("horovod", workers=1).processes
    assert launcher.argv[launcher.argv.index("--network-interfaces") + 1] == "ens5"
    (addresses,) = (text for path, text in plan("horovod", ranks=3).files.items() if path.endswith("/addresses"))
    assert addresses == "10.0.0.11\n"


def test_open_mpi_speaks_on_a_network_that_holds_the_master_too():
    (launcher,) = plan("mpi").processes
    options = dict(zip(launcher.argv, launcher.argv[1:], strict=False))
    assert options["btl_tcp_if_include"] == options["oob_tcp_if_include"] == "10.0.0.8/29"


def test_torchrun_meets_on_the_first_worker():
    argv = plan("torchrun").processes[0].argv
    assert argv[argv.index("--master_addr") + 1] == "10.0.0.11"


def test_elastic_horovod_is_refused_with_torchrun_as_the_way_out():
    with pytest.raises(PlanError, match="--elastic must go with --launcher torchrun where the master does not train"):
        plan("horovod", elastic=True)
    assert plan("torchrun", elastic=True).ranks == 16


def test_a_job_without_a_worker_is_refused():
    with pytest.raises(PlanError, match="workers must be at least one, got none: the master does not train"):
        plan("horovod", workers=0)


def test_the_master_may_have_a_driver_that_shows_nothing():
    """It starts from the workers' image: nvidia-smi is there, and fails for lack of a GPU."""
    silent = replace(FIT, gpu_count=None, gpu_detail="NVIDIA-SMI has failed")
    head = Preflight(3, {"deeplearning-master": "i-1"}, {"deeplearning-master": silent}, {})
    assert head.find_faults() == []
    worker = Preflight(3, {"deeplearning-worker1": "i-1"}, {"deeplearning-worker1": silent}, {})
    assert len(worker.find_faults()) == 1
