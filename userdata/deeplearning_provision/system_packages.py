"""
Installs packages of the system for a build: on the node that builds, and only those that it lacks.

The service that provisions a node runs as the login user, whom the images of AWS, Canonical and Debian let use sudo
without a password.
"""

import os
from collections.abc import Callable, Mapping, Sequence

from deeplearning_node.packages import MANAGERS, VARIABLES
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.steps import ProvisionFailure

COMPILER, MAKE, HEADERS, ENSUREPIP = "g++", "make", "Python.h", "ensurepip"
BUILD_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "apt-get": {COMPILER: "g++", MAKE: "make", HEADERS: "python3-dev", ENSUREPIP: "python3-venv"},
    "dnf": {COMPILER: "gcc-c++", MAKE: "make", HEADERS: "python3-devel", ENSUREPIP: "python3-pip"},
}
"""
Package manager -> what a build takes -> the package that brings it.

Debian and Ubuntu keep ensurepip in python3-venv, and Python.h in python3-dev, both of the system's own version.
"""
INSTALL_SECONDS = 1800
ASK_SECONDS = 60
_OPTIONS = {"apt-get": ("--no-upgrade",), "dnf": ()}
"""What the image has keeps its version."""
_ASK = {
    "apt-get": ("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n"),
    "dnf": ("rpm", "--query", "--queryformat=%{NAME} installed\\n"),
}
_NETWORK_MARKS = (
    "Temporary failure resolving",
    "Could not resolve",
    "Could not connect",
    "Unable to connect",
    "Connection failed",
    "Connection timed out",
    "Failed to fetch",
    "Failed to download",
    "Curl error",
    "Could not get lock",
    "Unable to acquire the dpkg frontend lock",
)
"""What apt-get, dnf and dpkg write of a network, a server or another's lock that may be gone later."""


def find_manager(programs: Programs) -> str:
    """Return the node's package manager; empty when it has none that is known."""
    return next((command for command in MANAGERS if programs.has(command)), "")


def name_packages(needs: Sequence[str], programs: Programs) -> list[str]:
    """
    Return the packages that bring what a build takes, as this system calls them.

    Args:
        needs: `COMPILER`, `MAKE`, `HEADERS` or `ENSUREPIP`.
        programs: The node's programs.

    Raises:
        ProvisionFailure: There is no package manager.
    """
    return [BUILD_PACKAGES[_need_manager(needs, programs)][need] for need in needs]


def install_system_packages(
    programs: Programs, transcript: Transcript, names: Sequence[str], tell: Callable[[str], None]
) -> None:
    """
    Install packages; those that are there keep their version and need no network.

    Effects: `apt-get update` and `install`, or `dnf install`, with sudo unless this is root. Nothing restarts.

    Args:
        programs: The node's programs.
        transcript: Where output goes.
        names: Of the packages.
        tell: Told what happens now.

    Raises:
        ProvisionFailure: They could not be installed; what a network or a lock caused may pass.
    """
    manager = _need_manager(names, programs)
    missing = [name for name in names if name not in _list_installed(manager, names, programs)]
    if not missing:
        return
    tell(f"installing {', '.join(missing)} with {manager}")
    *updates, install = MANAGERS[manager]
    heard = ""
    try:
        for argv in updates:
            heard += _run(transcript, programs, argv)
    except ProgramError as error:  # An index of somebody else's that is broken may not be needed.
        heard += error.output
    try:
        _run(transcript, programs, (*install, *_OPTIONS[manager], *missing))
    except ProgramError as error:
        raise _explain(error, missing, f"{heard}\n{error.output}", transcript) from error


def _need_manager(what: Sequence[str], programs: Programs) -> str:
    manager = find_manager(programs)
    if not manager:
        raise ProvisionFailure(
            f"the image lacks {', '.join(what)}, and has neither apt-get nor dnf to install them",
            "give an image that has them, or install them in the set-up script",
        )
    return manager


def _list_installed(manager: str, names: Sequence[str], programs: Programs) -> set[str]:
    try:
        output = programs.run([*_ASK[manager], *names], timeout_seconds=ASK_SECONDS)
    except ProgramError as error:  # It fails when one is unknown, and still names the others.
        output = error.output
    return {name for name, _, state in (line.partition(" ") for line in output.splitlines()) if state == "installed"}


def _run(transcript: Transcript, programs: Programs, argv: Sequence[str]) -> str:
    # sudo keeps no variables of its caller's; env, which it starts, sets them.
    words = [f"{name}={value}" for name, value in VARIABLES.items()]
    privilege = [] if os.geteuid() == 0 else ["sudo", "-n"]
    return transcript.run([*privilege, "env", *words, *argv], timeout_seconds=INSTALL_SECONDS, programs=programs)


def _explain(error: ProgramError, names: Sequence[str], heard: str, transcript: Transcript) -> ProvisionFailure:
    what = ", ".join(names)
    told = "\n".join([line for line in heard.splitlines() if line.startswith(("E:", "Err:", "Error:", "sudo:"))][-3:])
    told = told or error.output
    if error.is_missing or "sudo: a password is required" in heard or "may not run sudo" in heard:
        return ProvisionFailure(
            f"{what} must be installed for the build, and the login user may not use sudo",
            "let the user run sudo without a password, give an image that has them, or use the set-up script",
            output=told,
        )
    if error.is_late or any(mark in heard for mark in _NETWORK_MARKS):
        return ProvisionFailure(
            f"{what} could not be fetched from the system's package server",
            "see the route to it; nodes without one need an image that has them; it is tried again",
            output=told,
            is_final=False,
        )
    remedy = f"give an image that has them, or use the set-up script (all of it is in {transcript.log})"
    return ProvisionFailure(f"{what} could not be installed", remedy, output=told)
