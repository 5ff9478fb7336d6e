"""System limits of jobs."""

import pytest

from deeplearning_agent.boot.job_limits import LIMITS, LOGIND, prepare_job_limits


@pytest.mark.fault(69)
def test_jobs_may_lock_memory_and_their_shared_memory_outlives_logins(lab):
    node = lab.node(1)
    prepare_job_limits(node)
    prepare_job_limits(node)
    assert node.path(LIMITS).read_text() == "* - memlock unlimited\n* - nofile 1048576\n"
    assert node.path(LOGIND).read_text() == "[Login]\nRemoveIPC=no\n"
    calls = (lab.directory / "programs1/systemctl.calls").read_text()
    assert calls == "try-restart systemd-logind.service\n"
