"""Commands that each launcher starts on each host, and jobs that it refuses."""

import ipaddress
import json
import re
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import PlanError
from deeplearning_jobs.planner import make_plan
from tests.unit.deeplearning_jobs.plan_samples import make_hosts, make_request

FOLDER = "/mnt/efs/jobs/digits/runs/3"
P4D = make_hosts("p4d.24xlarge", 3)
CPU = make_hosts("c7i.4xlarge", 2)


def names(is_meant):
    """Return the names of the launchers whose records are meant."""
    return [name for name, launcher in LAUNCHERS.items() if is_meant(launcher)]


def plan(hosts, launcher, **changes):
    return make_plan(hosts, make_request(launcher, hosts, **changes))


def refusal(hosts, launcher="horovod", **changes):
    with pytest.raises(PlanError) as caught:
        plan(hosts, launcher, **changes)
    return str(caught.value)


def value(argv, option):
    """Return the word that follows an option, which is there once."""
    assert argv.count(option) == 1
    return argv[argv.index(option) + 1]


def mca(argv):
    """Return the parameters that mpirun is given."""
    return {argv[at + 1]: argv[at + 2] for at, word in enumerate(argv) if word == "--mca"}


def assert_known_options(plan):
    """Check that torchrun 1.13, which knows underscores only, knows every option."""
    for process in plan.processes:
        options = [word for word in process.argv if word.startswith("--")][:-1]
        assert not any("-" in option.removeprefix("--") for option in options)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_process_ends_in_the_rank_script_and_the_program_as_it_was_given(launcher):
    program = ("python", "my train.py", "--name", "a 'b' $c", "")
    found = plan(P4D, launcher, program=program)
    for process in found.processes:
        assert process.argv[-len(program) - 1 :] == (f"{FOLDER}/rank", *program)
        assert process.host in {host.name for host in found.hosts}
    assert len({process.name for process in found.processes}) == len(found.processes)
    assert any(process.is_essential for process in found.processes)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_process_is_known_by_its_job_and_finds_its_checkpoints_and_data(launcher):
    for process in plan(P4D, launcher, env={"LR": "0.1", "DEEPLEARNING_RESUME_FROM": "/c/4"}).processes:
        variables = process.environment
        assert variables["DEEPLEARNING_JOB"] == "digits/3"
        assert variables["DEEPLEARNING_CHECKPOINT_PATH"] == "/mnt/efs/jobs/digits/checkpoints"
        assert variables["DEEPLEARNING_RESUME_FROM"] == "/c/4"
        assert variables["DEEPLEARNING_DATA"] == "/opt/deeplearning/data"
        assert variables["LR"] == "0.1"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_env_must_not_set_what_tells_the_processes_of_any_launcher_apart(launcher):
    reserved = {"DEEPLEARNING_JOB", "DEEPLEARNING_RANK", "DEEPLEARNING_TASK"}
    for each in LAUNCHERS.values():
        reserved |= {*each.reserved, *([each.starter.rank_variable] if each.starter else [])}
    assert {"TF_CONFIG", "DMLC_ROLE", "RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK"} <= reserved
    for name in reserved:
        found = refusal(P4D, launcher, env={name: "1"})
        assert found == f"--env must not set {name}, got '1'; the plan sets it, leave it out"


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_env_must_not_set_a_variable_whose_value_differs_between_processes(launcher):
    environments = [process.environment for process in plan(P4D, launcher).processes]
    for name in {name for environment in environments for name in environment}:
        if len({environment.get(name) for environment in environments}) > 1:
            assert refusal(P4D, launcher, env={name: "1"}).startswith(f"--env must not set {name}")


@pytest.mark.parametrize("launcher", names(lambda each: not each.why_no_container))
def test_a_container_receives_every_variable_that_the_plan_sets(launcher):
    found = plan(P4D, launcher, container="image:1")
    text = "".join(found.files.values())
    (prefixes,) = re.findall(r"sed -nE 's/\^\(\(([^)]*)\)", text)
    assert set(LAUNCHERS[launcher].passed) <= set(prefixes.split("|"))
    variables = {name for process in found.processes for name in process.environment}
    assert [name for name in variables if f" --env {name} " not in text and not re.match(prefixes, name)] == []


def test_a_request_with_an_unknown_launcher_folder_or_interface_is_refused():
    assert refusal(P4D, "slurm").startswith("--launcher must be one of horovod, mpi, ")
    said = refusal(P4D, folder="/tmp/elsewhere")
    assert said.startswith("the run's folder must be <mount>/jobs/<job>/runs/<number>")
    said = refusal([P4D[0], replace(P4D[1], interface="")])
    assert said.startswith("deeplearning-worker2 must have a network interface with the address 10.0.0.11, got none;")


def test_horovodrun_on_one_host_takes_the_loopback_interface_and_on_more_the_masters():
    for count, interface in ((1, "lo"), (3, "ens32")):
        (launcher,) = plan(P4D[:count], "horovod").processes
        assert launcher.argv[:2] == (f"{FOLDER}/start", "horovodrun")
        assert launcher.host == "deeplearning-worker1"
        assert "--gloo" in launcher.argv
        assert value(launcher.argv, "--network-interfaces") == interface
        assert value(launcher.argv, "-np") == str(8 * count)


@pytest.mark.parametrize("launcher", names(lambda each: each.is_central))
def test_the_hostfile_has_the_slots_of_the_plan(launcher):
    found = plan(P4D, launcher, gpus_per_member=2, ranks=4)
    (process,) = found.processes
    text = found.files[value(process.argv, "--hostfile")]
    assert text == "deeplearning-worker1 slots=2\ndeeplearning-worker2 slots=2\n"


def test_a_user_may_wait_for_slow_ranks_as_long_as_they_like():
    for own, seconds in (({}, "300"), ({"HOROVOD_GLOO_TIMEOUT_SECONDS": "7"}, "7")):
        (launcher,) = plan(P4D, "horovod", env=own).processes
        assert launcher.environment["HOROVOD_GLOO_TIMEOUT_SECONDS"] == seconds


def test_an_elastic_horovod_job_is_started_by_its_own_script_for_every_ready_slot():
    found = plan(P4D, "horovod", elastic=True)
    (launcher,) = found.processes
    assert launcher.argv[:3] == (f"{FOLDER}/start", f"{FOLDER}/elastic_horovod.sh", f"{FOLDER}/rank")
    assert "--host-discovery-script" in found.files[f"{FOLDER}/elastic_horovod.sh"]
    assert launcher.environment["ELASTIC_STARTER"] == ""
    assert "/opt/deeplearning/worker_addresses" in found.files[f"{FOLDER}/rank"], "hosts may come that no plan knows"
    for changes in ({"ranks": 8}, {"gpus_per_member": 2}):
        assert refusal(P4D, elastic=True, **changes).startswith("--elastic must go without --np and --slots, got ")
    assert refusal(P4D, elastic=True, container="image").startswith("--elastic must go without a container, got image;")


def test_an_elastic_torchrun_job_goes_on_with_one_host_and_its_master_serves():
    found = plan(P4D, "torchrun", elastic=True)
    assert_known_options(found)
    for node, process in enumerate(found.processes):
        assert value(process.argv, "--nnodes") == "1:3"
        assert value(process.argv, "--rdzv_endpoint") == "10.0.0.10:20000"
        assert value(process.argv, "--rdzv_conf") == f"is_host={int(node == 0)}"
        assert value(process.argv, "--rdzv_id") == "digits-3", "torchrun makes a folder of that name"
        assert "--node_rank" not in process.argv


@pytest.mark.parametrize("launcher", names(lambda each: not each.is_elastic))
def test_launchers_that_cannot_lose_a_host_are_not_elastic(launcher):
    found = refusal(P4D, launcher, elastic=True)
    assert found.startswith(f"--elastic must go with --launcher horovod or torchrun, got {launcher};")


def test_mpirun_is_given_every_variable_once_and_each_is_there():
    (launcher,) = plan(P4D, "mpi", env={"LR": "0.1", "NAME": "two words"}).processes
    passed = [launcher.argv[at + 1] for at, word in enumerate(launcher.argv) if word == "-x"]
    assert sorted(passed) == sorted(launcher.environment)
    assert {"LR", "NAME", "DEEPLEARNING_JOB", "DEEPLEARNING_RESUME_FROM"} <= set(passed)


@pytest.mark.defect("D72")
def test_mpirun_logs_in_from_the_master_alone_and_checks_host_keys_and_runs_as_the_user():
    (launcher,) = plan(P4D, "mpi").processes
    found = mca(launcher.argv)
    assert found["plm_rsh_agent"] == f"{FOLDER}/bin/ssh"
    assert found["plm_rsh_no_tree_spawn"] == "1"
    assert found["btl_tcp_if_include"] == found["oob_tcp_if_include"] == "ens32"
    assert launcher.argv[1] == "mpirun", "found by PATH, wherever an image has it"
    assert "--allow-run-as-root" not in launcher.argv


ADDRESSES = st.ip_addresses(v=4, network="10.0.0.0/16").map(str)


@given(st.lists(ADDRESSES, min_size=2, max_size=6, unique=True))
def test_mpirun_gets_the_least_network_of_all_addresses_where_interfaces_differ(addresses):
    hosts = [
        replace(P4D[0], name=f"n{at}", address=address, interface=f"eth{at}") for at, address in enumerate(addresses)
    ]
    (launcher,) = plan(hosts, "mpi").processes
    network = ipaddress.ip_network(mca(launcher.argv)["btl_tcp_if_include"])
    assert all(ipaddress.ip_address(address) in network for address in addresses)
    assert not any(all(ipaddress.ip_address(address) in half for address in addresses) for half in network.subnets()), (
        "no smaller one holds them all"
    )


def test_torchrun_runs_once_a_host_and_ranks_follow_the_membership():
    found = plan(P4D, "torchrun", ranks=16)
    assert_known_options(found)
    assert [process.name for process in found.processes] == ["node-0", "node-1"]
    for node, process in enumerate(found.processes):
        assert process.host == found.hosts[node].name
        assert value(process.argv, "--nnodes") == "2"
        assert value(process.argv, "--node_rank") == str(node)
        assert value(process.argv, "--nproc_per_node") == "8"
        assert value(process.argv, "--master_addr") == "10.0.0.10"
        assert value(process.argv, "--master_port") == "20000"
        assert "--no_python" in process.argv
        assert value(process.argv, "--redirects") == value(process.argv, "--tee") == "9:1", "1.13 takes no 0 on 3.11"
        assert process.is_essential


@pytest.mark.defect("D78")
@pytest.mark.parametrize("launcher", names(lambda each: each.ports(1)))
def test_ports_are_those_that_hosts_offered_and_too_few_are_refused(launcher):
    hosts = P4D[:2]
    offers = {"deeplearning-worker1": (31001, 31007, 31013), "deeplearning-worker2": (31002, 31009, 31011)}
    found = plan(hosts, launcher, ports=offers, gpus_per_member=1)
    text = json.dumps([[*process.argv, *process.environment.values()] for process in found.processes])
    text += "".join(found.files.values())
    offered = [port for ports in offers.values() for port in ports if str(port) in text]
    assert offered, "each launcher needs one at least"
    assert not any(port in text for port in ("2222", "2223", "12355", "29400", "29500", "9091"))
    lacking = refusal(hosts, launcher, ports={**offers, "deeplearning-worker1": ()}, gpus_per_member=1)
    assert lacking.startswith("deeplearning-worker1 must offer ")


@pytest.mark.parametrize("slots", [1, 2, 8])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_as_many_ports_as_are_counted_are_enough(launcher, slots):
    count = LAUNCHERS[launcher].ports(slots)
    ports = {host.name: tuple(range(30000, 30000 + count)) for host in P4D}
    assert plan(P4D, launcher, gpus_per_member=slots, ports=ports).slots == slots
    if count:
        fewer = {name: offered[:-1] for name, offered in ports.items()}
        assert "must offer" in refusal(P4D, launcher, gpus_per_member=slots, ports=fewer)


def test_mxnet_has_a_scheduler_and_a_server_and_a_worker_a_host_by_address():
    found = plan(P4D, "mxnet")
    roles = [(process.name, process.environment["DMLC_ROLE"], process.is_essential) for process in found.processes]
    assert roles == [
        ("scheduler", "scheduler", False),
        *((f"server-{at}", "server", False) for at in range(3)),
        *((f"worker-{at}", "worker", True) for at in range(3)),
    ]
    addresses = {host.name: host.address for host in P4D}
    for process in found.processes:
        variables = process.environment
        assert variables["DMLC_PS_ROOT_URI"] == "10.0.0.10"
        assert variables["DMLC_NODE_HOST"] == addresses[process.host]
        assert variables["DMLC_INTERFACE"] == "ens32"
        assert (variables["DMLC_NUM_SERVER"], variables["DMLC_NUM_WORKER"]) == ("3", "3")
        is_worker = variables["DMLC_ROLE"] == "worker"
        assert variables["CUDA_VISIBLE_DEVICES"] == ("0,1,2,3,4,5,6,7" if is_worker else "")
        assert ("DEEPLEARNING_RANK" in variables) == is_worker


@pytest.mark.defect("D78")
def test_parameter_servers_see_no_gpu_and_workers_of_a_host_one_each():
    found = plan(P4D, "tf-ps")
    cluster = json.loads(found.files[f"{FOLDER}/cluster.json"])
    assert {kind: len(tasks) for kind, tasks in cluster.items()} == {"chief": 1, "worker": 24, "ps": 3}
    everyone = [task for tasks in cluster.values() for task in tasks]
    assert len(set(everyone)) == 28, "no two share a port of a host"
    addresses = {host.name: host.address for host in P4D}
    for process in found.processes:
        kind, _, index = process.name.rpartition("-")
        assert process.environment["DEEPLEARNING_TASK"] == process.name
        assert cluster[kind][int(index)].startswith(f"{addresses[process.host]}:")
        expected = str(int(index) % 8) if kind == "worker" else ""
        assert process.environment["CUDA_VISIBLE_DEVICES"] == expected
        assert process.is_essential == (kind == "chief")
    assert found.rank_zero_log == f"{FOLDER}/chief-0.log"


def test_multiworker_has_a_worker_a_host_and_no_server():
    found = plan(P4D, "tf-multiworker")
    assert json.loads(found.files[f"{FOLDER}/cluster.json"]) == {
        "worker": ["10.0.0.10:20000", "10.0.0.11:20100", "10.0.0.12:20200"]
    }
    assert [process.name for process in found.processes] == ["worker-0", "worker-1", "worker-2"]
    assert all(process.is_essential for process in found.processes)


@pytest.mark.parametrize("launcher", names(lambda each: not each.starter))
def test_a_host_without_gpus_hides_none_from_its_workers(launcher):
    for process in plan(CPU, launcher).processes:
        if process.name.startswith("worker"):
            assert "CUDA_VISIBLE_DEVICES" not in process.environment
    found = refusal(P4D, launcher, env={"CUDA_VISIBLE_DEVICES": "0"})
    assert found.startswith(f"--env must not set CUDA_VISIBLE_DEVICES with --launcher {launcher}, got '0'")


def test_the_command_line_of_a_large_tensorflow_job_does_not_grow_with_the_cluster():
    lengths = {}
    for count in (2, 64):
        hosts = make_hosts("p5.48xlarge", count)
        processes = plan(hosts, "tf-ps").processes
        assert len(processes) == 9 * count + 1
        lengths[count] = max(len(shlex.join([*p.argv, *p.environment.values()])) for p in processes)
    assert lengths[64] <= lengths[2] + 10


@pytest.mark.parametrize("launcher", names(lambda each: each.why_no_container))
def test_a_launcher_whose_ranks_cannot_run_in_a_container_names_the_reason(launcher):
    found = refusal(P4D, launcher, container="image:1")
    start = f"--launcher must not be {launcher} with a container, got image:1"
    assert found == f"{start}: {LAUNCHERS[launcher].why_no_container}"


@pytest.mark.parametrize("launcher", names(lambda each: not each.why_no_container))
def test_a_container_gets_gpus_and_efa_only_where_hosts_have_them(launcher):
    for hosts, has_gpus, has_efa in ((P4D, True, True), (make_hosts("g5.xlarge"), True, False), (CPU, False, False)):
        text = "".join(plan(hosts, launcher, container="image:1").files.values())
        assert text.count("docker run ") == 1
        assert ("--gpus all" in text) == has_gpus
        assert ("/dev/infiniband" in text) == has_efa
