"""Jobs on EMR are steps; a lost core node is replaced, and a node without its key is named."""

import json
import time
from collections.abc import Iterator

import pytest

from tests.rehearsal.kept_rehearsal import GIVE_UP_SECONDS, Kept, check_submission, keep_rehearsal


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Keep a rehearsal of three nodes."""
    with keep_rehearsal("emr", tmp_path_factory.mktemp("emr")) as rehearsal:
        yield rehearsal


def test_a_job_is_submitted_listed_shown_stopped_and_resumed(kept: Kept) -> None:
    check_submission(kept)


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
    assert kept.find_job("lost")["cause"]
    while (
        kept.call("plan", "job.toml").returncode != 0
    ):  # The dead node is still a member, or its replacement none yet.
        assert time.monotonic() < give_up
        time.sleep(5)
    kept.write_job(kept.await_checkpoint("lost") + 20)
    output = kept.run("submit", "job.toml", "--name", "lost")
    assert "resumes from /efs/jobs/lost/checkpoints/epochs-" in output
    assert json.loads(output.splitlines()[-1])["ranks"] == 6


def test_a_node_without_its_ssh_key_is_named_before_a_job_starts(kept: Kept) -> None:
    kept.run_on(1, "mv ~/.ssh ~/ssh")
    kept.write_job(epochs=400)
    assert "deeplearning-worker2" in kept.run("submit", "job.toml", "--name", "keyless", statuses=(2,))
    kept.run_on(1, "rm -rf ~/.ssh; mv ~/ssh ~/.ssh")
