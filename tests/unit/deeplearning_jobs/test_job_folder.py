"""Names of jobs, the places of their files, and the states of their runs."""

import os
import subprocess
import sys

import pytest

from deeplearning_jobs.plan.checkpoints import fill_arguments, find_newest, set_aside
from deeplearning_jobs.plan.launch_plan import PlanError
from deeplearning_jobs.runs.job_folder import JobFolder, JobNameError, JobsFolder, find_program_file, name_job
from deeplearning_jobs.runs.run_status import RunStatus, Supervisor

HERE = "i-00000000000000001"


@pytest.mark.parametrize(
    ("program", "name", "file"),
    [
        (("python3", "-u", "/efs/train.py", "--x"), "train", "/efs/train.py"),
        (("/opt/env/bin/python3.10", "-W", "ignore", "train.v2.py"), "train.v2", "train.v2.py"),
        (("bash", "-o", "pipefail", "my job.sh"), "my-job", "my job.sh"),
        (("python", "-m", "package.digits", "--m"), "digits", ""),
        (("python", "-m", "package.__main__"), "package", ""),
        (("./run me", "x"), "run-me", "./run me"),
        (("nvidia-smi",), "nvidia-smi", ""),
        (("python", "-c", "print()"), "python", ""),
    ],
)
def test_a_job_is_called_like_its_program_file_or_module(program, name, file):
    assert (name_job(program), find_program_file(program)) == (name, file)


def test_a_program_whose_name_is_no_name_needs_one():
    with pytest.raises(JobNameError, match="add --name"):
        name_job(("./---",))


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "x" * 65, "-x", "a\n"])
def test_a_name_that_could_leave_the_folder_is_refused(tmp_path, name):
    with pytest.raises(JobNameError):
        JobsFolder(tmp_path).job(name)


def test_runs_are_numbered_in_their_order_and_none_is_used_twice(tmp_path):
    job = JobFolder("train", tmp_path / "train")
    for _ in range(11):
        job.start_run(job.next_run(), "ubuntu")
    assert [run.number for run in job.runs()] == list(range(1, 12))
    with pytest.raises(FileExistsError):
        job.start_run(job.run(11), "ubuntu")


# --- Checkpoints ----------------------------------------------------------------------------------------


def touch(path, when):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (when, when))


def test_the_newest_checkpoint_is_the_one_written_last_and_no_half_written_one(tmp_path):
    assert find_newest(tmp_path / "missing") == ""
    assert find_newest(tmp_path) == ""
    for name, when in (("b.pt", 20), ("a.pt", 30), ("c.pt.tmp", 40), ("d.part", 50), (".e", 60)):
        touch(tmp_path / name, when)
    (tmp_path / "gone.pt").symlink_to(tmp_path / "nowhere")
    assert find_newest(tmp_path) == str(tmp_path / "a.pt")


def test_a_pattern_says_what_a_checkpoint_is(tmp_path):
    for name, when in (("epoch-1/model.pt", 10), ("epoch-2/model.pt", 20), ("epoch-2/optimizer.pt", 30)):
        touch(tmp_path / name, when)
    assert find_newest(tmp_path, "epoch-*/model.pt") == str(tmp_path / "epoch-2/model.pt")


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../b"])
def test_a_pattern_that_leads_out_of_the_folder_is_refused(tmp_path, pattern):
    with pytest.raises(PlanError, match="--checkpoint-pattern must be a pattern below"):
        find_newest(tmp_path, pattern)


def test_the_checkpoint_comes_into_arguments_and_further_ones_only_with_it():
    program = ("python3", "train.py", "--from={checkpoint}")
    assert fill_arguments(program, "--load '{checkpoint} x'", "/c/1") == (
        *("python3", "train.py", "--from=/c/1"),
        *("--load", "/c/1 x"),
    )
    assert fill_arguments(program, "--load {checkpoint}", "") == ("python3", "train.py", "--from=")
    with pytest.raises(PlanError, match="--resume-args must be words as a shell reads them"):
        fill_arguments(program, "'open", "")


def test_nothing_is_set_aside_when_there_is_nothing(tmp_path):
    assert set_aside(tmp_path / "checkpoints", 3) is None
    assert (tmp_path / "checkpoints").is_dir()
    (tmp_path / "checkpoints/1.pt").touch()
    assert set_aside(tmp_path / "checkpoints", 3) == tmp_path / "checkpoints-before-run-3"
    assert list((tmp_path / "checkpoints").iterdir()) == []


# --- Status ---------------------------------------------------------------------------------------------


def running(supervisor):
    return RunStatus("train", 1, "mpi", "running", None, "now", "", ("h",), "", "", supervisor)


def test_a_status_comes_back_as_it_was_written(tmp_path):
    status = running(Supervisor.of_process(HERE, os.getpid()))
    assert RunStatus.from_text(status.to_text()) == status
    run = JobFolder("train", tmp_path).run(1)
    assert run.read_status() is None
    run.write_status(status.end("failed", 3, "later", "worker-0 failed"))
    assert (run.read_status().state, run.read_status().status) == ("failed", 3)
    (run.path / "status.json").write_text('{"state": "running"}')
    assert run.read_status() is None


def test_a_run_is_running_only_while_its_own_supervisor_lives():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own = Supervisor.of_process(HERE, process.pid)
    assert running(own).is_running_on(HERE)
    assert not running(own).is_running_on("i-00000000000000002")
    assert not running(Supervisor(HERE, own.boot, own.process_id, own.started + 1)).is_running_on(HERE)
    assert not running(Supervisor(HERE, "another boot", own.process_id, own.started)).is_running_on(HERE)
    assert not running(own).end("stopped", 143, "now").is_running_on(HERE)
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not running(own).is_running_on(HERE), "it has ended and nobody has asked for its status"
    process.wait()
    assert not running(own).is_running_on(HERE)
