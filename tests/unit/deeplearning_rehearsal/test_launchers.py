"""Trials of launchers, and their verdicts."""

import json
import subprocess
from dataclasses import asdict

import pytest

from deeplearning_rehearsal.checks.results import WayReport
from deeplearning_rehearsal.checks.training import list_examples
from deeplearning_rehearsal.launchers.trial_run import Attempt, TrialRun, judge_attempt
from deeplearning_rehearsal.launchers.trials import EXTRA_TRIALS, TRIALS, Trial, Way, choose_trials
from deeplearning_rehearsal.report.report import describe_way

RESULT = {
    "framework": "PyTorch",
    "ranks": 2,
    "hosts": ["ip-1", "ip-2"],
    "dataset": "digits",
    "accuracy": 0.97,
    "seconds": 10.0,
    "cpu_seconds": 20.0,
    "samples_per_second": 1000.0,
    "trained_on": 1438,
}
WAY = Way("run", "deeplearning run -- python3 train_digits.py")
Answer = tuple[int, str, str]


class Master:
    """A node that answers each command as told."""

    def __init__(self, answer):
        self.commands = []
        self._answer = answer

    def run(self, instance_id, argv, **options):
        assert (instance_id, options["user"], options["login_shell"]) == ("i-0", "ubuntu", True)
        self.commands.append(argv[2])
        return subprocess.CompletedProcess(list(argv), *self._answer(argv[2]))


def _trained(_command):
    return 0, f"[0] {json.dumps(RESULT)}\nrun 1 of horovod: /efs/jobs/horovod/runs/1\n", ""


def _run(master):
    return TrialRun(master, "i-0", "ubuntu", hosts=2, ranks=2, report=lambda _: None)


def _attempt(status=0, **changes):
    return Attempt(WAY, status, RESULT | changes, 12.0, "the last line")


def test_a_job_on_all_hosts_with_all_ranks_that_has_learnt_is_as_promised():
    assert judge_attempt(_attempt(), hosts=2, ranks=2) == ()


@pytest.mark.parametrize(
    ("attempt", "problem"),
    [
        (_attempt(status=3), "it ended with status 3: the last line"),
        (_attempt(status=None), "it was given up: the last line"),
        (_attempt(accuracy=0.5), "held-out accuracy must be at least 0.9, got 0.5"),
        (_attempt(ranks=1), "it must have 2 ranks, got 1"),
        (_attempt(hosts=["ip-1", "ip-1"]), "it must run on 2 hosts, got ['ip-1']"),
        (
            Attempt(WAY, 0, {"accuracy": 0.97}, 1.0, "bye"),
            "its result must have framework, ranks, hosts, dataset, seconds, it wrote: bye",
        ),
    ],
)
def test_a_broken_promise_of_an_attempt_is_reported(attempt, problem):
    assert judge_attempt(attempt, hosts=2, ranks=2) == (problem,)


def test_a_launcher_holds_when_each_of_its_ways_does():
    trial = Trial("mpi", (WAY, Way("seed", "mpirun -np 2 python3 train_digits.py")))
    run = _run(Master(_trained))
    run.carry_out(trial)
    report = run.reports["mpi"]
    assert report.held
    assert [way.result for way in report.ways] == [RESULT, RESULT]
    assert describe_way("mpi", asdict(report.ways[0])).startswith(
        "mpi (run): PyTorch, 2 ranks on 2 hosts, held-out accuracy"
    )

    broken = _run(Master(lambda command: (1, "", "no route\n") if "mpirun" in command else _trained(command)))
    broken.carry_out(trial)
    report = broken.reports["mpi"]
    assert not report.held
    assert report.ways[1].problems == ("it ended with status 1: no route",)
    assert "mpi (seed) FAILED" in describe_way("mpi", asdict(report.ways[1]))


def test_a_job_that_prints_no_result_does_not_pass_for_trained():
    run = _run(Master(lambda _: (0, "all done\n", "")))
    run.carry_out(Trial("horovod", (WAY,)))
    assert run.reports["horovod"].ways[0].problems[0].endswith("it wrote: all done")


def test_every_launcher_is_tried_through_run_and_as_the_predecessors_did_where_they_had_it():
    named = choose_trials((*(trial.launcher for trial in TRIALS), "tf-ps", "tf-multiworker", "mxnet"))
    kinds = {trial.launcher: [way.kind for way in trial.ways] for trial in named}
    assert set(kinds) == {"horovod", "mpi", "torchrun", "tf-ps", "tf-multiworker", "mxnet"}
    for launcher, found in kinds.items():
        jobs = [kind for kind in found if kind != "look"]
        assert jobs == (["run"] if launcher in {"torchrun", "tf-multiworker"} else ["run", "seed"])


@pytest.mark.parametrize(("status", "count"), [(0, 0), (1, 1), (None, 1)])
def test_a_look_at_what_a_job_left_must_end_well_and_needs_no_result(status, count):
    attempt = Attempt(Way("look", "curl"), status, {}, 1.0, "refused")
    problems = judge_attempt(attempt, hosts=2, ranks=2)
    assert len(problems) == count
    line = describe_way("tf-ps", asdict(WayReport("look", "curl", status, 1.0, {"accuracy": 0.97}, problems)))
    assert line.startswith("tf-ps (look) FAILED" if count else "tf-ps (look): as promised, 1.0 s: curl")


def test_trials_are_chosen_by_name_and_else_are_all_that_need_no_environment_of_their_own():
    assert choose_trials(()) == TRIALS
    assert [trial.launcher for trial in choose_trials(("keras", "mpi"))] == ["keras", "mpi"]


def test_each_program_that_a_trial_starts_is_among_the_examples():
    words = {word for trial in (*TRIALS, *EXTRA_TRIALS) for way in trial.ways for word in way.command.split()}
    programs = {word for word in words if word.endswith((".py", ".sh"))}
    assert "train_digits.py" in programs
    assert {word.removeprefix("$EFS_MOUNT/rehearsal/") for word in programs} <= set(list_examples())
