"""Data and environment are brought beside the formation, and a run script finds them complete."""

import os

import pytest

from deeplearning_agent.workload.services import start_provisioning
from deeplearning_agent.workload.user_scripts import RunScript
from deeplearning_contract.setting_parts import DataSettings, JobNeeds, ScriptSettings
from deeplearning_node.programs import ProgramError

UNIT = "/etc/systemd/system/deeplearning-provision.service"
NEEDS = JobNeeds({}, (DataSettings("coco", "bucket", "coco.tar", "efs"),))


@pytest.fixture
def needy(lab, ticking_clock):
    return lab.node(0, ticking_clock(), needs=NEEDS, run_script=ScriptSettings("b", "k", "0"))


@pytest.mark.defect("D44")
def test_the_service_is_started_and_not_waited_for(lab, needy):
    start_provisioning(needy)
    assert lab.calls_of("systemctl") == ["daemon-reload", "start --no-block deeplearning-provision.service"]
    unit = needy.path(UNIT).read_text().splitlines()
    assert "ExecStart=/usr/local/bin/deeplearning provision" in unit
    assert f"User={needy.settings.login_user}" in unit
    assert "RestartPreventExitStatus=1" in unit
    for folder in ("data", "environments", "provision"):
        assert needy.path(f"/opt/deeplearning/{folder}").stat().st_uid == os.getuid()


def test_a_cluster_that_needs_nothing_gets_no_service(lab, ticking_clock):
    node = lab.node(0, ticking_clock())
    start_provisioning(node)
    assert lab.calls_of("systemctl") == []
    assert not node.path(UNIT).exists()


def test_a_service_that_systemd_refuses_is_a_failure(lab, needy):
    (lab.directory / "programs0" / "systemctl").write_text("#!/bin/sh\nexit 5\n")
    with pytest.raises(ProgramError, match="daemon-reload ended with status 5"):
        start_provisioning(needy)


@pytest.mark.parametrize(("status", "runs"), [(0, True), (1, False)])
def test_a_run_script_starts_only_when_data_and_environment_are_complete(lab, needy, status, runs):
    """The wait is the user's own command; here a program at its place answers."""
    command = lab.directory / "deeplearning"
    command.write_text(f'#!/bin/sh\necho "$@" > {lab.directory}/asked\nexit {status}\n')
    command.chmod(0o755)
    (line,) = [part for part in RunScript(needy)._wait() if "wait" in part]
    script = lab.directory / "script"
    script.write_text(f"#!/bin/sh\ntouch {lab.directory}/ran\n")
    script.chmod(0o755)
    here = line.replace("/usr/local/bin/deeplearning", str(command))
    assert here != line
    ended = needy.programs.start(["sh", "-c", here, str(script)]).wait()
    assert (lab.directory / "asked").read_text() == "wait\n"
    assert (lab.directory / "ran").exists() is runs
    assert ended == status
