"""However a rehearsal ends, nothing of it is left: no process, link, mount or file."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS
from tests.unit.moments import MOST_SECONDS

ROOT = Path(__file__).parents[2]
BASE_CACHE = ROOT / "build" / "rehearsal" / "base"
COMMAND = Path(sys.executable).with_name("deeplearning-cdk")
NODE_RUNS = "reported joined"
ENCLOSE = "import sys; from cdk_rehearsal.run.enclosure import run_enclosed; sys.exit(run_enclosed('idle:wait', ''))"
IDLE = """
import signal, subprocess

def wait(*_):
    subprocess.Popen(["sleep", "1000"])
    print("waits", flush=True)
    signal.pause()
"""


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    folder = tmp_path_factory.mktemp("assembly") / "cdk.out"
    command = [sys.executable, str(ROOT / "app.py"), "-c", "workers.desired_capacity=1"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"CDK_OUTDIR": str(folder)})
    return folder


@dataclass
class Rehearsal:
    """A rehearsal that runs, as a command in a process group of its own."""

    process: "subprocess.Popen[str]"
    out: Path
    progress: list[str]
    processes: dict[int, int]

    def read_until(self, text):
        """Return the first line of progress with a text."""
        assert self.process.stderr is not None
        watchdog = threading.Timer(GENEROUS_SECONDS, self.process.kill)
        watchdog.start()
        try:
            for line in self.process.stderr:
                self.progress.append(line)
                if text in line:
                    return line
        finally:
            watchdog.cancel()
        pytest.fail(f"no progress said {text!r}:\n{''.join(self.progress)}")

    def follow_processes(self, at_least=7):
        """
        Take hold of every process of the lab, so that each can be waited for.

        Args:
            at_least: How many there must be. Default: more than two nodes' first processes, service managers and sshd.
        """
        for pid in _find_children(self.process.pid):
            with contextlib.suppress(ProcessLookupError):  # a short one of the node's ended since it was found
                self.processes[pid] = os.pidfd_open(pid)
        assert len(self.processes) >= at_least

    def finish(self):
        """Return the exit status, once the command and every process of the lab have ended."""
        assert self.process.stderr is not None
        status = self.process.wait(timeout=GENEROUS_SECONDS)
        deadline = time.monotonic() + GENEROUS_SECONDS
        outlived = [pid for pid, descriptor in self.processes.items() if not _has_ended(descriptor, deadline)]
        assert outlived == []
        self.progress += self.process.stderr.readlines()
        return status


Start = Callable[..., Rehearsal]


@pytest.fixture
def start(assembly, tmp_path):
    started = []
    temporary = tmp_path / "temporary"

    def run(*options):
        out = tmp_path / "out"
        out.mkdir()
        BASE_CACHE.mkdir(parents=True, exist_ok=True)
        (out / "base").symlink_to(BASE_CACHE)
        command = [str(COMMAND), "rehearse", str(assembly), "--expect", "formed", "--out", str(out), *options]
        temporary.mkdir()
        environment = os.environ | {"TMPDIR": str(temporary)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, env=environment, text=True, start_new_session=True)
        started.append(Rehearsal(process, out, [], {}))
        return started[-1]

    before = _read_traces()
    yield run
    for rehearsal in started:
        rehearsal.process.kill()
        for descriptor in rehearsal.processes.values():  # only a lab that outlived its command has any
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        rehearsal.process.communicate()
        left = {path.name for path in rehearsal.out.rglob("*") if not path.name.startswith("report.")}
        # Nobody can remove a file after SIGKILL of the command; the record then names a lab that is known to be gone.
        is_killed = rehearsal.process.returncode == -signal.SIGKILL
        assert left <= {
            "base",
            "lab",
            "status.txt",
            "calls.json",
            "dashboard.html",
            "interrupted.txt",
            *({"lab.json"} if is_killed else ()),
        }
        if is_killed:
            assert "has ended" in _look(rehearsal.out, "status").stderr
    assert list(temporary.iterdir()) == []
    assert _read_traces() == before


@pytest.fixture
def running(start):
    rehearsal = start("--keep")  # it would never end by itself
    rehearsal.read_until(NODE_RUNS)
    rehearsal.follow_processes()
    return rehearsal


def test_nothing_is_left_when_the_command_is_killed(running):
    running.process.kill()
    assert running.finish() == -signal.SIGKILL


def test_nothing_is_left_after_control_c_which_says_so(running):
    os.killpg(running.process.pid, signal.SIGINT)  # a terminal interrupts the whole group
    assert running.finish() == 128 + signal.SIGINT
    assert running.progress[-2:] == [
        f"what happened until now is in {running.out / 'interrupted.txt'}\n",
        "interrupted; nothing is left behind\n",
    ]
    assert "CREATE_IN_PROGRESS: User Initiated" in (running.out / "interrupted.txt").read_text()
    assert not any("Traceback" in line for line in running.progress)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_command_alone_ends_all_that_it_encloses(tmp_path, number):
    (tmp_path / "idle.py").write_text(IDLE)
    process = subprocess.Popen(
        [sys.executable, "-c", ENCLOSE],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    rehearsal = Rehearsal(process, tmp_path, [], {})
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waits\n"
            rehearsal.follow_processes(at_least=3)  # unshare, the first process and its child
            process.send_signal(number)
            assert process.wait(timeout=GENEROUS_SECONDS) == 128 + number
            deadline = time.monotonic() + GENEROUS_SECONDS
            assert all(_has_ended(descriptor, deadline) for descriptor in rehearsal.processes.values())
        finally:
            process.kill()


def test_an_interrupt_before_the_first_process_of_the_lab_exists_is_not_lost(tmp_path):
    (tmp_path / "idle.py").write_text(IDLE)
    unshare = tmp_path / "unshare"
    # The command passes the interrupt on to the only child there is, and `unshare` begins after it.
    unshare.write_text(f'#!/bin/sh\necho begins\nsleep 60\nexec {shutil.which("unshare")} "$@"\n')
    unshare.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", ENCLOSE],
        env=os.environ | {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(MOST_SECONDS, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begins\n"
            process.send_signal(signal.SIGINT)
            assert process.wait() == 128 + signal.SIGINT
        finally:
            watchdog.cancel()
            process.kill()


def test_a_kept_cluster_is_reported_can_be_entered_and_ends_with_its_verdict(start):
    rehearsal = start("--keep", "--json")
    rehearsal.read_until("the cluster keeps running")
    rehearsal.follow_processes()
    report = json.loads((rehearsal.out / "report.json").read_text())
    assert report["verdict"] == "pass"
    commands = [match[1] for line in rehearsal.progress if (match := re.fullmatch(r"enter \S+ \d+ +(.+)\n", line))]
    _look_from_outside(rehearsal.out, report)
    hosts = [_ask(f"{command} --command 'hostname; printenv DEEPLEARNING_WORKERS_COUNT'") for command in commands]
    names = [f"ip-{node['address'].replace('.', '-')}" for node in report["nodes"]]
    assert hosts == [f"{name}\n2\n" for name in names]
    os.killpg(rehearsal.process.pid, signal.SIGINT)
    assert rehearsal.finish() == 0
    assert rehearsal.process.stdout is not None
    assert json.loads(rehearsal.process.stdout.read()) == report


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stack", "other"], "stack must name one of deeplearning-cluster, got 'other'"),
        (["--nodes", "1"], "--nodes must be at least 2, the master and the stack's workers.min_capacity of 1, got 1"),
    ],
)
def test_a_rehearsal_that_cannot_start_is_one_error_and_status_2(start, options, message):
    rehearsal = start(*options)
    assert rehearsal.finish() == 2
    assert len(rehearsal.progress) == 1
    assert rehearsal.progress[0].startswith(f"deeplearning-cdk: {message}")


def _look_from_outside(out, report):
    """Hold what the commands for operators say of a kept cluster against its report; a user's own AWS is not asked."""
    status = _look(out, "status", "--json")
    view = json.loads(status.stdout)
    assert (status.returncode, view["verdict"], view["unread"], view["problems"]) == (0, "formed", [], [])
    assert [(node["name"], node["instance_id"], node["address"]) for node in view["nodes"]] == [
        (node["host"], node["instance_id"], node["address"]) for node in report["nodes"]
    ]
    lines = _look(out, "logs").stdout
    assert all(f"{name:<22}  INFO" in lines for name in ("adjuster", "deeplearning-worker1", "deeplearning-worker2"))
    # /proc/self is there only for a process of the node, and not for one of the lab that has the node's files.
    line = "printenv DEEPLEARNING_WORKERS_COUNT && test -e /proc/self/status"
    session = _look(out, "ssh", "--node", "deeplearning-worker2", "--", "bash", "-c", line)
    assert (session.returncode, session.stdout) == (0, "2\n")


def _look(out, command, *options):
    words = [str(COMMAND), command, "--rehearsal", str(out), *options]
    environment = os.environ | {"AWS_PROFILE": "production", "AWS_ENDPOINT_URL": "http://192.0.2.1"}
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS, env=environment)


def _ask(command):
    return subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS
    ).stdout


def _has_ended(descriptor, deadline):
    ended, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
    return bool(ended)


def _find_children(pid):
    """Return all processes below one; none below one that has ended meanwhile."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [below for child in found for below in _find_children(child)]


def _read_traces():
    """Return this machine's links, mounts and named namespaces; each command has a `/tmp` of its own."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    run = {path for folder in ("/run", "/run/netns") for path in Path(folder).glob("*")}
    return {line.split()[0] for line in links.splitlines()}, Path("/proc/self/mounts").read_text(), run
