"""The scripts that `tensorflow/generate_trainer.py` writes, run as the seeds run them, with programs of the test."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit.job_lab import list_commands

GENERATOR = Path(__file__).parents[3] / "examples" / "tensorflow" / "generate_trainer.py"
SSH = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift 2; done
host=$1
shift
[ "$host" != i-dead ] || { echo no route >&2; exit 255; }
exec env -i PATH="$PATH" TEST="$TEST" SSH_HOST="$host" sh -c "$*"
"""
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["TEST"])
config = json.loads(os.environ["TF_CONFIG"])
name = config["task"]["type"] + str(config["task"]["index"])
print("I am", name)
seen = {"host": os.environ["SSH_HOST"], "gpus": os.environ["CUDA_VISIBLE_DEVICES"], "config": config}
(folder / f"{name}.new").write_text(json.dumps({"arguments": sys.argv[1:], **seen}))
(folder / f"{name}.new").rename(folder / f"{name}.json")
while not (name == "chief0" and (folder / "finish").exists()):
    time.sleep(0.05)
"""
LOOP = """
while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host "bash $trainer_script_dir/$host.sh" ; \\
done 10<$DEEPLEARNING_WORKERS_PATH
"""


class Cluster:
    """Hosts i-01 to i-03 that are this machine, and a folder that all see."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("bin", "scripts"):
            (folder / name).mkdir()
        (folder / "bin" / "ssh").write_text(SSH)
        (folder / "bin" / "ssh").chmod(0o755)
        (folder / "train.py").write_text(PROGRAM)
        (folder / "workers").write_text("i-01\ni-02\ni-03\n")

    def environment(self):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        own = {"trainer_script_dir": str(self.folder / "scripts")}
        own["DEEPLEARNING_WORKERS_PATH"] = str(self.folder / "workers")
        return os.environ | {"PATH": path, "TEST": str(self.folder)} | own

    def generate(self, count=3, gpus=0, words=("--batch_size", "128", "--data_dir=/efs/data set", "--train_dir=/t")):
        command = [sys.executable, GENERATOR, "--workers_file_path", self.folder / "workers"]
        command += ["--worker_count", str(count), "--worker_gpu_count", str(gpus)]
        command += ["--trainer_script_dir", self.folder / "scripts", "--log_dir", self.folder / "logs"]
        command += ["--training_script", self.folder / "train.py", *words]
        return self.run(command)

    def run(self, command):
        return subprocess.run(
            command,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
        )

    def start(self):
        return self.run(["bash", "-c", LOOP])

    def stop(self):
        for host in ("i-01", "i-02", "i-03"):
            if (self.folder / "scripts" / f"{host}.stop.sh").exists():
                self.run(["bash", str(self.folder / "scripts" / f"{host}.stop.sh")])

    def wait_for(self, count):
        wait_until(lambda: len(list(self.folder.glob("*.json"))) == count)
        return {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}

    def left(self):
        """Processes of the job that still run."""
        mark = str(self.folder / "train.py").encode()
        return [command for command in list_commands() if mark in command]


@pytest.fixture
def cluster(tmp_path):
    one = Cluster(tmp_path)
    yield one
    one.stop()


def test_the_seeds_loop_starts_a_server_and_a_worker_a_host_and_one_chief_and_returns(cluster):
    assert cluster.generate().returncode == 0
    answer = cluster.start()
    assert answer.returncode == 0, answer.stderr
    seen = cluster.wait_for(7)
    hosts = {name: one["host"] for name, one in seen.items()}
    assert hosts == {
        "chief0": "i-01",
        **{f"ps{number}": f"i-0{number + 1}" for number in range(3)},
        **{f"worker{number}": f"i-0{number + 1}" for number in range(3)},
    }
    assert all(
        one["arguments"] == ["--batch_size", "128", "--data_dir=/efs/data set", "--train_dir=/t"]
        for one in seen.values()
    )
    assert {one["gpus"] for one in seen.values()} == {""}


@pytest.mark.defect("D78")
def test_all_processes_have_the_same_cluster_with_ports_of_their_own(cluster):
    cluster.generate(count=2, gpus=2)
    cluster.start()
    seen = cluster.wait_for(7)
    clusters = [one["config"]["cluster"] for one in seen.values()]
    assert all(each == clusters[0] for each in clusters)
    addresses = [address for kind in clusters[0].values() for address in kind]
    assert len(set(addresses)) == len(addresses) == 7
    assert {address.partition(":")[0] for address in addresses} == {"i-01", "i-02"}
    assert {name: one["gpus"] for name, one in seen.items()} == {
        "chief0": "",
        "ps0": "",
        "ps1": "",
        "worker0": "0",
        "worker1": "1",
        "worker2": "0",
        "worker3": "1",
    }


@pytest.mark.defect("D78")
def test_two_jobs_do_not_choose_the_same_ports(cluster):
    def addresses():
        cluster.generate()
        return set((cluster.folder / "scripts" / "i-01.sh").read_text().split('"')) & {
            f"i-01:{port}" for port in range(10000, 32768)
        }

    assert addresses().isdisjoint(addresses())


@pytest.mark.defect("D78")
def test_only_as_many_hosts_take_part_as_requested(cluster):
    cluster.generate(count=2)
    answer = cluster.start()
    assert "i-03 takes no part" in answer.stdout
    assert sorted(cluster.wait_for(5)) == ["chief0", "ps0", "ps1", "worker0", "worker1"]


@pytest.mark.defect("D78")
def test_a_script_without_arguments_of_its_own_is_fine_and_a_missing_one_is_an_error(cluster):
    assert cluster.generate(words=()).returncode == 0
    cluster.start()
    assert cluster.wait_for(7)["chief0"]["arguments"] == []
    flags = ["--workers_file_path", "w", "--worker_count", "1", "--worker_gpu_count", "0", "--trainer_script_dir", "s"]
    answer = cluster.run([sys.executable, GENERATOR, *flags])
    assert answer.returncode == 2
    assert "--training_script" in answer.stderr
    assert "TypeError" not in answer.stderr


def test_each_process_writes_to_a_file_of_its_own(cluster):
    cluster.generate(count=1)
    cluster.start()
    cluster.wait_for(3)
    wait_until(lambda: (cluster.folder / "logs" / "chief0").read_text() != "")
    texts = {path.name: path.read_text() for path in (cluster.folder / "logs").iterdir()}
    assert texts == {name: f"I am {name}\n" for name in ("chief0", "ps0", "worker0")}


def test_servers_and_workers_end_with_the_chief(cluster):
    cluster.generate()
    cluster.start()
    cluster.wait_for(7)
    (cluster.folder / "finish").touch()
    wait_until(lambda: cluster.left() == [])


def test_the_scripts_start_the_job_again(cluster):
    cluster.generate(count=1)
    for _ in range(2):
        cluster.start()
        cluster.wait_for(3)
        (cluster.folder / "finish").touch()
        wait_until(lambda: cluster.left() == [])
        for path in [*cluster.folder.glob("*.json"), cluster.folder / "finish"]:
            path.unlink()


@pytest.mark.defect("D78")
def test_the_stop_script_ends_this_job_and_no_other_program(cluster):
    cluster.generate()
    cluster.start()
    cluster.wait_for(7)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        cluster.stop()
        assert cluster.left() == []
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize(
    ("workers", "count", "cause"),
    [
        ("i-01\ni-02\n", 3, "--worker_count must be 1 to 2, the hosts of the workers file, got 3"),
        ("i-01\ni-01\n", 2, "--workers_file_path must list each host once, got i-01 i-01"),
        ("i-01\ni-dead\n", 2, "i-dead must offer 3 free ports, got []: no route"),
    ],
)
def test_hosts_that_do_not_fit_are_an_error_and_nothing_is_written(cluster, workers, count, cause):
    (cluster.folder / "workers").write_text(workers)
    answer = cluster.generate(count=count)
    assert answer.returncode == 1
    assert cause in answer.stderr
    assert list((cluster.folder / "scripts").iterdir()) == []
