"""Job that `deeplearning-cdk submit` starts: source, limits, retries, and its row in `deeplearning jobs`."""

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
from dataclasses import replace

import pytest

from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.setting_parts import DataSettings, JobNeeds, ScriptSettings
from tests.real_time import GENEROUS_SECONDS, wait_until
from tests.unit.deeplearning_provision.data_lab import BUCKET, DataLab, serve_s3
from tests.unit.job_lab import CPU
from tests.unit.moments import given_up, wait_for_end

PRINTS = {"train.sh": 'echo "colour=$COLOUR in ${PWD##*/} got $*"'}
JOB = JobDefinition(name="digits", program=("sh", "train.sh", "two words"), env={"COLOUR": "dark red"})


@pytest.fixture
def data_lab(monkeypatch, tmp_path_factory):
    with serve_s3(monkeypatch) as proxy:
        yield DataLab(tmp_path_factory.mktemp("data"), proxy)


def pack(data_lab, files):
    """Upload a packed source folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    data_lab.put(f"deeplearning-jobs/c/{digest}.tar.gz", buffer.getvalue())
    return ScriptSettings(BUCKET, f"deeplearning-jobs/c/{digest}.tar.gz", digest)


def test_the_job_runs_in_its_source_folder_with_its_variables_and_a_plan_leaves_the_folder_alone(job_lab, data_lab):
    source = pack(data_lab, PRINTS)
    folder = job_lab.folder / "efs/jobs/digits/source"
    for _ in range(2):
        done = job_lab.run("start-job", replace(JOB, source=source).encode())
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"colour=dark red in {source.sha256[:16]} got two words\n"
        assert [path.name for path in folder.iterdir()] == [source.sha256[:16]]
    (folder / source.sha256[:16] / "output.txt").touch()
    data_lab.proxy.decide = lambda *_: pytest.fail("S3 was asked for a source that is there")
    assert job_lab.run("start-job", "--plan", replace(JOB, source=source).encode()).returncode == 0
    assert [path.name for path in folder.iterdir()] == [source.sha256[:16]]


ATTACKS = {
    "other bytes": ("echo 'echo hostile' >train.sh", True),
    "another module": ("echo \"print('hostile')\" >json.py", True),
    "a compiled module": ("mkdir __pycache__; echo hostile >__pycache__/json.cpython-311.pyc", False),
    "compiled modules elsewhere": ('ln -s "$OUTSIDE" __pycache__', True),
    "a link": ('mv train.sh "$OUTSIDE"; ln -s "$OUTSIDE/train.sh" .', True),
    "a hard link": ('ln train.sh "$OUTSIDE"', True),
    "mode of a file": ("chmod 666 train.sh", True),
    "mode of the folder": ("chmod 777 .", True),
    "a missing file": ("rm train.sh", True),
    "a link to a folder": ('mv "$PWD" "$OUTSIDE/tree"; ln -s "$OUTSIDE/tree" "$PWD"', True),
    "a file for the folder": ('rm -r "$PWD"; touch "$PWD"', True),
}
"""Name -> how a source's folder is changed, whether what was there is kept."""


def test_a_source_that_another_job_changed_is_put_right_before_it_runs(job_lab, data_lab, tmp_path, subtests):
    source = pack(data_lab, PRINTS)
    job = replace(JOB, source=source).encode()
    first = job_lab.run("start-job", job)
    assert first.returncode == 0, first.stderr
    folder = job_lab.folder / "efs/jobs/digits/source" / source.sha256[:16]
    for name, (attack, is_kept) in ATTACKS.items():
        outside = tmp_path / name
        outside.mkdir()
        with subtests.test(name):
            subprocess.run(["sh", "-ec", attack], cwd=folder, env={**os.environ, "OUTSIDE": str(outside)}, check=True)
            done = job_lab.run("start-job", job)
            assert (done.returncode, done.stdout) == (0, first.stdout), done.stderr
            assert ("the source was changed on the shared file system" in done.stderr) == is_kept
            assert [path.name for path in folder.iterdir()] == ["train.sh"]
            assert not folder.is_symlink()
            assert (folder.stat().st_mode & 0o777, (folder / "train.sh").stat().st_mode & 0o777) == (0o755, 0o644)
            kept = [path for path in folder.parent.iterdir() if path != folder]
            assert [path.name.startswith(f"{folder.name}-changed-") for path in kept] == [True] * is_kept
            for path in kept:
                path.rename(outside / path.name)


def test_a_source_with_another_digest_starts_nothing(job_lab, data_lab):
    source = pack(data_lab, PRINTS)
    done = job_lab.run("start-job", replace(JOB, source=replace(source, sha256="0" * 64)).encode())
    assert done.returncode == 2
    assert f"could not fetch s3://{BUCKET}/{source.key}: " in done.stderr
    assert "sha256" in done.stderr
    # The packer refuses this one too; it is of another program.
    done = job_lab.run("start-job", replace(JOB, source=pack(data_lab, {"../train.sh": "echo"})).encode())
    assert done.returncode == 2
    assert "could not unpack the job's source: a name must not contain '..', got '../train.sh'; make the" in done.stderr
    assert list((job_lab.folder / "efs/jobs/digits/source").iterdir()) == []


def test_data_that_the_cluster_does_not_declare_is_refused(job_lab):
    declared = (DataSettings("imagenet", "bucket", "imagenet.tar", "efs"),)
    job_lab.set_facts(0, needs=JobNeeds({"master": CPU, "worker": CPU}, declared))
    done = job_lab.run("start-job", replace(JOB, data=("coco",)).encode())
    assert done.returncode == 2
    assert "data must be declared by the cluster, got 'coco'; it declares imagenet\n" in done.stderr


def test_a_job_waits_for_the_data_that_it_names_and_for_no_other(job_lab):
    sources = tuple(DataSettings(name, "bucket", f"{name}.tar", "efs") for name in ("imagenet", "coco"))
    steps = {"data:imagenet": {"state": "done"}, "data:coco": {"state": "running", "detail": "fetching coco.tar"}}
    for index, address in enumerate(job_lab.addresses):
        job_lab.set_facts(index, needs=JobNeeds({"master": CPU, "worker": CPU}, sources))
        path = job_lab.folder / address / "opt/deeplearning/provision/status.json"
        path.write_text(json.dumps({"boot": "boot", "steps": steps}))
    job = replace(JOB, program=("sh", job_lab.write_job("exit 0")), waits=False)
    assert job_lab.run("start-job", replace(job, data=("imagenet",)).encode()).returncode == 0
    for data in ((), ("imagenet", "coco")):
        done = job_lab.run("start-job", replace(job, data=data).encode())
        assert done.returncode == 2
        assert "data:coco is running on deeplearning-worker1 and 1 more: fetching coco.tar; omit --no" in done.stderr


def start_step(job_lab, job):
    """Start a job as a step does: EMR's command-runner.jar has the command as a child, and passes no signal on."""
    command = job_lab.folder / job_lab.addresses[0] / "deeplearning"
    words = [str(command), "start-job", "--end-with-parent", job.encode()]
    return subprocess.Popen(["sh", "-c", '"$@"; exit $?', "step", *words], env=job_lab._environment({}))


def test_the_job_of_a_step_ends_when_the_process_of_the_step_does(job_lab):
    step = start_step(job_lab, JobDefinition(name="long", program=("sh", job_lab.write_job("sleep 1000"))))
    wait_until(lambda: (job_lab.status("long/1") or {}).get("state") == "running" and job_lab.processes())
    step.terminate()
    assert step.wait(GENEROUS_SECONDS) != 0
    wait_until(lambda: job_lab.status("long/1")["state"] == "stopped")
    assert job_lab.processes() == {}


def test_a_step_that_ends_while_its_source_is_fetched_leaves_no_job(job_lab, data_lab):
    over = job_lab.folder / "over"
    endless = {"train.sh": f"while ! [ -e {over} ]; do sleep 0.05; done"}
    job = JobDefinition(name="long", program=("sh", "train.sh"), source=pack(data_lab, endless))
    step = start_step(job_lab, job)

    def end_step(*_):
        if step.poll() is None:
            step.kill()
            step.wait()

    data_lab.proxy.decide = end_step
    with given_up(over):
        step.wait()
        wait_for_end(job.encode())
    assert job_lab.processes() == {}


def test_the_members_of_a_job_are_the_first_hosts(job_lab):
    job = job_lab.write_job("exit 0")
    done = job_lab.run("start-job", JobDefinition(name="one", program=("sh", job), members=1).encode())
    assert done.returncode == 0, done.stderr
    assert job_lab.status("one/1")["hosts"] == ["deeplearning-worker1"]
    done = job_lab.run("run", "--members", "3", "--", job)
    assert "--members must be from 1 to 2, the hosts that train, got 3; leave it out for all" in done.stderr


FAILS_TWICE = """
[ "$HOROVOD_RANK" = 0 ] || exit 0
count=$(ls "$DEEPLEARNING_CHECKPOINT_PATH" | wc -l)
echo "run with $count checkpoints, resume=${DEEPLEARNING_RESUME_FROM##*/}"
touch "$DEEPLEARNING_CHECKPOINT_PATH/epoch-$count"
[ "$count" = 2 ] || exit 3
"""


@pytest.mark.parametrize(("retries", "status"), [(2, 0), (1, 3)])
def test_a_failed_job_runs_again_from_its_newest_checkpoint_as_often_as_it_may(job_lab, retries, status):
    done = job_lab.run("run", "--retries", str(retries), "--", job_lab.write_job(FAILS_TWICE))
    assert done.returncode == status, done.stderr
    assert (
        done.stdout.splitlines()
        == [
            "run with 0 checkpoints, resume=",
            "run with 1 checkpoints, resume=epoch-0",
            "run with 2 checkpoints, resume=epoch-1",
        ][: retries + 1]
    )
    states = [(job_lab.status(f"train/{run}") or {}).get("state") for run in (1, 2, 3)]
    assert states == ["failed", "failed", "succeeded" if status == 0 else None]


def test_a_job_that_waits_to_run_again_is_retrying_and_can_be_stopped(job_lab):
    job = job_lab.write_job(f'touch "{job_lab.folder}/10.0.0.10/silent"; exit 3')
    job_lab.run("run", "--detach", "--retries", "1", "--", job)
    wait_until(lambda: (job_lab.status("train/1") or {}).get("state") == "retrying")
    listed = json.loads(job_lab.run("jobs", "--json").stdout)["jobs"]
    assert [(job["run"], job["state"]) for job in listed] == [("train/1", "retrying")]
    wait_until(lambda: "waiting to run again: " in job_lab.read("train/runs/1/launch.log"))
    (job_lab.folder / "10.0.0.10/silent").unlink()
    job_lab.run("stop", "train/1")
    assert job_lab.status("train/1")["state"] in ("stopped", "failed")


ENDS_SLOWLY = """
[ "$HOROVOD_RANK" = 0 ] && { while ! [ -e "$1/up" ]; do sleep 0.05; done; exit 3; }
trap ': > "$1/ending"; while ! [ -e "$1/signalled" ]; do sleep 0.05; done; exit' TERM
: > "$1/up"
while :; do sleep 0.05; done
"""
SILENCES_A_HOST = ': > "$1/10.0.0.10/silent"; exit 3'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize(
    ("text", "has_come"),
    [
        (ENDS_SLOWLY, lambda lab: (lab.folder / "ending").exists()),
        (SILENCES_A_HOST, lambda lab: "waiting to run again: " in lab.read("train/runs/1/launch.log")),
    ],
    ids=["while a failed run ends", "while it waits for the hosts"],
)
def test_a_stop_between_two_runs_of_a_job_is_not_lost(job_lab, text, has_come, number):
    command = job_lab.start("run", "--retries", "1", "--", job_lab.write_job(text), str(job_lab.folder))
    wait_until(lambda: job_lab.status("train/1") and has_come(job_lab))
    os.kill(command.pid, number)
    (job_lab.folder / "signalled").touch()
    (job_lab.folder / "10.0.0.10/silent").unlink(missing_ok=True)
    assert job_lab.finish(command).returncode == 128 + number
    found = job_lab.status("train/1")
    assert (found["state"], found["status"]) == ("stopped", 128 + number)
    assert job_lab.status("train/2") is None
    assert job_lab.processes() == {}


def test_a_job_is_stopped_at_its_time_limit(job_lab):
    done = job_lab.run("run", "--max-seconds", "1", "--retries", "3", "--", job_lab.write_job("exec sleep 1000"))
    assert done.returncode == 124
    status = job_lab.status("train/1")
    assert (status["state"], status["cause"]) == ("stopped", "stopped: the time limit of the job is over")
    assert job_lab.status("train/2") is None
    assert job_lab.processes() == {}


def test_jobs_are_listed_with_the_last_line_of_rank_zero_that_says_something(job_lab):
    assert job_lab.run("jobs").stdout == "no job has been run\n"
    job_lab.run("run", "--", job_lab.write_job('echo "epoch 3"; echo "-------"; echo'))
    listed = job_lab.run("jobs").stdout.splitlines()
    assert listed[0].split() == ["JOB", "STATE", "MEMBERS", "STARTED", "LAST", "LINE", "OF", "RANK", "0"]
    assert listed[1].split()[:3] == ["train/1", "succeeded", "2"]
    assert listed[1].endswith("  epoch 3")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "../x"}, "name must be at most 64 letters, digits, '.', '_' and '-', got '../x'; choose another"),
        ({"program": ()}, "program must have a word, got none; write e.g. program"),
        ({"members": 0}, "members must be from 1 to 1000, got 0; leave it out for the default"),
        ({"gpus_per_member": -1}, "gpus_per_member must be from 1 to 1000, got -1; leave it out for the default"),
        ({"ranks": 0}, "ranks must be from 1 to 1000000, got 0; leave it out for the default"),
        ({"retries": 101}, "retries must be from 0 to 100, got 101; leave it out for the default"),
        *(
            ({"env": {name: "1"}}, f"env must be NAME=VALUE, got {name!r}; ")
            for name in ("A-B", "1A", "", "A B", "A;B")
        ),
        ({"env": {"A": "\0"}}, "env must be NAME=VALUE, got 'A'; names are letters, digits and _, values without NUL"),
    ],
)
def test_a_definition_that_cannot_work_is_refused(change, text):
    with pytest.raises(ContractError) as refusal:
        replace(JOB, **change)
    assert text in str(refusal.value)
