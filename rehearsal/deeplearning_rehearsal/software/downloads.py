"""Downloads of the host with pip: Horovod's source, packages of environments, and the digits that jobs train on."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import NODE_PYTHON
from deeplearning_contract.setting_parts import EnvironmentSettings, decode_requirements
from deeplearning_rehearsal.template import TORCH, choose_framework

HOROVOD_VERSION = "0.28.1"
HOROVOD = "horovod==0.28.1 --hash=sha256:92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"
"""The one package that comes as a source; its setup.py imports pkg_resources, hence the constraint."""

HOROVOD_NEEDS = (
    *("numpy", "cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4.0", "pycparser"),
    *("setuptools<81", "wheel", "cmake<4"),
)
"""Imports of Horovod and programs that build it on a node; its collectives of objects go through NumPy."""

_CPU = "+cpu"
"""The local version of PyTorch's builds for the CPU."""

_BUILD_CONSTRAINT = "setuptools<81"
_GLIBC = 36
_OLDEST_GLIBC = 5
_OLD_NAMES = ("manylinux2014", "manylinux2010", "manylinux1")
_FETCHED = re.compile(r"^\s*Downloading (?:\S*/)?([^/\s]+\.whl)(?:\.metadata)? \(([^)]*)\)")
DIGITS = "digits.csv.gz"
_DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
_DIGITS_MEMBER = f"sklearn/datasets/data/{DIGITS}"
"""A file of scikit-learn's wheel, so that no node needs scikit-learn."""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def prepare_digits(cache: Path, report: Callable[[str], None]) -> Path:
    """Return the file of digits, downloaded when the cache does not hold it; UnavailableError when that fails."""

    def fill(work: Path) -> Path:
        report("downloading scikit-learn's wheel for its digits (9 MB), once")
        command = [*_PIP, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(work)]
        answer = subprocess.run([*command, "scikit-learn"], capture_output=True, text=True, check=False)
        wheels = list(work.glob("*.whl"))
        if answer.returncode != 0 or len(wheels) != 1:
            raise UnavailableError(f"scikit-learn's digits could not be downloaded: {answer.stderr.strip()[-600:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            content = wheel.read(_DIGITS_MEMBER)
        if (found := hashlib.sha256(content).hexdigest()) != _DIGITS_SHA256:
            raise UnavailableError(
                f"SHA-256 of {_DIGITS_MEMBER} must be {_DIGITS_SHA256}, got {found} in {wheels[0].name}"
            )
        folder = work / "digits"
        folder.mkdir()
        (folder / DIGITS).write_bytes(content)
        return folder

    return fill_once(cache, f"digits-{_DIGITS_SHA256[:16]}", fill, report) / DIGITS


def prepare_packages(cache: Path, requirements: Path, report: Callable[[str], None]) -> Path:
    """
    Return a folder with the wheels of an environment's requirements, downloaded when the cache does not hold them.

    They are for the nodes' Python, whatever the host's is. A file with hashes is taken to name every package; else pip
    adds what the named ones need. UnavailableError ends with pip's message.
    """

    def fill(folder: Path) -> None:
        report(f"downloading the packages of {requirements.name} for Python {NODE_PYTHON}, once")
        _download_wheels(requirements, folder, report)

    return _prepare(cache, (requirements.read_bytes(), _platforms()), fill, report)


def prepare_horovod(cache: Path, framework: str, horovod: str, report: Callable[[str], None]) -> Path:
    """
    Return a folder with a framework, Horovod's source and what builds it, downloaded when the cache does not hold them.

    The framework is a requirement such as `torch==2.13.0`, or empty for none. PyTorch is its build for the CPU: the one
    with CUDA is too large for the nodes' disks, which are in memory. UnavailableError ends with pip's message.
    """
    if horovod != HOROVOD_VERSION:
        raise UnavailableError(f"environment's horovod must be {HOROVOD_VERSION} in the rehearsal, got {horovod}")

    def fill(folder: Path) -> None:
        report(f"downloading {framework or 'what builds Horovod'} for Python {NODE_PYTHON}, once")
        _download_framework(framework, folder, report)
        report("downloading Horovod's source (3.5 MB)")
        _download_horovod(folder)

    return _prepare(cache, (framework, HOROVOD, HOROVOD_NEEDS, _platforms()), fill, report)


def _prepare(cache: Path, recipe: object, fill: Callable[[Path], None], report: Callable[[str], None]) -> Path:
    def fill_folder(work: Path) -> Path:
        folder = work / "packages"
        folder.mkdir()
        fill(folder)
        size = sum(path.stat().st_size for path in folder.iterdir())
        report(f"{len(list(folder.iterdir()))} packages of the environment are here, {size / 1e6:.0f} MB")
        return folder

    return fill_once(cache, f"packages-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}", fill_folder, report)


def _download_horovod(folder: Path) -> Path:
    """Let pip fetch Horovod's source from the index that this machine uses, and check its hash."""
    requirement, constraint = folder / "horovod.txt", folder / "constraint.txt"
    requirement.write_text(HOROVOD + "\n")
    constraint.write_text(_BUILD_CONSTRAINT + "\n")
    command = [*_PIP, "download", "--quiet", "--no-deps", "--no-binary", "horovod"]
    command += ["--dest", str(folder), "--requirement", str(requirement)]
    environment = os.environ | {"PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    for path in (requirement, constraint):
        path.unlink()
    sources = list(folder.glob("horovod-*.tar.gz"))
    if answer.returncode != 0 or len(sources) != 1:
        raise UnavailableError(f"Horovod's source could not be downloaded: {answer.stderr.strip()[-600:]}")
    return sources[0]


def prepare_packages_of(
    environment: EnvironmentSettings, find_file: Callable[[], Path], cache: Path, report: Callable[[str], None]
) -> tuple[Path, ...]:
    """Return the folders with the packages of an environment; `find_file` finds its requirements."""
    if environment.kind == "horovod":
        return (prepare_horovod(cache, choose_framework(environment.framework) or TORCH, environment.horovod, report),)
    wheels = prepare_packages(cache, find_file(), report)
    return (wheels, prepare_horovod(cache, "", environment.horovod, report)) if environment.horovod else (wheels,)


def _download_framework(framework: str, folder: Path, report: Callable[[str], None]) -> None:
    """Download a framework and what builds Horovod together, so that their versions go with one another."""
    requirements = folder / "framework.txt"
    is_torch = framework.startswith("torch==") and "+" not in framework
    wanted = f"{framework}{_CPU}" if is_torch else framework
    requirements.write_text("".join(f"{line}\n" for line in (wanted, *HOROVOD_NEEDS) if line))
    try:
        _download_wheels(requirements, folder, report)
    except UnavailableError as error:
        if is_torch and wanted in str(error):
            raise UnavailableError(
                f"pip must know an index with PyTorch for the CPU, got no {wanted}; set PIP_EXTRA_INDEX_URL to the "
                f"index that pytorch.org/get-started/locally shows for Linux, Pip and CPU: {error}"
            ) from error
        raise
    requirements.unlink()


def _download_wheels(requirements: Path, folder: Path, report: Callable[[str], None]) -> None:
    command = [*_PIP, "download", "--progress-bar", "off", "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", NODE_PYTHON, *(f"--platform={name}" for name in _platforms())]
    command += ["--no-deps", "--require-hashes"] if _has_hashes(requirements) else []
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    status, last = _follow(command, report)
    if status != 0:
        raise UnavailableError(f"the packages of {requirements.name} could not be downloaded: {last}")


def _follow(command: Sequence[str], report: Callable[[str], None]) -> tuple[int, str]:
    """Run pip, pass on what it downloads, and return its status and last lines."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout or ():
        lines.append(line.strip())
        if (match := _FETCHED.match(line)) and ".metadata" not in line:
            report(f"downloading {match[1]} ({match[2]})")
    return process.wait(), " | ".join(lines[-4:])[-600:]


def _has_hashes(requirements: Path) -> bool:
    return "--hash" in decode_requirements(requirements.read_bytes())


def _platforms() -> tuple[str, ...]:
    """Return the names of the platforms whose wheels run on the nodes, the newest first."""
    machine = os.uname().machine
    glibc = (f"manylinux_2_{minor}_{machine}" for minor in range(_GLIBC, _OLDEST_GLIBC - 1, -1))
    return (*glibc, *(f"{name}_{machine}" for name in _OLD_NAMES))
