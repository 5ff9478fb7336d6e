"""Jobs on SageMaker are training jobs: the commands for jobs against a kept rehearsal."""

import json

import pytest

from tests.rehearsal.kept_rehearsal import (
    ENDLESS_EPOCHS,
    check_failing_job,
    check_greedy_job,
    keep_rehearsal,
    read_result,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Keep a rehearsal of training jobs with two containers."""
    with keep_rehearsal("sagemaker", tmp_path_factory.mktemp("sagemaker")) as rehearsal:
        yield rehearsal


def test_a_job_is_planned_submitted_listed_stopped_and_resumed(kept):
    kept.write_job(ENDLESS_EPOCHS)
    planned = kept.run("plan", "job.toml")
    assert "4 ranks = 2 hosts x 2" in planned
    assert '"ContainerEntrypoint"' in planned
    assert all(job["name"] != "count" for job in json.loads(kept.run("jobs", "--json"))["jobs"])
    kept.run("submit", "job.toml", "--detach")
    reached = kept.await_epoch("count")
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


def test_a_program_that_fails_has_its_status_and_its_words(kept):
    assert "exit code: 7" in check_failing_job(kept)["cause"]


def test_a_job_that_asks_for_more_than_the_type_has_is_refused(kept):
    check_greedy_job(kept)
