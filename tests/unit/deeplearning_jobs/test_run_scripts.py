"""The scripts of a run, run: what a rank gets, what a launcher finds, and what a container is told."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.planner import make_plan
from tests.unit.deeplearning_jobs.plan_samples import make_hosts, make_request

SHELLS = {"dash": ["/bin/dash"], "bash": ["/bin/bash", "--posix"]}
"""Shells that are `sh` on Debian and Ubuntu, and on Amazon Linux."""
RANK_VARIABLES = {each.name: each.starter.rank_variable for each in LAUNCHERS.values() if each.starter}
IP = """
echo "1: lo    inet 127.0.0.1/8 scope host lo"
echo "2: docker0    inet 172.17.0.1/16 brd 172.17.255.255 scope global docker0"
echo "7: ens{host}    inet {address}/24 metric 512 brd 10.0.0.255 scope global dynamic ens{host}"
"""
SHOW = 'for name do eval "echo $name=\\${$name-unset}"; done; echo "in $PWD"; echo "arguments $0 $#"'


class Machine:
    """A host that has the files of a run, and programs that we make."""

    def __init__(self, folder, shell):
        self.folder = folder
        self.shell = shell
        self.run_folder = folder / "efs/jobs/digits/runs/3"
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name in ("awk", "cat", "env", "id", "readlink", "sed", "sh", "uname"):
            (self.programs / name).symlink_to(shutil.which(name))

    def program(self, name, text, folder=None):
        path = (folder or self.programs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def plan(self, launcher, hosts, **changes):
        changes = {"folder": str(self.run_folder), "python": "", "directory": ""} | changes
        plan = make_plan(hosts, make_request(launcher, hosts, **changes))
        for name, text in plan.files.items():
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("/opt/deeplearning", f"{self.folder}/opt/deeplearning"))
            path.chmod(0o755)
        return plan

    def run(self, *argv, status=0, **variables):
        environment = {"PATH": str(self.programs), "HOME": str(self.folder), **variables}
        script, *words = map(str, argv)
        done = subprocess.run(
            [*self.shell, script, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    def log(self, name="rank-5"):
        return (self.run_folder / f"{name}.log").read_text().splitlines()


@pytest.fixture(params=SHELLS)
def machine(request, tmp_path):
    machine = Machine(tmp_path, SHELLS[request.param])
    machine.program("ip", IP.format(host=5, address="10.0.0.11"))
    return machine


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_gets_its_number_its_log_its_interface_and_the_jobs_variables(machine, launcher):
    plan = machine.plan(launcher, make_hosts(), env={"MOTTO": 'it\'s $HOME; "so"'})
    names = "DEEPLEARNING_RANK DEEPLEARNING_JOB DEEPLEARNING_RESUME_FROM MOTTO NCCL_SOCKET_IFNAME GLOO_SOCKET_IFNAME"
    given = {RANK_VARIABLES.get(launcher, "DEEPLEARNING_RANK"): "5", "DEEPLEARNING_TASK": "worker-5"}
    said = machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "two words", *names.split(), **given)
    assert said == "", "all goes to the log"
    assert machine.log() == [
        "DEEPLEARNING_RANK=5",
        "DEEPLEARNING_JOB=digits/3",
        "DEEPLEARNING_RESUME_FROM=",
        'MOTTO=it\'s $HOME; "so"',
        "NCCL_SOCKET_IFNAME=ens5",
        "GLOO_SOCKET_IFNAME=ens5",
        f"in {machine.folder}",
        "arguments two words 6",
    ]
    assert plan.ranks == 2


@pytest.mark.parametrize("launcher", RANK_VARIABLES)
def test_a_rank_without_a_launcher_reports_it(machine, launcher):
    machine.plan(launcher, make_hosts())
    status = 2 if machine.shell == SHELLS["dash"] else 1
    said = machine.run(machine.run_folder / "rank", "true", status=status)
    assert f"{RANK_VARIABLES[launcher]}: must be set" in said


def test_a_rank_ends_with_the_status_of_its_program(machine):
    machine.plan("horovod", make_hosts())
    machine.run(machine.run_folder / "rank", "sh", "-c", "echo dying; exit 7", HOROVOD_RANK="5", status=7)
    machine.run(machine.run_folder / "rank", "no-such-program", HOROVOD_RANK="5", status=127)
    assert machine.log()[0] == "dying"
    assert "no-such-program" in machine.log()[1]


@pytest.mark.defect("D72")
def test_each_host_finds_its_own_interface_whatever_it_is_called_elsewhere(machine):
    machine.plan("horovod", make_hosts(count=3))
    for host, address in ((3, "10.0.0.12"), (9, "10.0.0.10")):
        machine.program("ip", IP.format(host=host, address=address))
        machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", "HOROVOD_GLOO_IFACE", HOROVOD_RANK=str(host))
        assert machine.log(f"rank-{host}")[0] == f"HOROVOD_GLOO_IFACE=ens{host}"


def test_a_host_outside_the_plan_gets_an_error(machine):
    machine.plan("horovod", make_hosts())
    machine.program("ip", IP.format(host=5, address="10.0.0.111"))
    machine.run(machine.run_folder / "rank", "true", HOROVOD_RANK="5", status=1)
    assert "must carry one of the addresses in" in machine.log()[0]
    assert "10.0.0.111/24" in machine.log()[-1]


def test_a_host_that_joins_an_elastic_job_finds_its_interface_by_the_membership(machine):
    machine.plan("horovod", make_hosts(), elastic=True)
    addresses = machine.folder / "opt/deeplearning/worker_addresses"
    addresses.parent.mkdir(parents=True)
    addresses.write_text("10.0.0.10\n10.0.7.7\n")
    machine.program("ip", IP.format(host=8, address="10.0.7.7"))
    machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", "HOROVOD_GLOO_IFACE", HOROVOD_RANK="5")
    assert machine.log()[0] == "HOROVOD_GLOO_IFACE=ens8"


def test_ranks_of_one_host_meet_on_its_loopback_interface(machine):
    machine.plan("horovod", make_hosts(count=1))
    machine.program("ip", "exit 1")
    machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", "NCCL_SOCKET_IFNAME", HOROVOD_RANK="5")
    assert machine.log()[0] == "NCCL_SOCKET_IFNAME=lo"


def test_a_users_own_interface_wins_over_the_launchers(machine):
    machine.plan("horovod", make_hosts(), env={"NCCL_SOCKET_IFNAME": "ib0"})
    names = ("NCCL_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE")
    launchers = {"HOROVOD_RANK": "5", "NCCL_SOCKET_IFNAME": "eth9", "HOROVOD_GLOO_IFACE": "eth9"}
    machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", *names, **launchers)
    assert machine.log()[:2] == ["NCCL_SOCKET_IFNAME=ib0", "HOROVOD_GLOO_IFACE=ens5"]


def test_a_rank_runs_where_the_user_stands_or_says_that_it_does_not(machine):
    (machine.folder / "my code").mkdir()
    machine.plan("horovod", make_hosts(), directory=str(machine.folder / "my code"))
    machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", HOROVOD_RANK="5")
    (machine.folder / "my code").rmdir()
    machine.run(machine.run_folder / "rank", "sh", "-c", SHOW, "x", HOROVOD_RANK="6")
    assert f"in {machine.folder}/my code" in machine.log()
    assert "has no" in machine.log("rank-6")[0]
    assert f"in {machine.folder}" in machine.log("rank-6")


def test_a_rank_finds_the_programs_of_the_environment_first(machine):
    environment = machine.folder / "environments/current/bin"
    machine.program("python", "echo of the environment", environment)
    machine.program("python", "echo of the image")
    machine.plan("horovod", make_hosts(), python=str(environment))
    machine.run(machine.run_folder / "rank", "python", HOROVOD_RANK="5")
    assert machine.log() == ["of the environment"]


@pytest.mark.parametrize(("task", "rank", "log"), [("ps-1", None, "ps-1"), ("worker-12", "12", "rank-12")])
def test_tensorflow_is_given_who_all_are_and_which_it_is(machine, task, rank, log):
    machine.plan("tf-ps", make_hosts())
    given = {"DEEPLEARNING_TASK": task} | ({"DEEPLEARNING_RANK": rank} if rank else {})
    machine.run(machine.run_folder / "rank", "sh", "-c", 'echo "$TF_CONFIG"', **given)
    kind, _, number = task.partition("-")
    config = json.loads(machine.log(log)[0])
    assert config["task"] == {"type": kind, "index": int(number)}
    assert config["cluster"]["ps"] == ["10.0.0.10:20001", "10.0.0.11:20101"]


def test_every_process_of_every_plan_has_a_log_of_its_own(machine):
    for launcher in LAUNCHERS.keys() - RANK_VARIABLES.keys():
        plan = machine.plan(launcher, make_hosts("p4d.24xlarge"))
        for process in plan.processes:
            machine.run(*process.argv[:-4], "sh", "-c", "echo $DEEPLEARNING_TASK", **process.environment)
        logs = {path.name: path.read_text().split() for path in machine.run_folder.glob("*.log")}
        assert sorted(text for texts in logs.values() for text in texts) == sorted(p.name for p in plan.processes)
        assert Path(plan.rank_zero_log).name in logs
        shutil.rmtree(machine.run_folder)


def test_a_launcher_finds_the_runs_ssh_first_then_the_environment(machine):
    environment = machine.folder / "environments/current/bin"
    machine.program("horovodrun", 'echo "$0" "$@"; echo "$PATH"', environment)
    (process,) = machine.plan("horovod", make_hosts(), python=str(environment)).processes
    said = machine.run(*process.argv, **process.environment).splitlines()
    assert said[0] == shlex.join([str(environment / "horovodrun"), *process.argv[2:]]).replace("'", "")
    assert said[1] == f"{machine.run_folder}/bin:{environment}:{machine.programs}"


def test_a_launcher_that_is_not_installed_is_named(machine):
    (process,) = machine.plan("mpi", make_hosts()).processes
    said = machine.run(*process.argv, status=127, **process.environment)
    assert "mpirun must be installed on" in said


@pytest.mark.defect("D72")
def test_mpirun_is_started_by_its_full_path_so_that_it_finds_its_daemons(machine):
    path = machine.program("mpirun", 'echo "$0"', machine.folder / "elsewhere")
    (process,) = machine.plan("mpi", make_hosts()).processes
    search = f"{machine.programs}:{path.parent}"
    assert machine.run(*process.argv, **process.environment, PATH=search).strip() == str(path)


def test_torchrun_is_run_as_a_module_where_it_has_no_command(machine):
    machine.program("python3", 'echo "$0" "$@"')
    process = machine.plan("torchrun", make_hosts()).processes[1]
    said = machine.run(*process.argv, **process.environment)
    assert said.startswith(f"{machine.programs}/python3 -m torch.distributed.run --nnodes 2 --node_rank 1 ")
    machine.program("torchrun", 'echo "the command" "$1"')
    assert machine.run(*process.argv, **process.environment) == "the command --nnodes\n"


def test_the_runs_ssh_keeps_the_check_of_host_keys_on_and_calls_the_real_one(machine):
    machine.plan("mpi", make_hosts())
    machine.program("ssh", 'echo "$@"')
    search = f"{machine.run_folder}/bin:{machine.programs}"
    said = machine.run(machine.run_folder / "bin/ssh", "-o", "StrictHostKeyChecking=no", "n2", "a b", PATH=search)
    assert said.startswith("-o StrictHostKeyChecking=yes -o BatchMode=yes ")
    assert said.endswith(" -o StrictHostKeyChecking=no n2 a b\n")
    (machine.programs / "ssh").unlink()
    assert "ssh must be installed" in machine.run(machine.run_folder / "bin/ssh", "n2", PATH=search, status=127)


def docker_words(machine, launcher, script, **variables):
    """Return what docker is told of the container of `program x`."""
    machine.program("docker", 'for word do echo "[$word]"; done')
    plan = machine.plan(launcher, make_hosts("p4d.24xlarge"), container="image:1", env={"LR": "0.1"})
    said = machine.run(machine.run_folder / script, "program", "x y", **variables)
    text = said or "\n".join(machine.log())
    assert plan.launcher == launcher
    return [line.strip("[]") for line in text.splitlines()]


def test_a_rank_in_a_container_keeps_its_variables_its_user_and_its_host(machine):
    words = docker_words(
        machine, "horovod", "rank", HOROVOD_RANK="5", HOROVOD_GLOO_RENDEZVOUS_PORT="7", OTHER="1", EFS_MOUNT="/e"
    )
    assert words[:2] == ["run", "--rm"]
    assert words[-3:] == ["image:1", "program", "x y"]
    passed = {words[at + 1] for at, word in enumerate(words) if word == "--env"}
    assert {"HOROVOD_RANK", "HOROVOD_GLOO_RENDEZVOUS_PORT", "NCCL_SOCKET_IFNAME", "LR", "EFS_MOUNT"} <= passed
    assert {"DEEPLEARNING_JOB", "DEEPLEARNING_RANK", "DEEPLEARNING_CHECKPOINT_PATH"} <= passed
    assert not {"OTHER", "PATH"} & passed
    assert words[words.index("--user") + 1] == f"{os.getuid()}:{os.getgid()}"
    assert words[words.index("--network") + 1] == words[words.index("--ipc") + 1] == "host"
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "--volume"]
    efs, state = machine.folder / "efs", machine.folder / "opt/deeplearning"
    assert volumes == [f"{efs}:{efs}", f"{state}:{state}:ro"]


def test_data_outside_the_shared_file_system_is_mounted_in_the_container(machine):
    data = machine.folder / "opt/deeplearning/data"
    data.mkdir(parents=True)
    for name, place in (("images", "fast disk/images"), ("labels", "efs/data/labels")):
        (machine.folder / place).mkdir(parents=True)
        (data / name).symlink_to(machine.folder / place)
    words = docker_words(machine, "mxnet", "rank", DEEPLEARNING_TASK="worker-5", DEEPLEARNING_RANK="5")
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "--volume"]
    place = machine.folder / "fast disk/images"
    assert f"{place}:{place}" in volumes
    assert not any("labels" in volume for volume in volumes), "the shared file system is there already"


def test_data_that_a_link_publishes_is_mounted_where_the_link_is(machine):
    state, disk = machine.folder / "opt/deeplearning", machine.folder / "disk"
    (disk / "data/.set/digest").mkdir(parents=True)
    (disk / "data/set").symlink_to(".set/digest")
    (state / "data").mkdir(parents=True)
    (state / "local").symlink_to(disk)
    (state / "data/set").symlink_to(state / "local/data/set")
    words = docker_words(machine, "mxnet", "rank", DEEPLEARNING_TASK="worker-5", DEEPLEARNING_RANK="5")
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "--volume"]
    assert f"{disk}/data/set:{disk}/data/set" in volumes


def test_torchrun_itself_runs_in_the_container_and_its_ranks_start_no_other(machine):
    words = docker_words(machine, "torchrun", "start")
    assert words[-3:] == ["image:1", "program", "x y"]
    assert "NCCL_SOCKET_IFNAME" in words
    machine.program("ip", "exit 1")
    machine.run(machine.run_folder / "rank", "sh", "-c", "echo inside", RANK="5")
    assert machine.log() == ["inside"], "what the image lacks, a rank does not ask for"


@pytest.mark.parametrize(
    ("launcher", "container", "elastic"),
    [
        *((launcher, "", False) for launcher in LAUNCHERS),
        *((each.name, "image:1", False) for each in LAUNCHERS.values() if not each.why_no_container),
        *((each.name, "", True) for each in LAUNCHERS.values() if each.is_elastic),
        ("torchrun", "image:1", True),
    ],
)
def test_shellcheck_has_nothing_to_say_of_any_script(launcher, container, elastic, tmp_path):
    machine = Machine(tmp_path, ["/bin/sh"])
    plan = machine.plan(
        launcher,
        make_hosts("p5.48xlarge"),
        container=container,
        elastic=elastic,
        python="/opt/an env/bin",
        directory="/home/user/it's code",
        env={"MOTTO": "it's so; yes"},
    )
    scripts = [path for path, text in plan.files.items() if text.startswith("#!")]
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, *scripts], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0
    assert len(scripts) >= 1
