"""A job is submitted to kept rehearsals on EC2 and EMR, followed, stopped and resumed by the command line alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cdk_rehearsal.run.lab_record import LabRecord
from deeplearning_cli.ssh import enter_node

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("deeplearning-cdk"))
GIVE_UP_SECONDS = 600
JOB = """
name = "digits"
program = ["python3", "train_digits.py", "--epochs", "{epochs}"]
source = "code"
gpus_per_member = 2
max_seconds = 600
"""
CONTEXTS = {
    "ec2": ("workers.desired_capacity=1",),
    "emr": ("platform=emr", "members=3"),
}
"""Context keys of the rehearsed stack of each platform."""
NODES = {"ec2": 2, "emr": 3}


@dataclass
class Kept:
    """A kept rehearsal, and the folder in which commands are given."""

    platform: str
    out: Path
    folder: Path

    def write_job(self, epochs: int) -> None:
        """Write the job file, and the source folder beside it."""
        (self.folder / "code").mkdir(exist_ok=True)
        for name in ("train_digits.py", "digits.py"):
            (self.folder / "code" / name).write_bytes((ROOT / "examples" / name).read_bytes())
        (self.folder / "job.toml").write_text(JOB.format(epochs=epochs))

    def run(self, *words: str, statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command of `deeplearning-cdk` and return its output."""
        command = [COMMAND, words[0], "--rehearsal", str(self.out), *words[1:]]
        answer = subprocess.run(
            command, cwd=self.folder, check=False, capture_output=True, text=True, timeout=GIVE_UP_SECONDS
        )
        assert answer.returncode in statuses, answer.stdout + answer.stderr
        return answer.stdout

    def run_on(self, node: int, line: str) -> str:
        """Run a shell line as the login user of one of the nodes that formed, the master first."""
        nodes = json.loads((self.out / "report.json").read_text())["nodes"]
        command = enter_node(LabRecord.read(self.out), nodes[node]["instance_id"], ["sh", "-c", line])
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout

    def find_job(self, name: str) -> dict[str, Any]:
        """Return a job of the cluster."""
        jobs = {job["name"]: job for job in json.loads(self.run("jobs", "--json"))["jobs"]}
        found = jobs[name]
        assert isinstance(found, dict)
        return found

    def await_checkpoint(self, name: str) -> int:
        """Wait until a running job has a checkpoint, and return the number of its epochs."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while True:  # The program prints nothing before its end; its checkpoints show how far it is.
            if epochs := re.findall(r"epochs-(\d+)", self.run_on(0, f"ls /efs/jobs/{name}/checkpoints")):
                return max(map(int, epochs))
            job = self.find_job(name)
            assert job["state"] == "running", job
            assert time.monotonic() < give_up
            time.sleep(2)


@pytest.fixture(scope="module", params=list(CONTEXTS))
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Rehearse a cluster whose nodes have two GPUs each, and keep it."""
    tmp_path = tmp_path_factory.mktemp(request.param)
    context = [word for key in CONTEXTS[request.param] for word in ("-c", key)]
    environment = os.environ | {"CDK_OUTDIR": str(tmp_path / "cdk.out")}
    subprocess.run([sys.executable, str(ROOT / "app.py"), *context], check=True, capture_output=True, env=environment)
    out, log = tmp_path / "out", tmp_path / "log"
    words = ["--out", str(out), "--keep", "--gpus-per-node", "2", "--expect", "formed"]
    with log.open("w") as file:
        rehearsal = subprocess.Popen([COMMAND, "rehearse", str(tmp_path / "cdk.out"), *words], stdout=file, stderr=file)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        try:
            while "the cluster keeps running" not in log.read_text():
                assert rehearsal.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < give_up, log.read_text()[-2000:]
                time.sleep(0.5)
            assert json.loads((out / "report.json").read_text())["reasons"] == []
            yield Kept(request.param, out, tmp_path)
        finally:
            rehearsal.send_signal(signal.SIGINT)
            rehearsal.wait(60)


def test_a_job_is_submitted_listed_shown_stopped_and_resumed(kept: Kept) -> None:
    ranks = 2 * NODES[kept.platform]
    kept.write_job(epochs=400)
    # 1 while the nodes still install the environment, for which `submit` waits.
    assert f"horovod: {ranks} ranks = {ranks // 2} hosts x 2 slots" in kept.run("plan", "job.toml", statuses=(0, 1))
    assert f"plan: horovod, {ranks} ranks = {ranks // 2} hosts x 2" in kept.run("submit", "job.toml", "--detach")
    kept.await_checkpoint("digits")
    assert "digits/1 is stopped" in kept.run("stop", "digits")
    assert (kept.find_job("digits")["run"], kept.find_job("digits")["state"]) == ("digits/1", "stopped")
    kept.write_job(kept.await_checkpoint("digits") + 20)
    output = kept.run("submit", "job.toml")
    assert "resumes from /efs/jobs/digits/checkpoints/epochs-" in output
    result = json.loads(output.splitlines()[-1])
    assert (result["ranks"], len(set(result["hosts"]))) == (ranks, ranks // 2)
    assert result["accuracy"] >= 0.9
    assert (kept.find_job("digits")["run"], kept.find_job("digits")["state"]) == ("digits/2", "succeeded")
    assert json.loads(kept.run("logs", "--job", "digits").splitlines()[-1]) == result


@pytest.mark.parametrize("kept", ["emr"], indirect=True)
def test_a_lost_core_node_fails_the_job_which_its_replacement_lets_resume(kept: Kept) -> None:
    kept.write_job(epochs=400)
    kept.run("submit", "job.toml", "--name", "lost", "--detach")
    kept.await_checkpoint("lost")
    kept.run_on(2, "sudo -n systemctl poweroff")
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while kept.find_job("lost")["state"] == "running":
        assert time.monotonic() < give_up
        time.sleep(2)
    assert kept.find_job("lost")["state"] == "failed"
    assert "deeplearning-worker3" in kept.find_job("lost")["cause"]
    while "6 ranks = 3 hosts x 2 slots" not in kept.run("plan", "job.toml", statuses=(0, 1, 2)):
        assert time.monotonic() < give_up
        time.sleep(5)
    kept.write_job(kept.await_checkpoint("lost") + 20)
    output = kept.run("submit", "job.toml", "--name", "lost")
    assert "resumes from /efs/jobs/lost/checkpoints/epochs-" in output
    assert json.loads(output.splitlines()[-1])["ranks"] == 6


@pytest.mark.parametrize("kept", ["emr"], indirect=True)
def test_a_node_without_its_ssh_key_is_named_before_a_job_starts(kept: Kept) -> None:
    kept.run_on(1, "mv ~/.ssh ~/ssh")
    kept.write_job(epochs=400)
    assert "deeplearning-worker2" in kept.run("submit", "job.toml", "--name", "keyless", statuses=(2,))
    kept.run_on(1, "rm -rf ~/.ssh; mv ~/ssh ~/.ssh")
