"""The service that ends an idle cluster: started once, stopped with the office, and nobody's trouble."""

import subprocess

import pytest

from deeplearning_agent.worker import Worker
from deeplearning_agent.workload.services import RETRY_SECONDS, IdleService
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_node.node_facts import find_running_script

UNIT = "/etc/systemd/system/deeplearning-idle.service"


@pytest.fixture
def watched(lab, ticking_clock):
    return lab.node(0, ticking_clock(), stop_when_idle_seconds=1800)


def test_the_service_is_started_once_as_the_login_user(lab, watched):
    service = IdleService(watched)
    service.ensure()
    service.ensure()
    assert lab.calls_of("systemctl") == ["daemon-reload", "start --no-block deeplearning-idle.service"]
    unit = watched.path(UNIT).read_text().splitlines()
    assert "ExecStart=/usr/local/bin/deeplearning stop-when-idle --seconds 1800" in unit
    assert f"User={watched.settings.login_user}" in unit
    assert "Restart=on-failure" in unit


def test_a_cluster_that_may_be_idle_for_ever_gets_none(lab, ticking_clock):
    node = lab.node(0, ticking_clock())
    service = IdleService(node)
    service.ensure()
    service.stop()
    assert lab.calls_of("systemctl") == []
    assert not node.path(UNIT).exists()


def test_a_call_that_systemd_refuses_is_harmless_and_retried_later(lab, watched):
    systemctl = lab.directory / "programs0" / "systemctl"
    works = systemctl.read_text()
    systemctl.write_text("#!/bin/sh\nexit 5\n")
    service = IdleService(watched)
    service.ensure()
    systemctl.write_text(works)
    service.ensure()
    assert lab.calls_of("systemctl") == []
    watched.clock.wait(RETRY_SECONDS)
    service.ensure()
    assert lab.calls_of("systemctl") == ["daemon-reload", "start --no-block deeplearning-idle.service"]


@pytest.mark.parametrize("has_started", [True, False])
def test_a_master_that_was_followed_ends_its_service_though_its_agent_was_restarted(lab, watched, has_started):
    service = IdleService(watched)
    if has_started:
        service.ensure()
    service.stop()
    service.stop()
    assert lab.calls_of("systemctl")[-1] == "stop deeplearning-idle.service"
    assert lab.calls_of("systemctl").count("stop deeplearning-idle.service") == 1
    service.ensure()
    assert lab.calls_of("systemctl")[-1] == "start --no-block deeplearning-idle.service"


@pytest.fixture
def shell():
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_run_script_runs_from_its_start_to_its_status(lab, watched, shell):
    root, name = watched.root, watched.identity.instance_id
    started = watched.path("/run/deeplearning/run-script-started")
    assert not find_running_script(root, name)
    started.parent.mkdir(parents=True, exist_ok=True)
    started.write_text(f"{shell.pid}\n")
    assert find_running_script(root, name)
    status = watched.instance_file("run-script-status")
    status.parent.mkdir(parents=True, exist_ok=True)
    status.write_text("1\n")
    assert not find_running_script(root, name)
    status.unlink()
    shell.kill()
    shell.wait()
    assert not find_running_script(root, name), "one that was killed has no status"


def test_roots_run_script_runs_for_the_login_user_too(watched, monkeypatch):
    def refuse(group, number):
        assert (group, number) == (77, 0)
        raise PermissionError

    monkeypatch.setattr("os.killpg", refuse)
    started = watched.path("/run/deeplearning/run-script-started")
    started.parent.mkdir(parents=True, exist_ok=True)
    started.write_text("77\n")
    assert find_running_script(watched.root, watched.identity.instance_id)


def test_a_notice_that_the_cluster_takes_back_goes_and_the_nodes_own_stays(lab, ticking_clock):
    node = lab.node(1, ticking_clock())
    worker, notice = Worker(node, None), node.path("/opt/deeplearning/notice")
    worker.join = lambda generation: None
    said = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, (), notice="the cluster stops by itself at noon")
    worker.converge(said)
    assert "at noon" in notice.read_text()
    worker.converge(said.advance(Phase.LAUNCHED, notice=""))
    assert not notice.exists()
    worker.noticed = "EC2 takes the instance back"
    worker.converge(said)
    worker.converge(said.advance(Phase.LAUNCHED, notice=""))
    assert "EC2 takes" in notice.read_text()
