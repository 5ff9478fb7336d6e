"""Python of the image for jobs, and its packages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.setting_parts import LEAST_PYTHON, SYSTEM_PYTHON
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.python.pip import read_version
from deeplearning_provision.steps import ProvisionFailure

FRAMEWORK_PYTHON = "/opt/pytorch/bin/python"
"""Python of the PyTorch deep learning images, which have PyTorch in a virtual environment."""
PROBE_SECONDS = 120
BROKEN = "use an image whose Python runs"

# Imports no framework: that takes seconds and initializes a GPU.
_PROBE = """
import glob, importlib.metadata, importlib.util, json, os, site, sys, sysconfig
NAMES = {
    "torch": ["torch"],
    "tensorflow": ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"],
    "mxnet": ["mxnet", "mxnet-cu112", "mxnet-cu117"],
}
def find_version(names):
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "unknown"
found = importlib.util.find_spec("horovod")
folder = os.path.dirname(found.origin) if found and found.origin else "/nowhere"
try:
    import pip
    pip_version = pip.__version__
except ImportError:
    pip_version = ""
try:
    with open(sys.prefix + "/pyvenv.cfg") as file:
        has_system_packages = "include-system-site-packages=true" in file.read().lower().replace(" ", "")
except OSError:
    has_system_packages = True
print(json.dumps({
    "version": sys.version.split()[0],
    "platform": sysconfig.get_platform(),
    "packages": list(dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])),
    "headers": sysconfig.get_path("include"),
    "is_virtual": sys.prefix != sys.base_prefix,
    "has_system_packages": has_system_packages,
    "pip": pip_version,
    "has_venv": importlib.util.find_spec("venv") is not None,
    "has_ensurepip": importlib.util.find_spec("ensurepip") is not None,
    "horovod": [module for module in sorted(NAMES) if glob.glob(os.path.join(folder, module, "mpi_lib*.so"))],
    "frameworks": {
        module: find_version(names) for module, names in NAMES.items() if importlib.util.find_spec(module)
    },
}))
"""


@dataclass(frozen=True)
class Interpreter:
    path: str  # On the node
    program: Path  # The same below the root of a test
    version: str  # Such as `3.12.3`
    platform: str  # Such as `linux-x86_64`
    packages: tuple[str, ...]  # Folders
    headers: str  # Folder of `Python.h`
    is_virtual: bool
    has_system_packages: bool  # Whether the system's packages are visible
    pip: str  # Version; empty for none
    has_venv: bool
    has_ensurepip: bool  # A separate package on Debian and Ubuntu
    horovod: tuple[str, ...]  # Frameworks for which it has a Horovod, each with a library `mpi_lib*.so`
    frameworks: Mapping[str, str]  # Framework -> version; `torch`, `tensorflow`, `mxnet`


def find_interpreter(root: Path, programs: Programs, own: str = SYSTEM_PYTHON) -> Interpreter:
    """Return the interpreter for jobs: the framework's, else the image's `own`, else the system's."""
    paths = tuple(dict.fromkeys((FRAMEWORK_PYTHON, own, SYSTEM_PYTHON)))
    for path in paths:
        program = root / path.lstrip("/")
        if program.exists():
            found = ask_interpreter(program, programs, path)
            _check_version(found, paths)
            return found
    raise ProvisionFailure(
        f"the image has none of {', '.join(paths)}", "use an image with Python, or a conda file or a container"
    )


def _check_version(found: Interpreter, paths: tuple[str, ...]) -> None:
    if read_version(found.version) >= LEAST_PYTHON:
        return
    absent = paths[: paths.index(found.path)]
    beside = f", and the image has no {' and no '.join(absent)}" if absent else ""
    least = ".".join(map(str, LEAST_PYTHON))
    raise ProvisionFailure(
        f"the Python of jobs must be {least} or later, as PyTorch 2.9 and later need, got {found.version} of "
        f"{found.path}{beside}",
        f"use an image with Python {least} or later and name it as the image's interpreter, or take a conda file or a "
        "container",
    )


def ask_interpreter(program: Path, programs: Programs, path: str = "") -> Interpreter:
    """Return the facts of an interpreter, without a user's own packages; `path` defaults to that of `program`."""
    try:
        output = programs.run([str(program), "-I", "-c", _PROBE], timeout_seconds=PROBE_SECONDS)
        found = json.loads(output.strip().splitlines()[-1])
    except ProgramError as error:
        raise ProvisionFailure(f"{program} does not run: {error}", BROKEN, output=error.output) from error
    except (ValueError, IndexError) as error:
        raise ProvisionFailure(f"{program} must print JSON, got {output.strip()[-200:]!r}", BROKEN) from error
    lists = {name: tuple(found[name]) for name in ("packages", "horovod")}
    return Interpreter(path or str(program), program, **{**found, **lists})
