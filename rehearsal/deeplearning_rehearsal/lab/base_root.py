"""
The nodes' base root file system: what a cloud image for training holds.

Debian with an SSH server, Python, compilers, OpenMPI, CPU PyTorch and Horovod; no boto3, no efs-utils, no AWS CLI.
Made once, then only read: the nodes see it through overlays.
"""

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.lab.cache import fill_once
from deeplearning_rehearsal.lab.downloads import HOROVOD, download_horovod
from deeplearning_rehearsal.lab.host_programs import ARCHIVE_KEYRING, install_missing_packages
from deeplearning_rehearsal.lab.package_sources import SUITE, read_host_sources

IMAGE_PACKAGES = (
    *("openssh-server", "openssh-client", "sudo", "curl", "ca-certificates", "iproute2", "procps", "mount", "hostname"),
    *("tini", "netbase", "python3", "python3-numpy", "python3-torch", "python3-sklearn"),
    *("python3-packaging", "python3-cloudpickle", "python3-yaml", "python3-psutil"),
    *("openmpi-bin", "python3-venv", "python3-pip", "python3-dev", "g++", "make", "cmake"),
)
"""
What the image holds.

horovodrun says that Gloo has not been built when python3-packaging is absent. Images for training bring MPI, and what
builds a user's environment: venv with its pip, and compilers.
"""

BUILD_PACKAGES = ("libopenmpi-dev", "libtorch-dev", "pybind11-dev", "python3-cffi")
"""What only Horovod's build needs; none of it stays."""

_UNREAD = ("doc", "info", "locale", "man")
_BUILD_SCRIPT = Path(__file__).with_name("build_horovod.sh")


def recipe_key() -> str:
    """Name the recipe by its content: another recipe is another folder in the cache."""
    recipe = (SUITE, IMAGE_PACKAGES, BUILD_PACKAGES, HOROVOD, _UNREAD, _BUILD_SCRIPT.read_text(), os.uname().machine)
    return f"{SUITE}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def prepare_base_root(cache: Path, tell: Callable[[str], None]) -> Path:
    """
    Return the base root, made first when the cache does not hold it.

    It takes some four minutes and 450 MB of downloads. Host packages are installed when missing, see
    `install_missing_packages`.

    Args:
        cache: Folder that keeps base roots; made when absent.
        tell: Told a line for every slow step.

    Raises:
        UnavailableError: This machine cannot make it; the message says what is missing or what failed.
    """
    install_missing_packages(tell)
    return fill_once(cache, recipe_key(), lambda work: _build(work, tell))


def _build(work: Path, tell: Callable[[str], None]) -> Path:
    begin = time.monotonic()
    tell("making the nodes' base root file system, once: about 450 MB of downloads, 2 GB on disk, 4 minutes")
    tell("downloading Horovod's source (3.5 MB)")
    source = download_horovod(work)
    root = work / "root"
    _run_mmdebstrap(_mmdebstrap_command(root, source), read_host_sources(), work.parent / "build.log", tell)
    tell(f"base root file system ready after {time.monotonic() - begin:.0f} s")
    return root


def _mmdebstrap_command(target: Path, source: Path) -> list[str]:
    # Namespaces, so that mounts and processes of an interrupted build are gone with it.
    enclosed = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    ]
    build = " ".join(["sh", str(_BUILD_SCRIPT), '"$1"', str(source), *BUILD_PACKAGES])
    return [
        *enclosed,
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", f"--keyring={ARCHIVE_KEYRING}"),
        f"--include={','.join(IMAGE_PACKAGES)}",
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _UNREAD),
        f"--customize-hook={build}",
        SUITE,
        str(target),
    ]


def _run_mmdebstrap(command: list[str], sources: str | None, log: Path, tell: Callable[[str], None]) -> None:
    """Run mmdebstrap with sources on standard input, or with its own default; pass on its lines of progress."""
    stdin = tempfile.TemporaryFile()  # noqa: SIM115 - closed below, the child has its own descriptor
    if sources is not None:
        command = [*command, "-"]
        stdin.write(sources.encode())
        stdin.seek(0)
    with stdin, log.open("w") as output:
        process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in process.stdout or ():
            output.write(line)
            if line.startswith("I: ") and "-hook in shell" not in line:
                tell(line.removeprefix("I: ").strip())
        status = process.wait()
    if status != 0:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-8:])
        raise UnavailableError(f"the base root could not be made, see {log}: {last}")
