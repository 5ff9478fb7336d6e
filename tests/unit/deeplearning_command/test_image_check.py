"""`deeplearning check --image`: what a machine lacks before it becomes an image of nodes."""

import json
import os
import subprocess
import sys

import pytest

from deeplearning_command.check.image import AGENT_PROGRAMS, TOOLS, check_image
from deeplearning_command.main import main
from deeplearning_node.programs import Programs

FILES = {
    "etc/ssh/sshd_config": "# UsePAM no\nUsePAM yes\n",
    "etc/pam.d/sshd": "session required pam_env.so # reads /etc/environment\n",
    "etc/sudoers": "root ALL=(ALL) ALL\n@includedir /etc/sudoers.d\n",
    "etc/bash.bashrc": "",
    "opt/amazon/efa/bin/fi_info": "",
}
NEEDED = ("python", "programs", "sshd", "/etc/environment", "sudo", "bashrc")


@pytest.fixture
def image(tmp_path):
    """A machine that has everything."""
    root, programs = tmp_path / "root", tmp_path / "programs"
    programs.mkdir()
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for name in (*AGENT_PROGRAMS, "sshd", "sudo", *(name for tool in TOOLS for name in tool.programs)):
        (programs / name).write_text(f"#!/bin/sh\necho\necho {name} 1.0\n")
        (programs / name).chmod(0o755)
    return root


def look(image, version=(3, 10, 0)):
    return {check.name: check for check in check_image(image, Programs(str(image.parent / "programs")), version)}


def test_a_machine_that_has_all_passes(image):
    checks = look(image)
    assert [check for check in checks.values() if check.state != "ok"] == []
    assert list(checks)[:6] == list(NEEDED)
    assert checks["mpirun"].detail == "mpirun 1.0"


def remove(name):
    return lambda image: (image.parent / "programs" / name).unlink()


def write(path, text):
    def change(image):
        (image / path).parent.mkdir(exist_ok=True)
        (image / path).write_text(text)

    return change


FAILS = "#!/bin/sh\necho NVIDIA-SMI has failed; exit 9\n"
PLANTS = {
    "programs": (remove("ssh-keyscan"), "missing: ssh-keyscan"),
    "sshd": (remove("sshd"), "missing: sshd"),
    "sshd without PAM": (write("etc/ssh/sshd_config", "#UsePAM yes\n"), "UsePAM must be yes, got not set"),
    "sshd refusing PAM": (write("etc/ssh/sshd_config", "usepam no\n"), "UsePAM must be yes, got no"),
    # For sshd itself, the first value counts, and a drop-in is read first.
    "sshd with a drop-in": (write("etc/ssh/sshd_config.d/50-image.conf", "UsePAM no\n"), "UsePAM must be yes, got no"),
    "/etc/environment": (write("etc/pam.d/sshd", "# session required pam_env.so\n"), "no file in /etc/pam.d reads it"),
    "sudo": (remove("sudo"), "missing: sudo"),
    "sudo without includes": (write("etc/sudoers", "# @includedir /etc/sudoers.d x\n"), "does not read"),
    "bashrc": (lambda image: (image / "etc/bash.bashrc").unlink(), "neither /etc/bash.bashrc nor /etc/bashrc"),
    "nvidia-smi that fails": (write("../programs/nvidia-smi", FAILS), "ended with status 9: NVIDIA-SMI has failed"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_missing_program_of_the_agent_is_a_fault_with_a_remedy(image, name):
    plant, detail = PLANTS[name]
    plant(image)
    check = look(image)[name.split(" ")[0]]
    assert check.state == "fault"
    assert detail in check.detail
    assert check.remedy


def test_an_old_python_is_a_fault(image):
    check = look(image, (3, 9, 18))["python"]
    assert (check.state, check.remedy[:17]) == ("fault", "install python3.1")
    assert "3.10 or newer, got 3.9.18" in check.detail


def test_the_check_of_an_image_without_efas_software_says_what_its_nodes_do(image):
    (image / "opt/amazon/efa/bin/fi_info").unlink()
    check = look(image)["EFA"]
    assert (check.state, check.detail) == ("absent", "missing: fi_info")
    assert "each node installs it at its start" in check.remedy


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_missing_tool_of_some_jobs_is_no_fault_and_its_purpose_is_named(image, tool):
    for name in tool.programs:
        remove(name)(image)
    check = look(image)[tool.name]
    assert (check.state, check.remedy) == ("absent", tool.remedy)


def test_sudoers_that_only_root_reads_is_no_fault(image, monkeypatch):
    real = type(image).read_text

    def read_text(path, *arguments, **options):
        if path.name == "sudoers":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(type(image), "read_text", read_text)
    check = look(image)["sudo"]
    assert (check.state, check.remedy) == ("absent", "run the check as root")


def test_the_status_tells_a_script_and_no_node_is_needed(image, capsys):
    programs = Programs(str(image.parent / "programs"))
    assert main(["check", "--image", "--json"], image, programs) == 0
    assert {check["state"] for check in json.loads(capsys.readouterr().out)["checks"]} == {"ok"}
    remove("sudo")(image)
    assert main(["check", "--image"], image, programs) == 1
    assert "FAULT  sudo " in capsys.readouterr().out


def test_the_agents_folder_alone_is_enough_to_run_it(agent_folder):
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-m", "deeplearning_command", "check", "--image"],
        capture_output=True,
        text=True,
        check=False,
        cwd=agent_folder,
        env=environment,
    )
    assert done.returncode in {0, 1}, done.stderr
    assert any(line.split()[:2] == ["ok", "python"] for line in done.stdout.splitlines())
