"""A container as a node: what it needs from its image, and what it does before it joins the others."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deeplearning_agent.boot.steps import install_command, run_stage
from deeplearning_contract.membership import Member
from deeplearning_contract.names import AGENT_DIRECTORY, PROVISION_FILE
from deeplearning_contract.settings import NodeSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpu_driver import check_driver
from deeplearning_node.health.gpus import count_gpus
from deeplearning_node.health.node_check import check_health
from deeplearning_node.node import Node
from deeplearning_node.programs import Programs, system_path
from deeplearning_node.provision_status import DONE, ENVIRONMENT_STEP, Step, name_steps, read_boot
from deeplearning_node.ssh import read_host_key, wait_for_sshd

SSHD = "/usr/sbin/sshd"
_PACKAGES = {
    SSHD: "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ssh-keyscan": "openssh-client",
    "ip": "iproute2",
    "bash": "bash",
    "runuser": "util-linux",
}
"""Program -> the package of Debian and Ubuntu that has it."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_SHELL = frozenset({"_", "HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "USER"})
PROBE_SECONDS = 10


def read_settings(root: Path) -> NodeSettings:
    """Read the settings beside the agent; StageFailure without them."""
    try:
        text = (root / AGENT_DIRECTORY.lstrip("/") / "settings.json").read_text(encoding="utf-8")
        return NodeSettings.from_json(text)
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        raise StageFailure(str(error), "deploy the stack again", stage="read the settings") from error


def find_programs() -> Programs:
    """Return the programs of the image; StageFailure when it lacks one."""
    programs = Programs(system_path(os.environ.get("PATH", "")))
    if lacking := [program for program in _PACKAGES if not programs.has(program)]:
        packages = " ".join(dict.fromkeys(_PACKAGES[program] for program in lacking))
        raise StageFailure(
            f"the image lacks {', '.join(lacking)}",
            f"install them in the image (apt-get install {packages})",
            stage="check the image",
        )
    return programs


def read_address(programs: Programs, interface: str) -> str:
    """Return the IPv4 address of a network interface; StageFailure without one."""
    argv = ["ip", "-oneline", "-4", "address", "show", "dev", interface]
    words = programs.run(argv, timeout_seconds=PROBE_SECONDS).split()
    if "inet" not in words:
        raise StageFailure(f"{interface} must have an IPv4 address, got none", "", stage="read the network")
    return words[words.index("inet") + 1].partition("/")[0]


def start_member(node: Node, data_detail: str, deadline: Deadline, newer_driver: str = "") -> Member:
    """
    Do what is the same in every container, and describe it; StageFailure when a step fails.

    Effects: the command, the status of provisioning, the host key, and the SSH server, a child of this process.

    Args:
        node: This container.
        data_detail: Where its data come from, for the status of provisioning; empty where they are not there yet.
        deadline: Time until which the SSH server must respond.
        newer_driver: Remedy that brings another NVIDIA driver. Default: the user cannot choose it.
    """
    clock = node.clock
    gpu_count = run_stage(clock, "count GPUs", lambda: count_gpus(node))
    run_stage(clock, "check the container's health", lambda: check_health(node, fewest_gpus=gpu_count))
    if gpu_count:
        run_stage(clock, "check the NVIDIA driver", lambda: check_driver(node.programs, "python3", newer_driver))
    run_stage(clock, "install the command", lambda: install_command(node))
    run_stage(clock, "report the provisioning", lambda: _report_provisioned(node, data_detail))
    host_key = run_stage(clock, "make the SSH identity", lambda: read_host_key(node))
    run_stage(clock, "start sshd", lambda: _start_sshd(node))
    run_stage(clock, "wait for sshd", lambda: wait_for_sshd(node, host_key, deadline))
    return Member(node.identity.instance_id, node.identity.address, gpu_count, host_key)


def list_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """
    Return the variables of the container for logins, which have none of those of its first process.

    They are those of the image, such as `PATH`, and of the service that started it, such as the address of the
    credentials.
    """
    found = {name: text for name, text in environment.items() if _NAME.fullmatch(name) and name not in _OF_A_SHELL}
    return {name: text for name, text in found.items() if text.isprintable()}


def _report_provisioned(node: Node, data_detail: str) -> None:
    """Report that the image has the environment, and that the data are there if it says where."""
    details = dict.fromkeys(name_steps(node.settings.needs), data_detail)
    if ENVIRONMENT_STEP in details:
        details[ENVIRONMENT_STEP] = "part of the image"
    steps = {name: Step(DONE, detail).to_document() for name, detail in details.items() if detail}
    document = {"boot": read_boot(node.root), "steps": steps}
    write_file(node.path(PROVISION_FILE), json.dumps(document, indent=2) + "\n")


def _start_sshd(node: Node) -> None:
    node.path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)  # For sshd's separation of privileges.
    # sshd requires its full path. As a daemon it would keep the output of the container open.
    silent = subprocess.DEVNULL
    subprocess.Popen([SSHD, "-D"], stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
