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


@pytest.fixture
def explain(tmp_path):
    """Return a function that writes the logs of a failed run, and returns the status and the lines of its report."""
    run = JobFolder("train", tmp_path).run(1)
    run.path.mkdir(parents=True)
    hosts = tuple(
        Host(f"deeplearning-worker{index}", f"i-{index}", f"10.0.0.{index}", 2, "", 1, 0, "ens5") for index in (1, 2)
    )

    def explain_run(said, rank_3=None, *, launcher="horovod", name="launcher", status=1, process=None):
        process = process or Process("deeplearning-worker1", name, (), {}, is_essential=True)
        run.log(process.name).write_bytes(said.encode())
        if rank_3 is not None:
            (run.path / "rank-3.log").write_text(rank_3)
        parts = {"drives_whole_host": False, "files": {}, "reasons": (), "rank_zero_log": ""}
        plan = LaunchPlan(launcher=launcher, hosts=hosts, slots=2, ranks=4, processes=(process,), **parts)
        return explain_failure(run, plan, RunOutcome("failed", status, "", process))

    explain_run.path = run.path
    return explain_run


def test_the_output_of_a_failure_is_recorded_here_for_every_starter():
    assert SAID.keys() == {each.name for each in LAUNCHERS.values() if each.starter}


@pytest.mark.parametrize(
    ("launcher", "name", "said", "status"),
    [
        *((name, "launcher" if LAUNCHERS[name].is_central else "node-1", said, 7) for name, said in SAID.items()),
        ("horovod", "launcher", HOROVOD.replace("Exit code: 7", "Exit code: -9"), 137),
    ],
)
def test_the_launcher_names_the_rank_that_failed_first(explain, launcher, name, said, status):
    words = "".join(f"epoch {number}\n" for number in range(50)) + "\x1b[1mout of memory"
    found, lines = explain(said, words, launcher=launcher, name=name)
    assert found == status
    assert lines[0] == f"rank 3 on deeplearning-worker2 failed first, with status {status}"
    assert lines[1] == f"the last lines of {explain.path}/rank-3.log (deeplearning-worker2):"
    assert len(lines) == 22
    assert lines[-1] == "     [1mout of memory"


def test_where_no_rank_is_named_the_launchers_own_last_lines_are_shown(explain):
    assert explain("horovodrun: not a host: x\n", status=2) == (
        2,
        (f"the last lines of {explain.path}/launcher.log (deeplearning-worker1):", "    horovodrun: not a host: x"),
    )


@pytest.mark.parametrize("launcher", [each.name for each in LAUNCHERS.values() if not each.starter])
def test_the_last_lines_of_a_failed_worker_that_the_plan_started_are_shown(explain, launcher):
    process = Process("deeplearning-worker2", "worker-3", (), {"DEEPLEARNING_RANK": "3"}, is_essential=True)
    said = "Connection to deeplearning-worker2 closed.\n"
    status, lines = explain(said, f"{TORCHRUN}out of memory\n", launcher=launcher, status=7, process=process)
    assert status == 7
    assert lines[0] == f"the last lines of {explain.path}/rank-3.log (deeplearning-worker2):"
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
def test_a_remedy_follows_a_refusal_of_horovod(explain, launcher, refusal, remedy):
    """The words are those of `_check_function` in horovod/torch/mpi_ops.py of 0.28.1, seen on an H100 and on CPUs."""
    _, lines = explain(SAID[launcher], f"{refusal}\n" + "worker process ended\n" * 50, launcher=launcher)
    assert lines[-2] == "    worker process ended"
    assert lines[-1].startswith("remedy: Horovod ")
    assert remedy in lines[-1]
    assert "--launcher torchrun" in lines[-1]
    assert len([line for line in lines if line.startswith("remedy: ")]) == 1


def test_the_remedy_follows_a_refusal_in_the_launchers_own_output_too(explain):
    assert explain(f"[1]<stderr>:{CONTIGUOUS}\n{HOROVOD}")[1][-1].startswith("remedy: ")


@pytest.mark.parametrize("said", ["out of memory", "Tensor type is not supported", "tensors must be contiguous"])
def test_no_other_failure_has_a_remedy(explain, said):
    assert explain(HOROVOD, f"{said}\n")[1][-1] == f"    {said}"


def test_a_progress_bar_is_one_of_the_last_lines(explain):
    said = "ValueError: no data\r\n" + "".join(f"\r{step}/99" for step in range(99))
    _, lines = explain(said, launcher="torchrun", name="node-0", status=2)
    assert lines[1:] == ("    ValueError: no data", "    98/99")
