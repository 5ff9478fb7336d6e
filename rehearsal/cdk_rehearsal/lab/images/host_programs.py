"""What this machine itself must have for the lab: three small packages, installed when they are missing."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.errors import UnavailableError

ARCHIVE_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PACKAGES = {"mmdebstrap": "mmdebstrap", "iproute2": "ip"}
_KEYRING_PACKAGE = "debian-archive-keyring"


def find_missing_packages() -> tuple[str, ...]:
    """Return the packages that this machine lacks."""
    missing = [package for package, program in _PACKAGES.items() if shutil.which(program) is None]
    return (*missing, *(() if ARCHIVE_KEYRING.exists() else (_KEYRING_PACKAGE,)))


def install_missing_packages(tell: Callable[[str], None]) -> None:
    """
    Install with apt-get what this machine lacks: mmdebstrap, iproute2 and Debian's archive keyring, and nothing else.

    Raises:
        UnavailableError: There is no apt-get, this is not root, or the installation failed.
    """
    missing = find_missing_packages()
    if not missing:
        return
    line = f"apt-get install --yes {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise UnavailableError(f"missing: {', '.join(missing)}; install them with this machine's package manager")
    if os.geteuid() != 0:
        raise UnavailableError(f"missing: {', '.join(missing)}; run: sudo {line}")
    tell(f"installing on this machine: {' '.join(missing)}")
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    if _run(command).returncode == 0:
        return
    _run(["apt-get", "update", "--quiet"])
    answer = _run(command)
    if answer.returncode != 0:
        raise UnavailableError(f"missing: {', '.join(missing)}; run: {line}\n{answer.stderr.strip()[-400:]}")


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
