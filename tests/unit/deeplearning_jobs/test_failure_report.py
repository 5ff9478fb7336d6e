"""First failure of a job, as each launcher reports it, and the report for the user."""

import pytest

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import Host, LaunchPlan, Process
from deeplearning_jobs.runs.job_folder import JobFolder
from deeplearning_jobs.runs.supervision import RunOutcome, explain_failure

# As horovodrun 0.28, Open MPI 4.1 and torchrun 2.x print it.
HOROVOD = """
[1]<stderr>:Killed
Exception in thread
RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing the job to be \
terminated. The first process to do so was:
Process name: 3
Exit code: 7
"""
MPI = """
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[58164,1],3]
  Exit code:    7
"""
TORCHRUN = """
Failures:
  <NO_OTHER_FAILURES>
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_20:00:00
  host      : deeplearning-worker2
  rank      : 3 (local_rank: 1)
  exitcode  : 7 (pid: 4711)
  error_file: <N/A>
"""


SAID = {"horovod": HOROVOD, "mpi": MPI, "torchrun": TORCHRUN}


def make_plan(launcher, process):
    hosts = tuple(
        Host(f"deeplearning-worker{index}", f"i-{index}", f"10.0.0.{index}", 2, "", 1, 0, "ens5") for index in (1, 2)
    )
    return LaunchPlan(
        launcher=launcher,
        hosts=hosts,
        slots=2,
        ranks=4,
        drives_whole_host=False,
        processes=(process,),
        files={},
        reasons=(),
        rank_zero_log="",
    )


@pytest.fixture
def run(tmp_path):
    found = JobFolder("train", tmp_path).run(1)
    found.path.mkdir(parents=True)
    return found


def test_the_output_of_a_failure_is_recorded_here_for_every_starter():
    assert SAID.keys() == {each.name for each in LAUNCHERS.values() if each.starter}


@pytest.mark.parametrize(
    ("launcher", "name", "said", "status"),
    [
        *((name, "launcher" if LAUNCHERS[name].is_central else "node-1", said, 7) for name, said in SAID.items()),
        ("horovod", "launcher", HOROVOD.replace("Exit code: 7", "Exit code: -9"), 137),
    ],
)
def test_the_launcher_names_the_rank_that_failed_first(run, launcher, name, said, status):
    process = Process("deeplearning-worker1", name, (), {}, is_essential=True)
    run.log(name).write_text(said)
    (run.path / "rank-3.log").write_text("".join(f"epoch {number}\n" for number in range(50)) + "\x1b[1mout of memory")
    found, lines = explain_failure(run, make_plan(launcher, process), RunOutcome("failed", 1, "", process))
    assert found == status
    assert lines[0] == f"rank 3 on deeplearning-worker2 failed first, with status {status}"
    assert lines[1] == f"the last lines of {run.path}/rank-3.log (deeplearning-worker2):"
    assert len(lines) == 22
    assert lines[-1] == "     [1mout of memory"


def test_where_no_rank_is_named_the_launchers_own_last_lines_are_shown(run):
    process = Process("deeplearning-worker1", "launcher", (), {}, is_essential=True)
    run.log("launcher").write_text("horovodrun: not a host: x\n")
    status, lines = explain_failure(run, make_plan("horovod", process), RunOutcome("failed", 2, "", process))
    assert status == 2
    assert lines == (
        f"the last lines of {run.path}/launcher.log (deeplearning-worker1):",
        "    horovodrun: not a host: x",
    )


@pytest.mark.parametrize("launcher", [each.name for each in LAUNCHERS.values() if not each.starter])
def test_the_last_lines_of_a_failed_worker_that_the_plan_started_are_shown(run, launcher):
    process = Process("deeplearning-worker2", "worker-3", (), {"DEEPLEARNING_RANK": "3"}, is_essential=True)
    run.log("worker-3").write_text("Connection to deeplearning-worker2 closed.\n")
    (run.path / "rank-3.log").write_text(f"{TORCHRUN}out of memory\n")
    status, lines = explain_failure(run, make_plan(launcher, process), RunOutcome("failed", 7, "", process))
    assert status == 7
    assert lines[0] == f"the last lines of {run.path}/rank-3.log (deeplearning-worker2):"
    assert lines[-1] == "    out of memory"


CONTIGUOUS = "ValueError: Tensor is required to be contiguous."
REFUSALS = [
    (CONTIGUOUS, "keep the parameters contiguous and convert only the input"),
    ("ValueError: Tensor type torch.cuda.BFloat16Tensor is not supported.", "keep the parameters in float32"),
    ("ValueError: Tensor type torch.BFloat16Tensor is not supported.", "keep the parameters in float32"),
    ("ValueError: Tensor type torch.cuda.ComplexFloatTensor is not supported.", "Horovod reduces float16, float32"),
]


@pytest.mark.parametrize(("refusal", "remedy"), REFUSALS)
@pytest.mark.parametrize("launcher", ["horovod", "mpi"])
def test_a_remedy_follows_a_refusal_of_horovod(run, launcher, refusal, remedy):
    """The words are those of `_check_function` in horovod/torch/mpi_ops.py of 0.28.1, seen on an H100 and on CPUs."""
    process = Process("deeplearning-worker1", "launcher", (), {}, is_essential=True)
    run.log("launcher").write_text(SAID[launcher])
    (run.path / "rank-3.log").write_text(f"{refusal}\n" + "worker process ended\n" * 50)
    _, lines = explain_failure(run, make_plan(launcher, process), RunOutcome("failed", 1, "", process))
    assert lines[-2] == "    worker process ended"
    assert lines[-1].startswith("remedy: Horovod ")
    assert remedy in lines[-1]
    assert "--launcher torchrun" in lines[-1]
    assert len([line for line in lines if line.startswith("remedy: ")]) == 1


def test_the_remedy_follows_a_refusal_in_the_launchers_own_output_too(run):
    process = Process("deeplearning-worker1", "launcher", (), {}, is_essential=True)
    run.log("launcher").write_text(f"[1]<stderr>:{CONTIGUOUS}\n{HOROVOD}")
    _, lines = explain_failure(run, make_plan("horovod", process), RunOutcome("failed", 1, "", process))
    assert lines[-1].startswith("remedy: ")


@pytest.mark.parametrize("said", ["out of memory", "Tensor type is not supported", "tensors must be contiguous"])
def test_no_other_failure_has_a_remedy(run, said):
    process = Process("deeplearning-worker1", "launcher", (), {}, is_essential=True)
    run.log("launcher").write_text(HOROVOD)
    (run.path / "rank-3.log").write_text(f"{said}\n")
    _, lines = explain_failure(run, make_plan("horovod", process), RunOutcome("failed", 1, "", process))
    assert lines[-1] == f"    {said}"


def test_a_progress_bar_is_one_of_the_last_lines(run):
    process = Process("deeplearning-worker1", "node-0", (), {}, is_essential=True)
    run.log("node-0").write_bytes(b"ValueError: no data\r\n" + b"".join(b"\r%d/99" % step for step in range(99)))
    _, lines = explain_failure(run, make_plan("torchrun", process), RunOutcome("failed", 2, "", process))
    assert lines[1:] == ("    ValueError: no data", "    98/99")
