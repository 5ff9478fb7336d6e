"""Installs what the image lacks, and nothing that it has: forming a cluster needs no package server otherwise."""

import logging
import os

from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
INSTALL_SECONDS = 900
DRIVER_COMMAND = "nvidia-smi"
DRIVER_MODULE = "nvidia"
LOCK_SECONDS = 300
"""How long apt waits for the image's own unattended upgrade."""
KERNEL = "{kernel}"
"""In a package's name: the running kernel's release, for which a driver must be built; the newest may be another."""

_APT = ("apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "Acquire::Retries=3")
MANAGERS = {
    "apt-get": ((*_APT, "update"), (*_APT, "install", "--yes", "--no-install-recommends")),
    "dnf": (("dnf", "install", "--assumeyes"),),
}
"""Program -> its command lines, the last of which takes the packages' names."""

# Ubuntu's needrestart would restart services behind apt, this agent among them.
VARIABLES = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}


def install_packages(node: Node, deadline: Deadline) -> None:
    """
    Install the packages of commands that are absent, then load the GPU driver if it was among them.

    Effects: installs with apt-get or dnf, retried while the time lasts, 15 minutes at most; `modprobe nvidia`.
    """
    missing = {command: names for command, names in node.settings.packages.items() if not node.programs.has(command)}
    if not missing:
        return
    LOG.info("the image lacks %s", ", ".join(sorted(missing)))
    names = {name.replace(KERNEL, os.uname().release) for names in missing.values() for name in names}
    _install(node, sorted(names), deadline.at_most(INSTALL_SECONDS))
    absent = sorted(command for command in missing if not node.programs.has(command))
    if absent:
        raise StageFailure(
            f"the installed packages do not bring {', '.join(absent)}", "give an image that has what its nodes need"
        )
    if DRIVER_COMMAND in missing:
        node.programs.run(["modprobe", DRIVER_MODULE], timeout_seconds=min(120, max(1.0, deadline.remaining)))


def install_optional(node: Node, command: str, names: list[str], deadline: Deadline) -> bool:
    """Install packages that a node can do without, if the command is absent; return whether the command is there."""
    if not node.programs.has(command):
        try:
            _install(node, names, deadline)
        except StageFailure as error:
            LOG.warning("%s could not be installed: %s", ", ".join(names), error)
    return node.programs.has(command)


def _install(node: Node, names: list[str], deadline: Deadline) -> None:
    manager = next((command for command in MANAGERS if node.programs.has(command)), None)
    if manager is None:
        raise StageFailure(
            f"neither apt-get nor dnf is there to install {', '.join(names)}", "give an image that has them"
        )
    *updates, install = MANAGERS[manager]
    last = ProgramError("no attempt was made")
    for _ in deadline.attempts():
        try:
            for argv in (*updates, (*install, *names)):
                node.programs.run(
                    argv,
                    timeout_seconds=max(1.0, deadline.remaining),
                    environment=VARIABLES,
                )
        except ProgramError as error:  # noqa: PERF203 - waiting dwarfs it
            last = error
            LOG.warning("%s", error)
        else:
            return
    raise StageFailure(
        str(last), "check the route to the package server, or give an image that has them", output=last.output
    )
