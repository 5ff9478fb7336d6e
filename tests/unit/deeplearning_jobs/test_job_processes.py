"""Processes of a run, and how they are ended."""

import os
import subprocess
import sys
import uuid

import pytest

from deeplearning_jobs.hosts.processes import end_processes, find_processes
from deeplearning_node.deadline import Clock
from tests.real_time import wait_until

WILLING = "import time; print('on', flush=True); time.sleep(100)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WILLING}"


@pytest.fixture
def start():
    """Start a Python program of a run; its name is of this test alone."""
    mark, started = f"{uuid.uuid4()}/1", []

    def run(text, *, is_marked=True):
        environment = {**os.environ, **({"DEEPLEARNING_JOB": mark} if is_marked else {})}
        process = subprocess.Popen([sys.executable, "-c", text], env=environment, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout.readline() == b"on\n"
        return process

    run.mark = mark
    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.defect("D78")
@pytest.mark.parametrize(("text", "killed", "status"), [(WILLING, 0, -15), (STUBBORN, 1, -9)])
def test_only_the_processes_of_the_run_are_ended_and_one_that_stays_is_killed(start, text, killed, status):
    ours, other = start(text), start(WILLING, is_marked=False)
    assert find_processes()[ours.pid] == start.mark
    assert other.pid not in find_processes()
    ended = end_processes(lambda mark: mark == start.mark, Clock(), **({"grace_seconds": 0.3} if killed else {}))
    assert (ended.count, ended.killed, ended.left) == (1, killed, ())
    assert wait_until(ours.poll) == status
    assert other.poll() is None


def test_a_process_that_was_started_meanwhile_is_ended_too():
    """As an elastic launcher does for a rank that ended."""
    looks = iter([{1 << 30: "x/1"}, {(1 << 30) + 1: "x/1"}, {}])
    assert end_processes(lambda _: True, Clock(), find=lambda: next(looks)).count == 2


def test_a_process_that_cannot_be_ended_is_reported():
    class Impatient(Clock):
        def __init__(self):
            self.now = 0.0

        def read(self):
            self.now += 1
            return self.now

        def wait(self, seconds):
            pass

    ended = end_processes(lambda _: True, Impatient(), find=lambda: {1 << 30: "x/1"})
    assert (ended.count, ended.killed, ended.left) == (1, 1, (1 << 30,))


def test_the_command_itself_is_never_one_of_them():
    """A user may call it inside a job, or in a shell that has the variable."""
    text = "from deeplearning_jobs.hosts import processes; import os; print(os.getpid() in processes.find_processes())"
    environment = {**os.environ, "DEEPLEARNING_JOB": f"{uuid.uuid4()}/1"}
    said = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
