"""`deeplearning run`: what it refuses, what it starts, how it ends, and what it leaves."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deeplearning_contract.setting_parts import DataSettings, EnvironmentSettings, JobNeeds
from tests.real_time import wait_until
from tests.unit.job_lab import CPU

FOR_EVER = "exec sleep 1000"


def last_line(text):
    return text.rstrip("\n").rpartition("\n")[2]


def start_for_ever(job_lab, *options, text=FOR_EVER, name="train"):
    """Start a job that never ends; return the command and the job's processes once all ranks run."""
    job = job_lab.write_job(f'echo "ready"; {text}', f"{name}.sh")
    command = job_lab.start("run", *options, "--", job)
    folder = job_lab.folder / "efs/jobs" / name
    wait_until(lambda: all(any(folder.glob(f"runs/*/rank-{rank}.log")) for rank in (0, 1)))
    wait_until(lambda: len(find_ranks(job_lab)) == 2)
    return command


def find_ranks(job_lab):
    """Return the processes that a rank's program has become."""
    return [process for process, words in job_lab.processes().items() if words == "sleep 1000 "]


# --- A job that ends well -------------------------------------------------------------------------------


@pytest.mark.defect("D72")
def test_a_job_runs_on_every_host_and_its_user_sees_what_rank_zero_writes(job_lab):
    """Nothing but the node's own facts says who the user is, and the launcher is the one in PATH."""
    job = job_lab.write_job(
        'echo "rank $DEEPLEARNING_RANK in $PWD got $*"; echo "$DEEPLEARNING_JOB" > "$1$HOROVOD_RANK"'
    )
    done = job_lab.run("run", "--", job, f"{job_lab.folder}/two words ")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"rank 0 in {job_lab.folder}/user got {job_lab.folder}/two words \n"
    assert [(job_lab.folder / f"two words {rank}").read_text() for rank in (0, 1)] == ["train/1\n"] * 2
    assert job_lab.read("train/runs/1/rank-1.log").startswith("rank 1 in ")
    folder = job_lab.folder / "10.0.0.9/mnt/efs/jobs/train/runs/1"
    assert last_line(done.stderr).endswith(f"succeeded, see {folder}")
    status = job_lab.status("train/1")
    assert (status["state"], status["status"], status["launcher"]) == ("succeeded", 0, "horovod")
    assert status["hosts"] == ["deeplearning-worker1", "deeplearning-worker2"]
    assert json.loads(job_lab.read("train/runs/1/plan.json"))["ranks"] == 2
    assert "horovodrun" in job_lab.read("train/runs/1/plan.txt")
    assert job_lab.read("train/runs/1/launch.log") == done.stderr
    assert job_lab.processes() == {}


def test_a_relative_program_and_a_variable_reach_the_ranks(job_lab):
    job = Path(job_lab.write_job('echo "$COLOUR"'))
    (job_lab.folder / "user" / "mine.sh").symlink_to(job)
    done = job_lab.run("run", "--env", "COLOUR=dark red", "--", "sh", "mine.sh")
    assert (done.returncode, done.stdout) == (0, "dark red\n"), done.stderr
    assert job_lab.status("mine/1")["state"] == "succeeded"


# --- What it refuses, before anything starts ------------------------------------------------------------


def declare(job_lab, name, step, **needs):
    """Declare data or an environment that both hosts need; on the second it is at a step."""
    for index in range(2):
        job_lab.set_facts(index, needs=JobNeeds({"master": CPU, "worker": CPU}, **needs))
        set_step(job_lab, index, step if index else {**HALF, "state": "done", "done": 8}, name)


def set_step(job_lab, index, step, name="data:digits"):
    path = job_lab.folder / job_lab.addresses[index] / "opt/deeplearning/provision/status.json"
    path.write_text(json.dumps({"boot": "boot", "steps": {name: step}}))


def need_data(job_lab, step):
    declare(job_lab, "data:digits", step, data=(DataSettings("digits", "bucket", "digits.tar", "efs"),))


def need_environment(job_lab):
    declare(job_lab, "environment", BROKEN, environment=EnvironmentSettings("horovod", horovod="0.28.1"))


HALF = {"state": "running", "detail": "fetching digits.tar", "done": 2, "total": 8, "unit": "bytes"}
BROKEN = {"state": "failed", "detail": "it is broken", "done": 0, "total": 0, "unit": "", "final": True}
REFUSALS = {
    "a host does not respond": (
        lambda lab: lab.silence(1),
        [],
        (
            "deeplearning-worker2 (i-00000000000000001) does not respond: "
            "ssh: connect to host 10.0.0.10 port 22: timed out"
        ),
    ),
    "a GPU host shows none": (
        lambda lab: lab.set_facts(1, expected_gpu_count=8),
        [],
        "gpu_count of deeplearning-worker2 must be 8",
    ),
    "data is on its way": (
        lambda lab: need_data(lab, HALF),
        ["--no-wait"],
        "data:digits is running 25 % of 8 bytes on deeplearning-worker2: fetching digits.tar; omit --no-wait to",
    ),
    "data cannot come": (
        lambda lab: need_data(lab, BROKEN),
        [],
        "data:digits is failed on deeplearning-worker2: it is broken\n",
    ),
    "the environment could not be made": (
        need_environment,
        [],
        "it is broken; add --without-environment to run in the image's own software\n",
    ),
}


@pytest.mark.defect("D69", "D70")
@pytest.mark.parametrize("why", REFUSALS)
def test_nothing_starts_when(job_lab, why):
    prepare, options, said = REFUSALS[why]
    job = job_lab.write_job("exit 0")
    prepare(job_lab)
    done = job_lab.run("run", *options, "--", job)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (job_lab.folder / "efs/jobs").exists()


def test_a_program_that_a_host_lacks_is_named_with_the_host_and_every_reason_is_reported_at_once(job_lab):
    mine = job_lab.folder / "user" / "mine.sh"
    done = job_lab.run("run", "--", "sh", "mine.sh")
    assert done.returncode == 2
    assert f"{mine} does not exist on deeplearning-worker1, deeplearning-worker2" in done.stderr
    job_lab.silence(1)
    done = job_lab.run("run", "--", "no-such-interpreter", "mine.sh")
    assert "no-such-interpreter is not a program on deeplearning-worker1" in done.stderr
    assert "\n  - deeplearning-worker2 (i-00000000000000001) does not respond" in done.stderr


def test_it_waits_for_data_and_says_so(job_lab):
    need_data(job_lab, HALF)
    command = job_lab.start("run", "--", job_lab.write_job("echo trained"))
    wait_until(lambda: len(job_lab.asked(1)) >= 2)  # it asks again only while it waits
    set_step(job_lab, 1, {**HALF, "state": "done", "done": 8})
    done = job_lab.finish(command)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert "waiting: data:digits is running 25 % of 8 bytes on deeplearning-worker2: fetching digits.tar" in done.stderr


def test_a_cluster_whose_environment_failed_runs_jobs_in_the_images_own_software(job_lab):
    need_environment(job_lab)
    job = job_lab.write_job('[ "${PATH#*deeplearning/environments}" = "$PATH" ] && echo trained')
    done = job_lab.run("run", "--without-environment", "--np", "1", "--", job)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr


# --- Failure --------------------------------------------------------------------------------------------


def test_the_status_is_that_of_the_rank_that_failed_first_and_its_last_lines_are_shown(job_lab):
    job = job_lab.write_job(f'[ "$HOROVOD_RANK" = 0 ] || {{ echo "no memory"; exit 7; }}; {FOR_EVER}')
    done = job_lab.run("run", "--", job)
    assert done.returncode == 7
    assert "rank 1 on deeplearning-worker2 failed first, with status 7" in done.stderr
    assert "runs/1/rank-1.log (deeplearning-worker2):\n" in done.stderr
    assert "    no memory\n" in done.stderr
    status = job_lab.status("train/1")
    assert (status["state"], status["status"]) == ("failed", 7)
    assert job_lab.processes() == {}


def test_the_remedy_of_a_refusal_of_horovod_is_shown_and_kept_with_the_run(job_lab):
    refusal = "ValueError: Tensor is required to be contiguous."
    done = job_lab.run("run", "--", job_lab.write_job(f'echo "{refusal}" >&2; exit 1'))
    assert done.returncode == 1
    for said in (done.stderr, job_lab.read("train/runs/1/launch.log")):
        assert f"    {refusal}\n" in said
        assert "remedy: Horovod takes no tensors in another memory format" in said


# --- Launchers that start on every host -----------------------------------------------------------------


def test_a_launcher_of_every_host_ends_well_when_all_its_workers_do(job_lab):
    job = job_lab.write_job('echo "$DEEPLEARNING_TASK $TF_CONFIG"')
    done = job_lab.run("run", "--launcher", "tf-multiworker", "--", job)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("worker-0 {")
    assert '"index": 1' in job_lab.read("train/runs/1/rank-1.log")


def test_the_first_worker_that_fails_ends_the_others_and_gives_the_status(job_lab):
    job = job_lab.write_job(f'[ "$DEEPLEARNING_TASK" = worker-0 ] || {{ echo "bad shard"; exit 5; }}; {FOR_EVER}')
    done = job_lab.run("run", "--launcher", "tf-multiworker", "--", job)
    assert done.returncode == 5
    assert "worker-1 on deeplearning-worker2 ended with status 5" in done.stderr
    assert "    bad shard\n" in done.stderr
    assert job_lab.processes() == {}


@pytest.mark.defect("D78")
def test_parameter_servers_are_stopped_when_the_job_has_ended(job_lab):
    text = f'case "$DEEPLEARNING_TASK" in chief-0) sleep 0.5; echo trained ;; *) {FOR_EVER} ;; esac'
    done = job_lab.run("run", "--launcher", "tf-ps", "--", job_lab.write_job(text))
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert job_lab.processes() == {}


def test_a_host_that_is_lost_is_not_taken_for_a_program_that_failed(job_lab):
    command = start_for_ever(job_lab, "--launcher", "tf-multiworker")
    # The connection's own shell, by which the test's ssh stands for the host's; its child goes on, as it would there.
    (shell,) = [pid for pid, words in connections(job_lab, "10.0.0.10").items()]
    os.kill(shell, signal.SIGKILL)
    done = job_lab.finish(command)
    assert done.returncode == 137
    assert job_lab.processes() == {}


def connections(job_lab, address):
    """Return the shells that stand for connections to a host and run a part of a job there."""
    found = {}
    for path in Path("/proc").iterdir():
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if f"LAB={job_lab.folder}@{address}".encode() in variables and b"begins on" in words:
            found[int(path.name)] = words
    return found


# --- Interruption and stop ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["INT", "TERM", "HUP"],
)
def test_an_interruption_leaves_no_process_on_any_host(job_lab, number, status):
    """Not even one that left the session of its rank."""
    command = start_for_ever(job_lab, text=f"setsid sleep 999 & {FOR_EVER}")
    wait_until(lambda: list(job_lab.processes().values()).count("sleep 999 ") == 2)
    os.kill(command.pid, number)
    done = job_lab.finish(command)
    assert done.returncode == status
    assert job_lab.processes() == {}
    found = job_lab.status("train/1")
    assert (found["state"], found["status"]) == ("stopped", status)


@pytest.mark.defect("D78")
def test_stop_ends_the_job_on_every_host_and_no_other_program(job_lab):
    other = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"],
        env={**os.environ, "LAB": f"{job_lab.folder}@10.0.0.10"},
    )
    try:
        command = start_for_ever(job_lab)
        done = job_lab.run("stop", "train")
        assert (done.returncode, done.stdout) == (0, "train/1 is stopped\n"), done.stderr
        assert job_lab.processes() == {}
        assert job_lab.finish(command).returncode == 143
        assert job_lab.status("train/1")["state"] == "stopped"
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_stop_says_what_runs_when_it_does_not_know_the_job(job_lab):
    assert job_lab.run("stop").stdout == "no job is running\n"
    start_for_ever(job_lab)
    done = job_lab.run("stop", "other")
    assert done.returncode == 2
    assert "job must be a running one, got 'other'; running: train/1" in done.stderr
    assert job_lab.processes()


def test_a_supervisor_that_was_killed_leaves_a_job_that_stop_ends(job_lab):
    command = start_for_ever(job_lab)
    command.kill()
    command.communicate()
    again = job_lab.run("run", "--", job_lab.write_job("exit 0", "other.sh"))
    assert again.returncode == 2
    assert "deeplearning stop train/1" in again.stderr
    assert job_lab.run("stop").returncode == 0
    assert job_lab.processes() == {}
    assert job_lab.status("train/1")["state"] == "stopped"


def test_a_run_whose_supervisor_is_gone_is_lost_and_prevents_no_job(job_lab):
    job = job_lab.write_job("echo trained")
    assert job_lab.run("run", "--", job).returncode == 0
    status = job_lab.folder / "efs/jobs/train/runs/1/status.json"
    status.write_text(json.dumps({**json.loads(status.read_text()), "state": "running", "status": None}))
    assert json.loads(job_lab.run("jobs", "--json").stdout)["jobs"][0]["state"] == "lost"
    done = job_lab.run("run", "--", job)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr


# --- A job without a session ----------------------------------------------------------------------------


@pytest.mark.defect("D74")
def test_a_detached_job_outlives_the_session_in_which_it_was_started(job_lab):
    job = job_lab.write_job('until [ -e "$1" ]; do sleep 0.05; done; echo trained')
    command = job_lab.start("run", "--detach", "--", job, f"{job_lab.folder}/go-on")
    done = job_lab.finish(command)  # The end of its output too: the job holds nothing of the session.
    assert done.returncode == 0, done.stderr
    assert "deeplearning logs train/1 --follow" in done.stderr
    assert job_lab.status("train/1")["state"] == "running"
    with pytest.raises(ProcessLookupError):
        os.killpg(command.pid, signal.SIGHUP)
    follow = job_lab.start("logs", "--follow")
    (job_lab.folder / "go-on").touch()
    wait_until(lambda: job_lab.status("train/1")["state"] == "succeeded")
    assert job_lab.finish(follow).stdout == "trained\n"
    assert last_line(job_lab.read("train/runs/1/launch.log")).endswith("runs/1")
    assert job_lab.processes() == {}


@pytest.mark.defect("D74")
def test_a_detached_job_is_stopped_by_its_name(job_lab):
    done = job_lab.finish(start_for_ever(job_lab, "--detach"))
    assert done.returncode == 0, done.stderr
    again = job_lab.run("run", "--", job_lab.write_job("exit 0", "other.sh"))
    assert again.returncode == 2
    assert "job train/1 has processes on deeplearning-worker1, deeplearning-worker2; " in again.stderr
    assert "deeplearning stop train/1" in again.stderr
    assert job_lab.status("other/1") is None
    assert job_lab.run("stop", "train/1").returncode == 0
    assert job_lab.processes() == {}
    status = job_lab.status("train/1")
    assert (status["state"], status["status"]) == ("stopped", 143)


# --- Going on from a checkpoint -------------------------------------------------------------------------

SAVE = """
echo "resume=$DEEPLEARNING_RESUME_FROM arguments=$*"
[ "$HOROVOD_RANK" = 0 ] || exit 0
touch "$DEEPLEARNING_CHECKPOINT_PATH/epoch-$1"
"""


@pytest.mark.defect("D73")
def test_a_job_of_the_same_name_goes_on_from_its_newest_checkpoint(job_lab):
    job = job_lab.write_job(SAVE)
    checkpoints = f"{job_lab.folder}/10.0.0.9/mnt/efs/jobs/train/checkpoints"
    options = ("run", "--resume-args=--load={checkpoint}", "--", job)
    assert job_lab.run(*options, "2").stdout == "resume= arguments=2\n"
    newest = f"{checkpoints}/epoch-2"
    assert job_lab.run(*options, "1").stdout == f"resume={newest} arguments=1 --load={newest}\n"
    newest = f"{checkpoints}/epoch-1"
    done = job_lab.run(*options, "{checkpoint}")
    assert done.stdout.startswith(f"resume={newest} arguments={newest} --load={newest}\n")
    assert f"resumes from {newest}" in done.stderr
    assert job_lab.status("train/3")["resumed_from"] == newest


@pytest.mark.defect("D73")
def test_a_fresh_beginning_keeps_the_old_checkpoints(job_lab):
    job = job_lab.write_job(SAVE)
    job_lab.run("run", "--", job, "1")
    done = job_lab.run("run", "--fresh", "--", job, "2")
    assert done.stdout == "resume= arguments=2\n"
    folder = job_lab.folder / "efs/jobs/train"
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["epoch-2"]
    assert [path.name for path in (folder / "checkpoints-before-run-2").iterdir()] == ["epoch-1"]
