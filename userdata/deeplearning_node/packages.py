"""Installation of packages that the image lacks; an image that has all of them needs no package server."""

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
"""Time for which apt waits for the image's own unattended upgrade."""
KERNEL = "{kernel}"
"""Placeholder in a package's name: release of the running kernel, which may not be the newest one."""

_APT = ("apt-get", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "-o", "Acquire::Retries=3")
MANAGERS = {
    "apt-get": ((*_APT, "update"), (*_APT, "install", "--yes", "--no-install-recommends")),
    "dnf": (("dnf", "install", "--assumeyes"),),
}
"""Program -> its command lines; the last one takes the packages' names."""

# Ubuntu's needrestart would restart services after apt, this agent included.
VARIABLES = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_SUSPEND": "1",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
}


def install_packages(node: Node, deadline: Deadline) -> None:
    """
    Install the packages of commands that are absent, then load the GPU driver if it was among them.

    Effects: installs with apt-get or dnf, retried until the deadline, 15 minutes at most; `modprobe nvidia`.
    """
    missing = {command: names for command, names in node.settings.packages.items() if not node.programs.has(command)}
    if not missing:
        return
    LOG.info("the image lacks %s", ", ".join(sorted(missing)))
    names = {name.replace(KERNEL, os.uname().release) for names in missing.values() for name in names}
    _install(node, sorted(names), deadline.at_most(INSTALL_SECONDS))
    absent = sorted(command for command in missing if not node.programs.has(command))
    if absent:
        raise StageFailure(f"the installed packages do not provide {', '.join(absent)}", "use an image that has them")
    if DRIVER_COMMAND in missing:
        node.programs.run(["modprobe", DRIVER_MODULE], timeout_seconds=min(120, max(1.0, deadline.remaining)))


def install_optional(node: Node, command: str, names: list[str], deadline: Deadline) -> bool:
    """Install optional packages if their command is absent; return whether the command is present."""
    if not node.programs.has(command):
        try:
            _install(node, names, deadline)
        except StageFailure as error:
            LOG.warning("could not install %s: %s", ", ".join(names), error)
    return node.programs.has(command)


def _install(node: Node, names: list[str], deadline: Deadline) -> None:
    manager = next((command for command in MANAGERS if node.programs.has(command)), None)
    if manager is None:
        raise StageFailure(
            f"the image has neither apt-get nor dnf to install {', '.join(names)}", "use an image that has them"
        )
    *updates, install = MANAGERS[manager]
    last = ProgramError("no attempt was made")
    for _ in deadline.attempts():
        try:
            for argv in (*updates, *((*install, *group) for group in _split(names))):
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
        str(last), "check the route to the package server, or use an image that has them", output=last.output
    )


def _split(names: list[str]) -> list[list[str]]:
    """Return the packages in the order of two transactions: a package `*-release` adds the repository of others."""
    releases = [name for name in names if name.endswith("-release")]
    return [group for group in (releases, [name for name in names if name not in releases]) if group]
