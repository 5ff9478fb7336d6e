"""Jobs on SageMaker are training jobs: the commands for jobs against a kept rehearsal."""

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.real_time import GENEROUS_SECONDS
from tests.rehearsal.kept_rehearsal import ENDLESS_EPOCHS, Kept, keep_rehearsal


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Keep a rehearsal of training jobs with two containers."""
    with keep_rehearsal("sagemaker", tmp_path_factory.mktemp("sagemaker")) as rehearsal:
        yield rehearsal


def await_epoch(kept: Kept) -> int:
    """Wait until the log of the job shows an epoch, and return the newest."""
    give_up = time.monotonic() + GENEROUS_SECONDS
    while True:
        if found := re.findall(r"^epoch ([0-9]+)$", kept.run("logs", "--job", "count"), re.MULTILINE):
            return int(found[-1])
        assert kept.find_job("count")["state"] in ("queued", "running"), kept.find_job("count")
        assert time.monotonic() < give_up
        time.sleep(1)


def read_result(output: str) -> object:
    """Return what the first rank printed last."""
    (line,) = [line for line in output.splitlines() if line.startswith("{")]
    return json.loads(line)


def test_a_job_is_planned_submitted_listed_stopped_and_resumed(kept: Kept) -> None:
    kept.write_job(ENDLESS_EPOCHS)
    planned = kept.run("plan", "job.toml")
    assert "4 ranks = 2 hosts x 2" in planned
    assert '"ContainerEntrypoint"' in planned
    assert all(job["name"] != "count" for job in json.loads(kept.run("jobs", "--json"))["jobs"])
    kept.run("submit", "job.toml", "--detach")
    reached = await_epoch(kept)
    assert (kept.find_job("count")["state"], kept.find_job("count")["members"]) == ("running", 2)
    assert "which is running" in kept.run("submit", "job.toml", statuses=(2,))
    assert kept.run("stop", "count").splitlines()[-1].endswith("stopped")
    assert kept.find_job("count")["state"] == "stopped"
    kept.write_job(reached + 30)
    output = kept.run("submit", "job.toml")
    assert "resumes from /efs/jobs/count/checkpoints/epochs-" in output
    result = {"ranks": 4, "epochs": reached + 30}
    assert read_result(output) == result
    assert kept.find_job("count")["state"] == "succeeded"
    assert read_result(kept.run("logs", "--job", "count", "--follow")) == result


def test_a_program_that_fails_has_its_status_and_its_words(kept: Kept) -> None:
    (kept.folder / "job.toml").write_text(
        'name = "broken"\nlauncher = "tf-ps"\nprogram = ["sh", "-c", "echo no such data >&2; exit 7"]\n'
    )
    kept.run("submit", "job.toml", statuses=(7,))
    job = kept.find_job("broken")
    assert (job["state"], job["status"]) == ("failed", 7)
    assert "exit code: 7" in job["cause"]


def test_a_job_that_asks_for_more_than_the_type_has_is_refused(kept: Kept) -> None:
    kept.write_job(5)
    text = (kept.folder / "job.toml").read_text().replace("gpus_per_member = 2", "gpus_per_member = 3")
    (kept.folder / "job.toml").write_text(text)
    kept.run("submit", "job.toml", "--name", "greedy", statuses=(2,))
    assert all(job["name"] != "greedy" for job in json.loads(kept.run("jobs", "--json"))["jobs"])
