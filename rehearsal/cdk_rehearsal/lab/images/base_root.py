"""
The nodes' base root file system: what Ubuntu's cloud image has of what a cluster uses, as Debian packages it.

No framework, compiler, pip or MPI; no boto3, no efs-utils, no AWS CLI. What nodes may install with apt is downloaded
with it, and served to them as an archive. Made once, then only read: the nodes see it through overlays.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.package_sources import SUITE, read_host_sources
from cdk_rehearsal.lab.packages import write_archive

IMAGE_PACKAGES = (
    *("openssh-server", "openssh-client", "sudo", "curl", "ca-certificates", "iproute2", "procps", "mount", "hostname"),
    *("netbase", "python3", "systemd", "systemd-sysv", "dbus", "libpam-systemd", "cloud-init"),
)
"""
Packages of the image.

Ubuntu's cloud image has each of them, and of Python no pip, no ensurepip and no headers: its list of packages is beside
it (https://cloud-images.ubuntu.com/releases/noble/release/, the file that ends with .manifest).
"""

NODE_PYTHON = "3.11"
"""Version of the Python that the suite has."""
DEBIAN_PYTHON = f"/usr/bin/python{NODE_PYTHON}"
"""It is there whatever `/usr/bin/python3` is on an image; the lab's own programs run on it."""
COMPILER_PACKAGES = ("g++", "make", "python3-dev", "python3-pip", "python3-venv")
MPI_PACKAGES = ("openmpi-bin", "libopenmpi-dev")
ARCHIVE_PACKAGES = (*COMPILER_PACKAGES, *MPI_PACKAGES)
"""Packages that nodes may install, or another image brings; their dependencies come with them."""

UNREAD = ("doc", "info", "locale", "man")
"""Folders of documentation that no node has."""
_NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
ENCLOSED = ("setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES)
"""Before a command: its mounts and processes are gone with it, however it is interrupted."""
ARCHIVE_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_HOST_PACKAGES = {"mmdebstrap": "mmdebstrap", "iproute2": "ip"}
_KEYRING_PACKAGE = "debian-archive-keyring"
"""Needs of the lab on this machine: small packages, each with a program of it, and the keyring."""
_FINISH = Path(__file__).with_name("finish_root.sh")


@dataclass(frozen=True)
class BaseRoot:
    """The base of all images: its root file system, and a folder of Debian packages that go with it."""

    root: Path
    archive: Path

    @property
    def key(self) -> str:
        """Its name in the cache; another recipe has another."""
        return self.root.parent.name


def recipe_key() -> str:
    """Return the name of the recipe by its content: another recipe is another folder in the cache."""
    packages = (IMAGE_PACKAGES, ARCHIVE_PACKAGES)
    recipe = (SUITE, packages, UNREAD, _FINISH.read_text(), os.uname().machine)
    return f"{SUITE}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def prepare_base_root(cache: Path, report: Callable[[str], None]) -> BaseRoot:
    """
    Return the base root, made when the cache does not hold it: a minute, and 190 MB of downloads.

    UnavailableError when this machine cannot make it; the message says what is missing or what failed.
    """
    install_missing_packages(report)
    folder = fill_once(cache, recipe_key(), lambda work: _build(work, report), report)
    return BaseRoot(folder / "root", folder / "archive")


def _build(work: Path, report: Callable[[str], None]) -> Path:
    begin = time.monotonic()
    report("making the nodes' base root file system, once: about 190 MB of downloads, 350 MB on disk, a minute")
    made = work / "made"
    made.mkdir()
    # mmdebstrap runs it at the end, in a shell whose first argument is the root.
    finish = ["sh", str(_FINISH), '"$1"', str(made / "archive"), *ARCHIVE_PACKAGES]
    options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in UNREAD]
    options += [f"--customize-hook={' '.join(finish)}"]
    sources, log = read_host_sources(), work.parent / "build.log"
    bootstrap_root(made / "root", SUITE, IMAGE_PACKAGES, *options, sources=sources, log=log, report=report)
    write_archive(made / "archive")
    report(f"base root file system ready after {time.monotonic() - begin:.0f} s")
    return made


def bootstrap_root(
    root: Path,
    suite: str,
    packages: Sequence[str],
    *options: str,
    log: Path,
    report: Callable[[str], None],
    keyring: Path = ARCHIVE_KEYRING,
    sources: str | None = None,
) -> None:
    """
    Make a root file system with mmdebstrap, whose lines of progress are passed on and logged.

    UnavailableError when it failed; the message ends with the last lines. Without sources, the suite's default is used.
    """
    command = [*ENCLOSED, "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"]
    command += [f"--keyring={keyring}", f"--include={','.join(packages)}", *options, suite, str(root)]
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
                report(line.removeprefix("I: ").strip())
        status = process.wait()
    if status != 0:
        last = " | ".join(log.read_text(errors="replace").splitlines()[-8:])
        raise UnavailableError(f"the base root could not be made, see {log}: {last}")


def find_missing_packages() -> tuple[str, ...]:
    """Return the packages that this machine lacks."""
    missing = [package for package, program in _HOST_PACKAGES.items() if shutil.which(program) is None]
    return (*missing, *(() if ARCHIVE_KEYRING.exists() else (_KEYRING_PACKAGE,)))


def install_missing_packages(report: Callable[[str], None], missing: Sequence[str] | None = None) -> None:
    """
    Install packages with apt-get; UnavailableError names the remedy when it cannot.

    Default: the packages that the lab needs and this machine lacks.
    """
    missing = find_missing_packages() if missing is None else missing
    if not missing:
        return
    line = f"apt-get install --yes {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise UnavailableError(f"missing: {', '.join(missing)}; install them with this machine's package manager")
    if os.geteuid() != 0:
        raise UnavailableError(f"missing: {', '.join(missing)}; run: sudo {line}")
    report(f"installing on this machine: {' '.join(missing)}")
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
    if _apt_get(command).returncode == 0:
        return
    _apt_get(["apt-get", "update", "--quiet"])
    answer = _apt_get(command)
    if answer.returncode != 0:
        raise UnavailableError(f"missing: {', '.join(missing)}; run: {line}\n{answer.stderr.strip()[-400:]}")


def _apt_get(command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
