"""The first container runs the job; the others wait for its end. SageMaker shows the reason of a failure."""

import json
import sys
import threading

import pytest

from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_jobs.runs.run_status import RunStatus, Supervisor
from deeplearning_member import job_process
from deeplearning_member.sagemaker import entry
from deeplearning_member.sagemaker.entry import follow, lead
from deeplearning_member.sagemaker.rounds import Round, RoundFile
from deeplearning_member.signed_file import Signer
from deeplearning_node.failure import StageFailure
from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit.deeplearning_member.sagemaker.conftest import DEFINITION, JOB_SECRET

SIGNER = Signer(JOB_SECRET)
CURRENT = Round("0123456789abcdef")


class FirstContainer:
    """The first container with a command in the place of `deeplearning`."""

    def __init__(self, containers, command):
        self.node, self.job, self._command = containers.node(1), containers.describe(1), command
        self.folder = containers.shared / JOBS_FOLDER / DEFINITION.name
        (self.folder / "checkpoints").mkdir(parents=True)
        self.stop = threading.Event()

    def lead(self, body):
        """Run the job, whose command has this body in Python; `folder` is the job's."""
        head = f"#!{sys.executable}\nimport pathlib, signal, sys, time\nfolder = pathlib.Path({str(self.folder)!r})"
        self._command.write_text(f"{head}\n{body}\n")
        self._command.chmod(0o755)
        return lead(self.node, self.job, CURRENT, self.stop)

    @property
    def failure(self):
        path = self.node.path("/opt/ml/output/failure")
        return path.read_text() if path.exists() else ""

    @property
    def model(self):
        return sorted(path.name for path in self.node.path("/opt/ml/model").rglob("*"))

    @property
    def end(self):
        return RoundFile(self.node, SIGNER).read()


@pytest.fixture
def first(containers, tmp_path, monkeypatch):
    """The first container, whose cluster has formed."""
    command = tmp_path / "deeplearning"
    monkeypatch.setattr(job_process, "COMMAND", str(command))
    return FirstContainer(containers, command)


def write_status(cause):
    """Return the lines of a program that writes the status of a run, as `deeplearning run` does."""
    supervisor = Supervisor("algo-1", "boot", 1, 1)
    status = RunStatus("train", 2, "horovod", "failed", 1, "", "", (), cause, "", supervisor).to_text()
    return f"run = folder / 'runs' / '2'\nrun.mkdir(parents=True)\n(run / 'status.json').write_text({status!r})"


REFUSAL = "deeplearning start-job: members must be 2"


@pytest.mark.parametrize(
    ("body", "status", "failure"),
    [
        (f"{write_status('no launcher')}\nsys.exit(127)", 127, "no launcher\n"),
        (f"{write_status('x' * 2000)}\nsys.exit(1)", 1, "x" * 1024 + "\n"),
        (f"sys.exit({REFUSAL!r})", 1, f"{REFUSAL}\n"),
        ("sys.exit(3)", 3, "the job ended with status 3; see the log of algo-1\n"),
    ],
    ids=["a cause", "a cause that SageMaker would cut", "a refusal after an earlier run", "no words"],
)
def test_a_failure_has_the_cause_of_its_run_or_the_last_words_of_its_command(first, body, status, failure):
    (first.folder / "checkpoints/epochs-1.pt").touch()
    earlier = first.folder / "runs/1"
    earlier.mkdir(parents=True)
    (earlier / "status.json").write_text(json.dumps({"cause": "long ago"}))
    assert first.lead(body) == status
    assert (first.failure, first.model) == (failure, [])
    assert (first.end.id, first.end.status) == (CURRENT.id, status)
    assert first.end.cause.startswith("" if status == 3 else failure.strip())


def test_the_newest_checkpoint_becomes_the_model(first):
    (first.folder / "checkpoints/epochs-1.pt").write_text("old")
    assert first.lead("(folder / 'checkpoints/epochs-2.pt').write_text('new')") == 0
    assert (first.model, first.end, first.failure) == (["epochs-2.pt"], Round(CURRENT.id, 0), "")


def test_a_checkpoint_that_is_a_folder_becomes_the_model_and_a_model_of_the_program_is_left_alone(first):
    (first.folder / "checkpoints/step-1").mkdir()
    (first.folder / "checkpoints/step-1/model.bin").touch()
    assert first.lead("") == 0
    assert first.model == ["model.bin", "step-1"]
    (first.folder / "checkpoints/epochs-1.pt").touch()
    assert first.lead("") == 0
    assert first.model == ["model.bin", "step-1"]


def test_a_stop_reaches_the_job_which_leaves_its_model(first):
    (first.folder / "checkpoints/epochs-1.pt").touch()
    body = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n(folder / 'up').touch()\ntime.sleep(10_000)"
    statuses = []
    thread = threading.Thread(target=lambda: statuses.append(first.lead(body)))
    thread.start()
    wait_until((first.folder / "up").exists)
    first.stop.set()
    thread.join(GENEROUS_SECONDS)
    assert (statuses, first.end.status, first.model, first.failure) == ([9], 9, ["epochs-1.pt"], "")


# --- The other containers ---------------------------------------------------------------------------


@pytest.fixture
def responding(monkeypatch):
    """Answers of the first container's port, which a test may change."""
    answers = {"algo-1": True}
    monkeypatch.setattr(entry, "responds", lambda host: answers[host])
    return answers


@pytest.mark.parametrize("status", [0, 1, 143])
def test_the_others_end_well_when_the_job_has_ended(containers, responding, status):
    node = containers.node(2)
    RoundFile(node, SIGNER).write(Round(CURRENT.id, status, "whatever"))
    assert follow(node, containers.describe(2), CURRENT, threading.Event()) == 0


def test_the_end_of_an_earlier_round_does_not_count(containers, responding):
    node = containers.node(2)
    RoundFile(node, SIGNER).write(Round("earlier", 0))
    responding["algo-1"] = False
    with pytest.raises(StageFailure, match="algo-1 has not responded on port 22 for 60 s") as caught:
        follow(node, containers.describe(2), CURRENT, threading.Event())
    assert "security groups of the job admit each other" in caught.value.remedy, "it never responded"


def test_a_first_container_that_responds_no_more_is_lost(containers, monkeypatch):
    answers = iter([True])
    monkeypatch.setattr(entry, "responds", lambda _: next(answers, False))
    with pytest.raises(StageFailure, match="algo-1 has not responded on port 22 for 60 s") as caught:
        follow(containers.node(2), containers.describe(2), CURRENT, threading.Event())
    assert "resumes from its newest checkpoint" in caught.value.remedy


def test_a_first_container_that_responds_again_is_not_lost(containers, responding, monkeypatch):
    node, answers = containers.node(2), iter([False] * 5 + [True] + [False] * 4)

    def respond(_):
        if (answer := next(answers, None)) is None:
            RoundFile(node, SIGNER).write(Round(CURRENT.id, 0))
        return bool(answer)

    monkeypatch.setattr(entry, "responds", respond)
    assert follow(node, containers.describe(2), CURRENT, threading.Event()) == 0


def test_after_a_stop_the_others_stay_for_the_ranks_at_most_until_sagemaker_kills_them(containers, responding):
    node, stop = containers.node(2), threading.Event()
    stop.set()
    began = node.clock.read()
    assert follow(node, containers.describe(2), CURRENT, stop) == 0
    assert 100 <= node.clock.read() - began < 120
