"""Root file systems of distributions with nothing but Python and apt: what a stock image brings for a build."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.host_programs import ARCHIVE_KEYRING, install_missing_packages

PACKAGES = ("apt", "python3", "ca-certificates")
_UBUNTU = "noble"
_KEYRING_SUITE = "trixie"
_KEYRING_PACKAGE = "ubuntu-archive-keyring"
"""Of Debian 13: brings the keys of Ubuntu's archive, which Debian's signature vouches for."""
_KEYRING = "usr/share/keyrings/ubuntu-archive-keyring.gpg"
_ENCLOSED = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def prepare_root(cache: Path, suite: str, tell: Callable[[str], None]) -> Path:
    """
    Return the root of a release, made first when the cache does not hold it: some 100 MB of downloads.

    Args:
        cache: Folder that keeps roots; made when absent.
        suite: The release by its code name.
        tell: Told a line for every slow step.

    Raises:
        UnavailableError: Its packages cannot be had from here.
    """
    install_missing_packages(tell)
    keyring = prepare_root(cache, _KEYRING_SUITE, tell) / _KEYRING if suite == _UBUNTU else ARCHIVE_KEYRING
    command = list_options(suite, keyring)
    key = f"{suite}-{hashlib.sha256(repr(list_options(suite, Path('/'))).encode()).hexdigest()[:16]}"

    def fill(work: Path) -> Path:
        tell(f"making a root of {suite}, once")
        _run([*_ENCLOSED, *command, suite, str(work / "root")], suite)
        return work / "root"

    return fill_once(cache, key, fill, tell)


def list_options(suite: str, keyring: Path) -> list[str]:
    """Return mmdebstrap with its options for a release."""
    packages = (*PACKAGES, *((_KEYRING_PACKAGE,) if suite == _KEYRING_SUITE else ()))
    components = "main,universe,multiverse" if suite == _UBUNTU else "main"
    return [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
        *(f"--keyring={keyring}", f"--components={components}", f"--include={','.join(packages)}"),
    ]


def _run(command: list[str], suite: str) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last = " | ".join(answer.stderr.splitlines()[-4:])[-600:]
        raise UnavailableError(f"no root of {suite} can be made here: {last}")
