"""The Python of the image in which jobs run, and what its packages are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.steps import ProvisionFailure

INTERPRETERS = ("/opt/pytorch/bin/python", "/usr/bin/python3")
"""
Where an image keeps the Python of jobs, the best first.

The PyTorch deep learning images keep PyTorch in a virtual environment of their own and nothing in the system's Python;
base images and plain ones have the system's alone.
"""
PROBE_SECONDS = 120
BROKEN = "give an image whose Python runs"

# Asked without importing a framework, which takes seconds and a GPU's attention.
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
    path: str  # Where the node has it
    program: Path  # Where it really lies; the same but for tests
    version: str  # Such as `3.12.3`
    platform: str  # Such as `linux-x86_64`
    packages: tuple[str, ...]  # Its folders of packages
    headers: str  # The folder of `Python.h`
    is_virtual: bool  # Whether it belongs to a virtual environment itself
    has_system_packages: bool  # Whether the system's packages are visible to it
    pip: str  # Version of its pip; empty when it has none
    has_venv: bool  # Whether it can make virtual environments
    has_ensurepip: bool  # Whether it can give them a pip; Debian and Ubuntu keep that in a package of its own
    horovod: tuple[str, ...]  # Frameworks for which it has a Horovod: each has a library of its own, `mpi_lib*.so`
    frameworks: Mapping[str, str]  # Framework -> version; `torch`, `tensorflow`, `mxnet`


def find_interpreter(root: Path, programs: Programs) -> Interpreter:
    """Return the image's interpreter for jobs; ProvisionFailure when there is none, or it does not run."""
    for path in INTERPRETERS:
        program = root / path.lstrip("/")
        if program.exists():
            return ask_interpreter(program, programs, path)
    raise ProvisionFailure(
        f"the image has none of {', '.join(INTERPRETERS)}", "give an image with Python, or a conda file or a container"
    )


def ask_interpreter(program: Path, programs: Programs, path: str = "") -> Interpreter:
    """
    Read the facts of an interpreter; a user's own packages do not count, since other nodes lack them.

    `path` is where the node has it; default: where it lies.
    """
    try:
        output = programs.run([str(program), "-I", "-c", _PROBE], timeout_seconds=PROBE_SECONDS)
        found = json.loads(output.strip().splitlines()[-1])
    except ProgramError as error:
        raise ProvisionFailure(f"{program} does not run: {error}", BROKEN, output=error.output) from error
    except (ValueError, IndexError) as error:
        raise ProvisionFailure(f"{program} does not say what it is: {output.strip()[-200:]!r}", BROKEN) from error
    lists = {name: tuple(found[name]) for name in ("packages", "horovod")}
    return Interpreter(path or str(program), program, **{**found, **lists})
