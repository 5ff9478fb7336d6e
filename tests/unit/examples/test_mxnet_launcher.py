"""Launcher `mxnet/launch.py` on its hosts, with programs of the test in place of SSH and MXNet."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit.job_lab import list_commands

LAUNCHER = Path(__file__).parents[3] / "examples" / "mxnet" / "launch.py"
# A session's environment is the host's own, and the session ends when its standard input does, as sshd's do.
SSH = """#!/bin/bash
while [ "${1#-}" != "$1" ]; do echo "$2" >> "$TEST/options"; shift 2; done
host=$1
shift
exec env -i PATH="$PATH" TEST="$TEST" SSH_HOST="$host" sh -c "$*"
"""
PROGRAM = """
import json, os, pathlib, sys, time
folder = pathlib.Path(os.environ["TEST"])
role = os.environ["DMLC_ROLE"]
name = f"{role}-{os.environ.get('SSH_HOST', 'here')}-{os.getpid()}"
seen = {key: value for key, value in os.environ.items() if key.startswith(("DMLC_", "DEEPLEARNING_", "SSH_", "MORE"))}
(folder / f"{name}.new").write_text(json.dumps({"arguments": sys.argv[1:], "folder": os.getcwd(), **seen}))
(folder / f"{name}.new").rename(folder / f"{name}.json")
behaviour = sys.argv[1]
if role == "worker" and behaviour == "fail" and os.environ["SSH_HOST"] == "127.0.0.2":
    while len(list(folder.glob("*.json"))) < 5:
        time.sleep(0.05)
    sys.exit(7)
if behaviour in ("fail", "hang"):
    time.sleep(600)
if role != "worker":
    while not (folder / "done").exists():
        time.sleep(0.05)
else:
    while len(list(folder.glob("worker-*.json"))) < int(os.environ["DMLC_NUM_WORKER"]):
        time.sleep(0.05)
    (folder / "done").touch()
"""


class Hosts:
    """Two hosts under addresses of this machine, and a folder that both see."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(SSH)
        (folder / "bin" / "ssh").chmod(0o755)
        (folder / "program.py").write_text(PROGRAM)
        (folder / "hosts").write_text("127.0.0.1 slots=1\n127.0.0.2\n")

    def command(self, *flags, program=("work",)):
        python = [sys.executable, str(self.folder / "program.py"), *program]
        return [sys.executable, str(LAUNCHER), "-H", str(self.folder / "hosts"), *flags, *python]

    def environment(self):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        more = {"DEEPLEARNING_JOB": "digits/1", "DEEPLEARNING_WORKER_GPU_COUNT": "8", "SECRET": "hidden"}
        return os.environ | {"PATH": path, "TEST": str(self.folder)} | more

    def launch(self, *flags, program=("work",)):
        return subprocess.run(
            self.command(*flags, program=program),
            env=self.environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
        )

    def seen(self, role):
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob(f"{role}-*.json"))]

    def left(self):
        """Processes of the program that still run."""
        mark = str(self.folder / "program.py").encode()
        return [command for command in list_commands() if mark in command and b"launch.py" not in command]


@pytest.fixture
def hosts(tmp_path):
    return Hosts(tmp_path)


def test_the_scheduler_runs_here_and_servers_and_workers_are_spread_over_the_hosts(hosts):
    answer = hosts.launch("-n", "3")
    assert answer.returncode == 0, answer.stderr
    assert ["SSH_HOST" in one for one in hosts.seen("scheduler")] == [False]
    for role in ("server", "worker"):
        assert [one["SSH_HOST"] for one in hosts.seen(role)] == ["127.0.0.1", "127.0.0.1", "127.0.0.2"]
        assert all(one["DMLC_NODE_HOST"] == one["SSH_HOST"] for one in hosts.seen(role))


def test_all_processes_know_one_scheduler_and_the_same_numbers(hosts):
    assert hosts.launch("-n", "2", "-s", "1").returncode == 0
    everyone = [*hosts.seen("scheduler"), *hosts.seen("server"), *hosts.seen("worker")]
    assert len(everyone) == 4
    assert {one["DMLC_PS_ROOT_URI"] for one in everyone} == {"127.0.0.1"}
    assert len({one["DMLC_PS_ROOT_PORT"] for one in everyone}) == 1
    assert {(one["DMLC_NUM_WORKER"], one["DMLC_NUM_SERVER"]) for one in everyone} == {("2", "1")}


def test_the_seeds_python_is_python3_where_there_is_no_other(hosts):
    """Ubuntu has no `python`: https://packages.ubuntu.com/noble/python-is-python3."""
    for name in ("bash", "cat", "env", "kill", "setsid", "sh", "sleep"):
        (hosts.folder / "bin" / name).symlink_to(shutil.which(name))
    (hosts.folder / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (hosts.folder / "bin" / "python3").chmod(0o755)
    command = [*hosts.command("-n", "1")[:-3], "python", str(hosts.folder / "program.py"), "work"]
    environment = hosts.environment() | {"PATH": str(hosts.folder / "bin")}
    answer = subprocess.run(
        command,
        env=environment,
        cwd=hosts.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=GENEROUS_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    assert len(hosts.seen("worker")) == 1


def test_names_of_hosts_become_addresses(hosts):
    (hosts.folder / "hosts").write_text("localhost\n")
    assert hosts.launch("-n", "1").returncode == 0
    assert [(one["SSH_HOST"], one["DMLC_NODE_HOST"]) for one in hosts.seen("worker")] == [("localhost", "127.0.0.1")]


def test_the_program_gets_its_own_flags_in_this_folder_even_those_that_the_launcher_has_too(hosts):
    words = ("work", "--gpus", "--network", "resnet", "-n", "9", "two words", "$HOME", "it's")
    assert hosts.launch("-n", "1", program=words).returncode == 0
    for one in (*hosts.seen("scheduler"), *hosts.seen("worker")):
        assert one["arguments"] == list(words)
        assert one["folder"] == str(hosts.folder)


def test_the_job_is_named_on_every_host_and_a_count_of_one_host_is_not_passed_to_another(hosts):
    assert hosts.launch("-n", "1", "--env", "MORE:1:2").returncode == 0
    (worker,) = hosts.seen("worker")
    assert worker["DEEPLEARNING_JOB"] == "digits/1"
    assert worker["MORE"] == "1:2"
    assert "DEEPLEARNING_WORKER_GPU_COUNT" not in worker


def test_host_keys_are_checked(hosts):
    assert hosts.launch("-n", "1").returncode == 0
    options = set((hosts.folder / "options").read_text().split())
    assert {"StrictHostKeyChecking=yes", "BatchMode=yes"} <= options


def test_a_failed_worker_ends_everything_everywhere_with_its_status(hosts):
    answer = hosts.launch("-n", "2", program=("fail",))
    assert answer.returncode == 7
    assert "worker-1 on 127.0.0.2 ended with status 7" in answer.stderr
    assert hosts.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_launcher_however_it_ends(hosts, number):
    command = hosts.command("-n", "2", program=("hang",))
    with subprocess.Popen(command, env=hosts.environment(), cwd=hosts.folder, stderr=subprocess.DEVNULL) as launcher:
        wait_until(lambda: len(list(hosts.folder.glob("*.json"))) == 5)
        launcher.send_signal(number)
        status = launcher.wait(GENEROUS_SECONDS)
    assert status == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: hosts.left() == [])


@pytest.mark.parametrize(
    ("flags", "cause"),
    [
        (("-n", "0"), "must be at least 1, got 0 and 0"),
        (("-n", "1", "--launcher", "mpi"), "--launcher must be ssh, got mpi; use `deeplearning run`"),
        (("-n", "1", "--sync-dst-dir", "/tmp/x"), "--sync-dst-dir must not be given"),
        (("-n", "1", "--env", "WRONG"), "--env must be NAME:VALUE, got WRONG"),
    ],
)
def test_unsupported_options_are_refused_with_the_remedy(hosts, flags, cause):
    answer = hosts.launch(*flags)
    assert answer.returncode == 2
    assert cause in answer.stderr
    assert list(hosts.folder.glob("*.json")) == []


@pytest.mark.parametrize(
    ("text", "cause"), [("", "must list at least one host"), ("no-such-host.invalid\n", "an address")]
)
def test_an_empty_hosts_file_is_an_error(hosts, text, cause):
    (hosts.folder / "hosts").write_text(text)
    answer = hosts.launch("-n", "1")
    assert answer.returncode == 2
    assert cause in answer.stderr


def test_the_seeds_command_runs_unchanged_on_hosts_without_gpus(hosts):
    (hosts.folder / "bin" / "python").symlink_to(sys.executable)
    text = (
        f"{shlex.quote(str(LAUNCHER))} -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH "
        "python program.py --gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) "
        "--network resnet --num-layers 50 --kv-store dist_device_sync"
    )
    variables = {
        "DEEPLEARNING_WORKERS_COUNT": "2",
        "DEEPLEARNING_WORKERS_PATH": str(hosts.folder / "hosts"),
        "DEEPLEARNING_WORKER_GPU_COUNT": "0",
    }
    environment = hosts.environment() | variables
    answer = subprocess.run(
        ["bash", "-c", text], env=environment, cwd=hosts.folder, check=False, timeout=GENEROUS_SECONDS, stdin=None
    )
    assert answer.returncode == 0
    expected = ["--gpus", "--network", "resnet", "--num-layers", "50", "--kv-store", "dist_device_sync"]
    assert [one["arguments"] for one in hosts.seen("worker")] == [expected] * 2
