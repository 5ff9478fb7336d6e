"""The job that counts its ranks, as processes of this machine."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from deeplearning_rehearsal.checks.count_ranks import take_steps
from deeplearning_rehearsal.checks.training import COUNTING_PROGRAM

Count = Callable[..., tuple[int, str, str]]


@pytest.fixture
def count(tmp_path):
    """Count the ranks of a job of two; a rank has a hosts file of its own where one is given."""
    with ExitStack() as started, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chief = f"127.0.0.1:{free.getsockname()[1]}"
        free.close()

        def start(kind, index, hosts):
            file = tmp_path / f"{kind}-{index}"
            file.write_text(hosts)
            cluster = {"chief": [chief], "worker": ["127.0.0.1:1"] * 2, "ps": ["127.0.0.1:2"]}
            config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
            process = subprocess.Popen(
                [sys.executable, str(COUNTING_PROGRAM)],
                env=os.environ | {"TF_CONFIG": config, "DEEPLEARNING_WORKERS_PATH": str(file)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        def run(*hosts):
            for index, content in enumerate(hosts):
                start("worker", index, content)
            process = start("chief", 0, "")
            output, errors = process.communicate()
            return process.returncode, output, errors

        yield run


def test_every_rank_is_counted_with_its_host(count):
    status, output, errors = count("localhost\n", "localhost\n")
    assert (status, errors) == (0, "")
    assert json.loads(output) == {"ranks": 2, "hosts": [socket.gethostname()] * 2}


@pytest.mark.parametrize("hosts", ["", "localhost\nlocalhost\n", "127.0.0.2\n"])
def test_a_rank_whose_hosts_file_is_not_that_of_the_job_is_named(count, hosts):
    status, output, errors = count("localhost\n", hosts)
    assert (status, output) == (1, "")
    assert "rank 1 must find the hosts 127.0.0.1 in the hosts file, got " in errors


def test_a_resumed_job_takes_the_steps_after_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("DEEPLEARNING_CHECKPOINT_PATH", str(tmp_path))
    take_steps(3, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs-00001", "epochs-00002", "epochs-00003"]
    (tmp_path / "epochs-00001").unlink()
    monkeypatch.setenv("DEEPLEARNING_RESUME_FROM", str(tmp_path / "epochs-00003"))
    take_steps(4, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epochs-00002", "epochs-00003", "epochs-00004"]


def test_a_worker_that_is_lost_ends_the_job():
    chief, worker = socket.socketpair()
    worker.close()
    with chief, pytest.raises(SystemExit, match="all ranks must answer in step 1, one has ended"):
        take_steps(2, [chief])
