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
program = ["python3", "train_digits.py", "--epochs", "400"]
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

    def run(self, *words: str, statuses: tuple[int, ...] = (0,)) -> str:
        """Run a command of `deeplearning-cdk` and return its output."""
        command = [COMMAND, words[0], "--rehearsal", str(self.out), *words[1:]]
        answer = subprocess.run(
            command, cwd=self.folder, check=False, capture_output=True, text=True, timeout=GIVE_UP_SECONDS
        )
        assert answer.returncode in statuses, answer.stdout + answer.stderr
        return answer.stdout

    def list_checkpoints(self) -> str:
        """Return the names of the job's checkpoints, as the master's login user sees them."""
        master = json.loads((self.out / "report.json").read_text())["nodes"][0]
        listing = ["sh", "-c", "ls /efs/jobs/digits/checkpoints || true"]
        command = enter_node(LabRecord.read(self.out), master["instance_id"], listing)
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def find_job(self) -> dict[str, Any]:
        """Return the only job of the cluster."""
        (found,) = json.loads(self.run("jobs", "--json"))["jobs"]
        assert isinstance(found, dict)
        return found


@pytest.fixture(params=list(CONTEXTS))
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Rehearse a cluster whose nodes have two GPUs each, and keep it."""
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
    (kept.folder / "code").mkdir()
    for name in ("train_digits.py", "digits.py"):
        (kept.folder / "code" / name).write_bytes((ROOT / "examples" / name).read_bytes())
    (kept.folder / "job.toml").write_text(JOB)

    # 1 while the nodes still install the environment, for which `submit` waits.
    assert f"horovod: {ranks} ranks = {ranks // 2} hosts x 2 slots" in kept.run("plan", "job.toml", statuses=(0, 1))
    assert f"plan: horovod, {ranks} ranks = {ranks // 2} hosts x 2" in kept.run("submit", "job.toml", "--detach")
    give_up = time.monotonic() + GIVE_UP_SECONDS
    newest = ""
    while not newest:  # The program prints nothing before its end; its checkpoints show how far it is.
        assert kept.find_job()["state"] == "running"
        assert time.monotonic() < give_up
        time.sleep(2)
        newest = kept.list_checkpoints()
    assert "digits/1 is stopped" in kept.run("stop", "digits")
    assert (kept.find_job()["run"], kept.find_job()["state"]) == ("digits/1", "stopped")
    epochs = max(int(number) for number in re.findall(r"epochs-(\d+)", newest)) + 20
    (kept.folder / "job.toml").write_text(JOB.replace('"400"', f'"{epochs}"'))
    output = kept.run("submit", "job.toml")
    assert "resumes from /efs/jobs/digits/checkpoints/epochs-" in output
    result = json.loads(output.splitlines()[-1])
    assert (result["ranks"], len(set(result["hosts"]))) == (ranks, ranks // 2)
    assert result["accuracy"] >= 0.9
    assert (kept.find_job()["run"], kept.find_job()["state"]) == ("digits/2", "succeeded")
    assert json.loads(kept.run("logs", "--job", "digits").splitlines()[-1]) == result
