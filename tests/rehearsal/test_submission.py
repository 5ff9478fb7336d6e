"""A job is submitted to a kept rehearsal, followed, stopped and resumed by the command line alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("deeplearning-cdk"))
GIVE_UP_SECONDS = 600
JOB = """
name = "digits"
program = ["python3", "train_digits.py", "--epochs", "400"]
source = "code"
members = 2
gpus_per_member = 2
max_seconds = 600
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Rehearse a cluster of two nodes with two GPUs each, keep it, and return the folder of its reports."""
    folder = tmp_path_factory.mktemp("kept")
    synth = [sys.executable, str(ROOT / "app.py"), "-c", "workers.desired_capacity=1"]
    subprocess.run(synth, check=True, capture_output=True, env=os.environ | {"CDK_OUTDIR": str(folder / "cdk.out")})
    out, log = folder / "out", folder / "log"
    words = ["--out", str(out), "--keep", "--gpus-per-node", "2", "--expect", "formed"]
    with log.open("w") as file:
        rehearsal = subprocess.Popen([COMMAND, "rehearse", str(folder / "cdk.out"), *words], stdout=file, stderr=file)
        give_up = time.monotonic() + GIVE_UP_SECONDS
        try:
            while "the cluster keeps running" not in log.read_text():
                assert rehearsal.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < give_up, log.read_text()[-2000:]
                time.sleep(0.5)
            yield out
        finally:
            rehearsal.send_signal(signal.SIGINT)
            rehearsal.wait(60)


def test_a_job_is_submitted_listed_shown_stopped_and_resumed(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name in ("train_digits.py", "digits.py"):
        (tmp_path / "code" / name).write_bytes((ROOT / "examples" / name).read_bytes())
    (tmp_path / "job.toml").write_text(JOB)

    def run(*words: str, statuses: tuple[int, ...] = (0,)) -> str:
        command = [COMMAND, words[0], "--rehearsal", str(kept), *words[1:]]
        answer = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=300)
        assert answer.returncode in statuses, answer.stdout + answer.stderr
        return answer.stdout

    def find_job() -> dict[str, object]:
        (found,) = json.loads(run("jobs", "--json"))["jobs"]
        return found

    # 1 while the nodes still install the environment, for which `submit` waits.
    assert "horovod: 4 ranks = 2 hosts x 2 slots" in run("plan", "job.toml", statuses=(0, 1))
    assert "plan: horovod, 4 ranks = 2 hosts x 2" in run("submit", "job.toml", "--detach")
    give_up = time.monotonic() + GIVE_UP_SECONDS
    newest = ""
    while not newest:  # The program prints nothing before its end; its checkpoints show how far it is.
        assert find_job()["state"] == "running"
        assert time.monotonic() < give_up
        time.sleep(2)
        newest = run("ssh", "--node", "master", "--", "ls", "/efs/jobs/digits/checkpoints").strip()
    assert "digits/1 is stopped" in run("stop", "digits")
    assert (find_job()["run"], find_job()["state"]) == ("digits/1", "stopped")
    epochs = max(int(number) for number in re.findall(r"epochs-(\d+)", newest)) + 20
    (tmp_path / "job.toml").write_text(JOB.replace('"400"', f'"{epochs}"'))
    output = run("submit", "job.toml")
    assert "resumes from /efs/jobs/digits/checkpoints/epochs-" in output
    result = json.loads(output.splitlines()[-1])
    assert (result["ranks"], len(set(result["hosts"]))) == (4, 2)
    assert (find_job()["run"], find_job()["state"]) == ("digits/2", "succeeded")
    assert json.loads(run("logs", "--job", "digits").splitlines()[-1]) == result
