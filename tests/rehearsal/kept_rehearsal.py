"""A kept rehearsal of each platform, to which jobs are submitted by the command line alone."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.run.lab_record import LabRecord
from deeplearning_cli.ssh import enter_node
from tests.real_time import GENEROUS_SECONDS

ROOT = Path(__file__).parents[2]
COMMAND = str(Path(sys.executable).with_name("deeplearning-cdk"))
JOB = """
name = "count"
program = ["python3", "count.py", "{epochs}"]
launcher = "{launcher}"
source = "code"
gpus_per_member = 2
max_seconds = 7200
"""
PROGRAM = """
import json, os, sys, time
from pathlib import Path

config = json.loads(os.environ.get("TF_CONFIG", "{}"))
if config:
    ranks, is_first = len(config["cluster"]["worker"]), config["task"]["type"] == "chief"
else:
    ranks, is_first = int(os.environ["OMPI_COMM_WORLD_SIZE"]), os.environ["OMPI_COMM_WORLD_RANK"] == "0"
folder, done = Path(os.environ["DEEPLEARNING_CHECKPOINT_PATH"]), os.environ.get("DEEPLEARNING_RESUME_FROM", "")
for epoch in range(int(done.rpartition("-")[2] or 0) + 1, int(sys.argv[1]) + 1):
    time.sleep(0.2)
    if is_first:
        (folder / f"epochs-{epoch}").touch()
        print("epoch", epoch, flush=True)
if is_first:
    print(json.dumps({"ranks": ranks, "epochs": int(sys.argv[1])}))
"""
"""A job that needs neither PyTorch nor Horovod, which a machine without caches would compile for minutes."""
REQUIREMENTS = Path(__file__).with_name("small_requirements.txt")
ADMINISTRATOR = "arn:aws:iam::123456789012:role/Admin"
CONTEXTS = {
    "ec2": (
        "software.environment=none",
        "software.image=deep-learning-amazon-linux",
        "workers.instance_type=g5.12xlarge",
        "workers.desired_capacity=1",
    ),
    "emr": ("software.environment=none", "platform=emr", "members=3"),
    "sagemaker": ("platform=sagemaker", f"software.environment={REQUIREMENTS}"),
    "eks": ("platform=eks", f"software.environment={REQUIREMENTS}", f"administrators={ADMINISTRATOR}"),
}
"""Context keys of the rehearsed stack of each platform."""
ENDLESS_EPOCHS = 30_000
"""Epochs of a job that somebody stops: the slowest machine does so before it ends."""
APPS = {"eks": ("-m", "tests.submitting_app")}
"""App of a platform whose stack has a role that may submit. Default: `app.py`."""
NODES = {"ec2": 2, "emr": 3, "sagemaker": 2, "eks": 2}
LAUNCHERS = {"ec2": "mpi", "emr": "tf-ps", "sagemaker": "tf-ps", "eks": "tf-ps"}
"""EMR's own image has no Open MPI, and neither has a container."""


@dataclass
class Kept:
    """A kept rehearsal, and the folder in which commands are given."""

    platform: str
    out: Path
    folder: Path

    def write_job(self, epochs):
        """Write the job file, and the source folder beside it."""
        (self.folder / "code").mkdir(exist_ok=True)
        (self.folder / "code/count.py").write_text(PROGRAM)
        (self.folder / "job.toml").write_text(JOB.format(epochs=epochs, launcher=LAUNCHERS[self.platform]))

    def call(self, *words):
        """Run a command of `deeplearning-cdk`."""
        command = [COMMAND, words[0], "--rehearsal", str(self.out), *words[1:]]
        return subprocess.run(
            command, cwd=self.folder, check=False, capture_output=True, text=True, timeout=GENEROUS_SECONDS
        )

    def run(self, *words, statuses=(0,)):
        """Run a command of `deeplearning-cdk` and return its output."""
        answer = self.call(*words)
        assert answer.returncode in statuses, answer.stdout + answer.stderr
        return answer.stdout

    def run_on(self, node, line):
        """Run a shell line as the login user of one of the nodes that formed, the master first."""
        nodes = json.loads((self.out / "report.json").read_text())["nodes"]
        command = enter_node(LabRecord.read(self.out), nodes[node]["instance_id"], ["sh", "-c", line])
        return subprocess.run(command, check=False, capture_output=True, text=True).stdout

    def find_job(self, name):
        """Return a job of the cluster."""
        jobs = {job["name"]: job for job in json.loads(self.run("jobs", "--json"))["jobs"]}
        found = jobs[name]
        assert isinstance(found, dict)
        return found

    def await_checkpoint(self, name, beyond=0):
        """Wait until a running job has a checkpoint beyond a number of epochs, and return that of its newest."""
        give_up = time.monotonic() + GENEROUS_SECONDS
        while True:
            found = re.findall(r"epochs-(\d+)", self.run_on(0, f"ls /efs/jobs/{name}/checkpoints"))
            if (newest := max(map(int, found), default=0)) > beyond:
                return newest
            job = self.find_job(name)
            assert job["state"] == "running", job
            assert time.monotonic() < give_up
            time.sleep(2)

    def await_epoch(self, name):
        """Wait until the log of a job shows an epoch, and return the newest."""
        give_up = time.monotonic() + GENEROUS_SECONDS
        while True:
            answer = self.call("logs", "--job", name)  # On EKS, refused until the first pod has started.
            if found := re.findall(r"^epoch ([0-9]+)$", answer.stdout, re.MULTILINE):
                return int(found[-1])
            job = self.find_job(name)
            assert job["state"] in ("queued", "running"), job
            assert time.monotonic() < give_up
            time.sleep(1)


@contextmanager
def keep_rehearsal(platform, tmp_path, context=()):
    """Rehearse a cluster whose nodes have two GPUs each, by default a small one, and keep it while it is needed."""
    words = [word for key in context or CONTEXTS[platform] for word in ("-c", key)]
    environment = os.environ | {"CDK_OUTDIR": str(tmp_path / "cdk.out")}
    app = [sys.executable, *APPS.get(platform, ("app.py",)), *words]
    subprocess.run(app, cwd=ROOT, check=True, capture_output=True, env=environment)
    out, log = tmp_path / "out", tmp_path / "log"
    words = ["--out", str(out), "--keep", "--gpus-per-node", "2", "--expect", "formed"]
    with log.open("w") as file:
        rehearsal = subprocess.Popen([COMMAND, "rehearse", str(tmp_path / "cdk.out"), *words], stdout=file, stderr=file)
        give_up = time.monotonic() + GENEROUS_SECONDS
        try:
            while "the cluster keeps running" not in log.read_text():
                assert rehearsal.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < give_up, log.read_text()[-2000:]
                time.sleep(0.5)
            reasons = json.loads((out / "report.json").read_text())["reasons"]
            assert reasons == [], reasons  # pytest explains the asserts of test modules alone.
            yield Kept(platform, out, tmp_path)
        finally:
            rehearsal.send_signal(signal.SIGINT)
            rehearsal.wait(GENEROUS_SECONDS)


def check_submission(kept):
    """Submit a job, list it, stop it, resume it by another submission, and show its output."""
    ranks = 2 * NODES[kept.platform]
    kept.write_job(ENDLESS_EPOCHS)
    launcher = LAUNCHERS[kept.platform]
    assert f"{launcher}: {ranks} ranks = {ranks // 2} hosts x 2 slots" in kept.run("plan", "job.toml")
    assert f"plan: {launcher}, {ranks} ranks = {ranks // 2} hosts x 2" in kept.run("submit", "job.toml", "--detach")
    kept.await_checkpoint("count")
    assert "count/1 is stopped" in kept.run("stop", "count")
    assert (kept.find_job("count")["run"], kept.find_job("count")["state"]) == ("count/1", "stopped")
    kept.write_job(kept.await_checkpoint("count") + 20)
    check_end(kept, "count/2")


def check_end(kept, run):
    """Submit the job again, and follow its run to the end, which uses every rank."""
    ranks = 2 * NODES[kept.platform]
    output = kept.run("submit", "job.toml")
    assert "resumes from /efs/jobs/count/checkpoints/epochs-" in output
    result = json.loads(output.splitlines()[-1])
    assert result["ranks"] == ranks
    assert (kept.find_job("count")["run"], kept.find_job("count")["state"]) == (run, "succeeded")
    assert json.loads(kept.run("logs", "--job", "count").splitlines()[-1]) == result


def read_result(output):
    """Return what the first rank printed last."""
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(line)


def check_failing_job(kept):
    """Submit a job that ends with a status of its own, and return it."""
    (kept.folder / "job.toml").write_text(
        'name = "broken"\nlauncher = "tf-ps"\nprogram = ["sh", "-c", "echo no such data >&2; exit 7"]\n'
    )
    kept.run("submit", "job.toml", statuses=(7,))
    job = kept.find_job("broken")
    assert (job["state"], job["status"]) == ("failed", 7)
    return job


def check_greedy_job(kept):
    """Submit a job that asks for more GPUs than the type has, in vain."""
    kept.write_job(5)
    text = (kept.folder / "job.toml").read_text().replace("gpus_per_member = 2", "gpus_per_member = 3")
    (kept.folder / "job.toml").write_text(text)
    kept.run("submit", "job.toml", "--name", "greedy", statuses=(2,))
    assert all(job["name"] != "greedy" for job in json.loads(kept.run("jobs", "--json"))["jobs"])
