"""
Installation of missing packages of the system on the node that builds.

The service runs as the login user, who may use sudo without a password in the images of AWS, Canonical and Debian.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deeplearning_node.packages import MANAGERS, VARIABLES
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.program_failure import LATE, NETWORK, Meaning, explain_failure
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.pip import WITHOUT_HOROVOD, name_python
from deeplearning_provision.steps import ProvisionFailure

COMPILER, MAKE, HEADERS, ENSUREPIP = "g++", "make", "Python.h", "ensurepip"
BUILD_PACKAGES: Mapping[str, Mapping[str, str]] = {
    "apt-get": {COMPILER: "g++", MAKE: "make", HEADERS: "{python}-dev", ENSUREPIP: "{python}-venv"},
    "dnf": {COMPILER: "gcc-c++", MAKE: "make", HEADERS: "{python}-devel", ENSUREPIP: "{python}-pip"},
}
"""
Package manager -> need of a build -> package, with the name of a version of Python.

Debian and Ubuntu have those of their own version alone; a package that does not exist is refused.
"""
OS_RELEASE = "/etc/os-release"
INSTALL_SECONDS = 1800
ASK_SECONDS = 60
_OPTIONS = {"apt-get": ("--no-upgrade",), "dnf": ()}
"""Packages of the image keep their version."""
_ASK = {
    "apt-get": ("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n"),
    "dnf": ("rpm", "--query", "--queryformat=%{NAME} installed\\n"),
}
_UNREACHED = re.compile(
    r"Temporary failure resolving|Could not resolve '|Could not connect|Unable to connect|Connection failed"
    r"|Failed to fetch|Failed to download|Curl error"
)
"""Network failures in the output of apt-get and dnf."""
_UNKNOWN = re.compile(
    r"Unable to locate package (\S+)|Package '?([^\s']+)'? has no installation candidate|No match for argument: (\S+)"
)
"""Packages that the distribution does not have; apt-get and dnf then download and install none of the others."""
_LOCKED = re.compile(r"Could not get lock|Unable to acquire the dpkg frontend lock")
_NO_SUDO = re.compile(r"sudo is not installed|sudo: a password is required|may not run sudo")


def read_system(root: Path) -> str:
    """Return the distribution and its version, such as `ubuntu 24.04`; empty when unknown."""
    try:
        lines = (root / OS_RELEASE.lstrip("/")).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    values = dict(line.replace('"', "").split("=", 1) for line in lines if "=" in line)
    return f"{values.get('ID', '')} {values.get('VERSION_ID', '')}".strip()


def name_packages(needs: Sequence[str], programs: Programs, version: str) -> list[str]:
    """Return this system's packages for needs such as `COMPILER` and `HEADERS` with a Python such as `3.12.3`."""
    manager = _find_manager(needs, programs)
    python = name_python(version, has_namespaces=manager == "dnf")
    return [BUILD_PACKAGES[manager][need].format(python=python) for need in needs]


def install_system_packages(
    programs: Programs, transcript: Transcript, names: Sequence[str], report: Callable[[str], None]
) -> None:
    """
    Install packages that are missing; installed ones keep their version and need no network.

    Effects: `apt-get update` and `install`, or `dnf install`, with sudo unless this is root. Nothing restarts.
    """
    manager = _find_manager(names, programs)
    missing = [name for name in names if name not in _list_installed(manager, names, programs)]
    if not missing:
        return
    report(f"installing {', '.join(missing)} with {manager}")
    *updates, install = MANAGERS[manager]
    heard = ""
    try:
        for argv in updates:
            heard += _run(transcript, programs, argv)
    except ProgramError as error:  # A broken index of another vendor may not matter.
        heard += error.output
    try:
        _run(transcript, programs, (*install, *_OPTIONS[manager], *missing))
    except ProgramError as error:
        error.output = f"{heard}\n{error.output}"
        raise _explain(error, missing, transcript.log) from error


def _find_manager(what: Sequence[str], programs: Programs) -> str:
    manager = next((command for command in MANAGERS if programs.has(command)), "")
    if not manager:
        raise ProvisionFailure(
            f"the image lacks {', '.join(what)}, and has neither apt-get nor dnf to install them",
            "use an image that has them, or install them in the set-up script",
        )
    return manager


def _list_installed(manager: str, names: Sequence[str], programs: Programs) -> set[str]:
    try:
        output = programs.run([*_ASK[manager], *names], timeout_seconds=ASK_SECONDS)
    except ProgramError as error:  # It fails for an unknown package, after it has listed the others.
        output = error.output
    return {name for name, _, state in (line.partition(" ") for line in output.splitlines()) if state == "installed"}


def _run(transcript: Transcript, programs: Programs, argv: Sequence[str]) -> str:
    # sudo drops the variables of its caller.
    words = [f"{name}={value}" for name, value in VARIABLES.items()]
    privilege = [] if os.geteuid() == 0 else ["sudo", "-n"]
    return transcript.run([*privilege, "env", *words, *argv], timeout_seconds=INSTALL_SECONDS, programs=programs)


def _list_unknown(output: str) -> list[str]:
    return sorted({name for found in _UNKNOWN.findall(output) for name in found if name})


def _explain(error: ProgramError, names: Sequence[str], log: Path) -> ProvisionFailure:
    what = ", ".join(names)
    unreached = (
        f"could not fetch {what} from the system's package server",
        "check the route to it; nodes without one need an image that has them; retrying",
    )
    meanings = (
        Meaning(
            _NO_SUDO,
            f"{what} must be installed for the build, and the login user may not use sudo",
            "let the user run sudo without a password, use an image that has them, or use the set-up script",
        ),
        *(Meaning(pattern, *unreached, may_pass=True) for pattern in (NETWORK, _UNREACHED, _LOCKED, LATE)),
        Meaning(
            _UNKNOWN,
            f"the distribution has no package {', '.join(_list_unknown(error.output))}, which the build needs",
            f"use an image that has its content, or {WITHOUT_HOROVOD} (full log: {log})",
        ),
    )
    remedy = f"use an image that has them, or the set-up script (full log: {log})"
    return explain_failure(error, meanings, f"could not install {what}", remedy)
