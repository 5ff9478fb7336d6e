"""
The nodes' base root file system: what a cloud image for training holds.

Debian with an SSH server, Python, CPU PyTorch and Horovod; no boto3, no efs-utils, no AWS CLI. Made once, then only
read: the nodes see it through overlays.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.lab.host_programs import ARCHIVE_KEYRING, install_missing_packages
from deeplearning_rehearsal.lab.package_sources import SUITE, read_host_sources

IMAGE_PACKAGES = (
    *("openssh-server", "openssh-client", "sudo", "curl", "ca-certificates", "iproute2", "procps", "mount", "hostname"),
    *("tini", "netbase", "python3", "python3-numpy", "python3-torch", "python3-sklearn"),
    *("python3-packaging", "python3-cloudpickle", "python3-yaml", "python3-psutil"),
)
"""What the image holds. horovodrun says that Gloo has not been built when python3-packaging is absent."""

BUILD_PACKAGES = (
    *("g++", "make", "cmake", "libtorch-dev", "pybind11-dev", "python3-dev"),
    *("python3-cffi", "python3-pip", "python3-setuptools", "python3-wheel"),
)
"""What only Horovod's build needs; none of it stays."""

HOROVOD = "horovod==0.28.1 --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
# Horovod's setup.py imports pkg_resources, which later versions of setuptools do not have.
_BUILD_CONSTRAINT = "setuptools<81"
_UNREAD = ("doc", "info", "locale", "man")
_BUILD_SCRIPT = Path(__file__).with_name("build_horovod.sh")


def recipe_key() -> str:
    """Name the recipe by its content: another recipe is another folder in the cache."""
    recipe = (SUITE, IMAGE_PACKAGES, BUILD_PACKAGES, HOROVOD, _UNREAD, _BUILD_SCRIPT.read_text(), os.uname().machine)
    return f"{SUITE}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def prepare_base_root(cache: Path, tell: Callable[[str], None]) -> Path:
    """
    Return the base root, made first when the cache does not hold it.

    It takes some four minutes and 450 MB of downloads; an interrupted build leaves nothing that a later one would take
    for a whole one. Host packages are installed when missing, see `install_missing_packages`.

    Args:
        cache: Folder that keeps base roots; made when absent.
        tell: Told a line for every slow step.

    Raises:
        UnavailableError: This machine cannot make it; the message says what is missing or what failed.
    """
    install_missing_packages(tell)
    root = cache.resolve() / recipe_key()
    if root.is_dir():
        return root
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache):
        if not root.is_dir():
            for left in cache.glob("building-*"):
                shutil.rmtree(left)
            _build(root, tell)
    return root


def _build(root: Path, tell: Callable[[str], None]) -> None:
    begin = time.monotonic()
    work = Path(tempfile.mkdtemp(prefix="building-", dir=root.parent))
    tell("making the nodes' base root file system, once: about 450 MB of downloads, 2.5 GB on disk, 4 minutes")
    source = _download_horovod(work, tell)
    target = work / "root"
    log = root.parent / "build.log"
    _run_mmdebstrap(_mmdebstrap_command(target, source), read_host_sources(), log, tell)
    target.rename(root)
    shutil.rmtree(work)
    tell(f"base root file system ready after {time.monotonic() - begin:.0f} s: {root}")


def _download_horovod(work: Path, tell: Callable[[str], None]) -> Path:
    """Let pip fetch Horovod's source from the index that this machine uses, and check its hash."""
    tell("downloading Horovod's source (3.5 MB)")
    requirement, constraint = work / "horovod.txt", work / "constraint.txt"
    requirement.write_text(HOROVOD + "\n")
    constraint.write_text(_BUILD_CONSTRAINT + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--no-binary", "horovod", "--dest", str(work), "--requirement", str(requirement)]
    environment = os.environ | {"PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    sources = list(work.glob("horovod-*.tar.gz"))
    if answer.returncode != 0 or len(sources) != 1:
        raise UnavailableError(f"Horovod's source could not be downloaded: {answer.stderr.strip()[-600:]}")
    return sources[0]


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


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
