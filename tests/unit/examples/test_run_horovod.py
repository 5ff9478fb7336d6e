"""The script that starts a Horovod program from nothing but the contract finds the interface of the host it is on."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "run_horovod.sh"
PROGRAMS = {
    # As /etc/hosts on the node: only 10.0.0.9 is an address of this host.
    "getent": """case $2 in
        deeplearning-master) echo "10.0.0.9 STREAM" ;;
        *) echo "$WORKER1 STREAM" ;;
    esac""",
    "ip": '[ "$6" != 10.0.0.9 ] || echo "2: ens5 inet 10.0.0.9/24"',
    "ssh": "exit 0",
    "horovodrun": 'echo "$@"',
}


@pytest.fixture
def run(tmp_path):
    """Return what horovodrun is given on a master, where the first worker has an address."""

    def start(names, first_address):
        (tmp_path / "hostfile").write_text("".join(f"{name} slots=2\n" for name in names))
        (tmp_path / "workers").write_text("".join(f"{name}\n" for name in names))
        for name, text in PROGRAMS.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        text = SCRIPT.read_text().replace("/opt/deeplearning/hostfile", str(tmp_path / "hostfile"))
        contract = {
            "DEEPLEARNING_WORKERS_PATH": str(tmp_path / "workers"),
            "DEEPLEARNING_WORKERS_COUNT": str(len(names)),
            "WORKER1": first_address,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "-c", text, "run_horovod.sh", "train.py"], capture_output=True, text=True, check=True, env=contract
        )
        words = done.stdout.split()
        return words[words.index("-np") + 1], words[words.index("--network-interfaces") + 1]

    return start


def test_a_master_that_trains_alone_meets_itself_on_loopback(run):
    assert run(["deeplearning-worker1"], "10.0.0.9") == ("2", "lo")


def test_ranks_on_several_hosts_meet_on_the_masters_interface(run):
    assert run(["deeplearning-worker1", "deeplearning-worker2"], "10.0.0.9") == ("4", "ens5")


@pytest.mark.parametrize("names", [["deeplearning-worker1"], ["deeplearning-worker1", "deeplearning-worker2"]])
def test_a_master_that_does_not_train_meets_its_workers_on_its_own_interface(run, names):
    assert run(names, "10.0.0.10") == (str(2 * len(names)), "ens5")
