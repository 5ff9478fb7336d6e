"""Jobs on EMR are steps; a lost core node is replaced, and a node without its key is named."""

import time

import pytest

from tests.real_time import GENEROUS_SECONDS
from tests.rehearsal.kept_rehearsal import ENDLESS_EPOCHS, check_end, keep_rehearsal


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Keep a rehearsal of three nodes."""
    with keep_rehearsal("emr", tmp_path_factory.mktemp("emr")) as rehearsal:
        yield rehearsal


def test_a_job_resumes_after_a_stop_and_after_the_loss_of_a_core_node(kept):
    kept.write_job(ENDLESS_EPOCHS)
    assert "plan: tf-ps, 6 ranks = 3 hosts x 2" in kept.run("submit", "job.toml", "--detach")
    stopped = kept.await_checkpoint("count")
    assert "count/1 is stopped" in kept.run("stop", "count")
    assert kept.find_job("count")["state"] == "stopped"
    assert "resumes from /efs/jobs/count/checkpoints/epochs-" in kept.run("submit", "job.toml", "--detach")
    kept.await_checkpoint("count", beyond=stopped + 20)
    kept.run_on(2, "sudo -n systemctl poweroff")
    give_up = time.monotonic() + GENEROUS_SECONDS
    while kept.find_job("count")["state"] == "running":
        assert time.monotonic() < give_up
        time.sleep(2)
    assert kept.find_job("count")["state"] == "failed"
    assert kept.find_job("count")["cause"]
    while kept.call("plan", "job.toml").returncode != 0:  # The dead node is a member, or its replacement none yet.
        assert time.monotonic() < give_up
        time.sleep(5)
    kept.write_job(kept.await_checkpoint("count") + 20)
    check_end(kept, "count/3")


def test_a_node_without_its_ssh_key_is_named_before_a_job_starts(kept):
    kept.run_on(1, "mv ~/.ssh ~/ssh")
    kept.write_job(ENDLESS_EPOCHS)
    assert "deeplearning-worker2" in kept.run("submit", "job.toml", "--name", "keyless", statuses=(2,))
    kept.run_on(1, "rm -rf ~/.ssh; mv ~/ssh ~/.ssh")
