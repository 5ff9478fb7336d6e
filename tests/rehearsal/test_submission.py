"""A job is submitted to a kept rehearsal on EC2, followed, stopped and resumed by the command line alone."""

from tests.rehearsal.kept_rehearsal import check_submission, keep_rehearsal


def test_a_job_is_submitted_listed_shown_stopped_and_resumed(tmp_path):
    with keep_rehearsal("ec2", tmp_path) as kept:
        check_submission(kept)
