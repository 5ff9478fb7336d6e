"""
Variables of the contract, in every environment that starts training scripts.

| started by | reads |
|---|---|
| login shells | /etc/profile.d/deeplearning.sh |
| non-login shells, `ssh host cmd` through bash | the system's bashrc, at its top since Debian's may end early |
| PAM: `ssh host cmd`, cron, su | /etc/environment |
| sudo | env_keep in /etc/sudoers.d/deeplearning |
| systemd units | DefaultEnvironment, or EnvironmentFile=/opt/deeplearning/environment |
"""

import logging
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deeplearning_contract.names import (
    CONTRACT_VARIABLES,
    EFS_MOUNT_VARIABLE,
    ENVIRONMENT_FILE,
    WORKER_GPU_COUNT_VARIABLE,
    WORKERS_COUNT_VARIABLE,
    WORKERS_FILE,
    WORKERS_PATH_VARIABLE,
)
from deeplearning_node.atomic_file import write_block, write_file
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
PROFILE = "/etc/profile.d/deeplearning.sh"
SUDOERS = "/etc/sudoers.d/deeplearning"
SYSTEMD = "/etc/systemd/system.conf.d/deeplearning.conf"
SYSTEMD_RUNS = "/run/systemd/system"
"""Folder that exists while systemd is the first process (sd_booted(3)); a container has another one."""
BASHRC_FILES = ("/etc/bash.bashrc", "/etc/bashrc")
PROGRAM_SECONDS = 60


def contract_variables(node: Node, workers_count: int, gpu_count: int) -> dict[str, str]:
    return list_variables(node.settings.file_system.mount_point, workers_count, gpu_count)


def list_variables(mount_point: str, workers_count: int, gpu_count: int) -> dict[str, str]:
    """Return the contract's variables in order."""
    values = {
        WORKERS_PATH_VARIABLE: WORKERS_FILE,
        WORKERS_COUNT_VARIABLE: str(workers_count),
        WORKER_GPU_COUNT_VARIABLE: str(gpu_count),
        EFS_MOUNT_VARIABLE: mount_point,
    }
    return {name: values[name] for name in CONTRACT_VARIABLES}


def write_environment(node: Node, variables: Mapping[str, str]) -> None:
    """
    Set the variables for every process that starts on this node later.

    Effects: the files above, that of systemd where it runs, which reloads its configuration when that changed.
    """
    plain = "".join(f"{name}={value}\n" for name, value in variables.items())
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    write_file(node.path(ENVIRONMENT_FILE), plain)
    write_file(node.path(PROFILE), exports)
    write_block(node.path("/etc/environment"), plain)
    for bashrc in BASHRC_FILES:
        if node.path(bashrc).exists():
            write_block(node.path(bashrc), f"if [ -r {PROFILE} ]; then . {PROFILE}; fi", at_top=True)
    _write_sudoers(node, variables)
    default = " ".join(f'"{name}={value}"' for name, value in variables.items())
    if not node.path(SYSTEMD_RUNS).is_dir():
        return
    if write_file(node.path(SYSTEMD), f"[Manager]\nDefaultEnvironment={default}\n"):
        node.programs.run(["systemctl", "daemon-reexec"], timeout_seconds=PROGRAM_SECONDS)


def _write_sudoers(node: Node, variables: Mapping[str, str]) -> None:
    """Write the sudoers file after a check by visudo, if present: an invalid file would disable sudo."""
    text = f'Defaults env_keep += "{" ".join(variables)}"\n'
    if node.programs.has("visudo"):
        with tempfile.TemporaryDirectory() as directory:
            draft = Path(directory) / "sudoers"
            write_file(draft, text, 0o440)
            node.programs.run(["visudo", "-c", "-f", str(draft)], timeout_seconds=PROGRAM_SECONDS)
    write_file(node.path(SUDOERS), text, 0o440)
