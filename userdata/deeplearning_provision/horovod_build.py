"""
Horovod as a wheel, built for the frameworks that jobs will import.

Only its source is published, of 2023; no image carries it built. Facts that decide here: its CMake sets the C++
standard itself and knows 14 at most, where the headers of PyTorch 2.1 and later ask for 17; its gloo does not pass
CMake 4; its setup.py imports pkg_resources, which setuptools 81 dropped.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_agent.programs import ProgramError, Programs
from deeplearning_provision.environment_interpreter import Interpreter
from deeplearning_provision.pip_program import COMPILER_REMEDY, Pip
from deeplearning_provision.steps import ProvisionFailure

SOURCES = {"0.28.1": "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"}
"""Version -> SHA-256 of its source on PyPI."""
NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4.0")
"""What Horovod imports; its setup.py would otherwise fetch them while it builds."""
TOOLS = ("setuptools<81", "wheel")
CMAKE = "cmake<4"
FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW", "mxnet": "MXNET"}
MPI_FOLDERS = ("/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin", "/usr/lib64/openmpi/bin")
"""Where images keep an MPI that is not in the `PATH` of services."""
MPI_COMPILER = "mpicxx"
CUDA_HOME = "/usr/local/cuda"
NCCL_HEADERS = ("/usr/local/cuda/include/nccl.h", "/usr/include/nccl.h", "/usr/local/nccl/include/nccl.h")
BYTES_A_JOB = 2 << 30
"""Of memory, for one compiler at PyTorch's headers."""
PROBE_SECONDS = 180
WRAPPER = """#!/bin/sh
# Horovod's CMake asks for C++14 at most; PyTorch's headers need C++17.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  case $word in -std=c++11 | -std=c++14 | -std=gnu++11 | -std=gnu++14) word=-std=c++17 ;; esac
  set -- "$@" "$word"
  count=$((count - 1))
done
exec g++ "$@"
"""
_ASK = """
import json, {module}
cuda = ""
if "{module}" == "torch":
    cuda = torch.version.cuda or ""
elif "{module}" == "tensorflow":
    cuda = str(tensorflow.sysconfig.get_build_info().get("cuda_version", ""))
else:
    cuda = "yes" if mxnet.runtime.Features().is_enabled("CUDA") else ""
print(json.dumps([{module}.__version__, cuda]))
"""


@dataclass(frozen=True)
class HorovodPlan:
    """
    How Horovod is built.

    Attributes:
        version: Of Horovod.
        frameworks: Framework -> version for which it is built.
        mpi: Folder of MPI's compiler; empty without MPI.
        is_cuda: Whether it moves GPU memory by NCCL.
        is_cxx17: Whether the compiler is told C++17.
        jobs: Compilers at the same time.
    """

    version: str
    frameworks: Mapping[str, str]
    mpi: str
    is_cuda: bool
    is_cxx17: bool
    jobs: int

    def variables(self, root: Path, wrapper: Path) -> dict[str, str]:
        """Return what Horovod's build reads."""
        asked = {name: module in self.frameworks for module, name in FRAMEWORKS.items()}
        asked |= {"GLOO": True, "MPI": bool(self.mpi)}
        values = {f"HOROVOD_WITH{'' if is_asked else 'OUT'}_{name}": "1" for name, is_asked in asked.items()}
        values |= {"MAKEFLAGS": f"-j{self.jobs}", "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
        if self.is_cxx17:
            values["CXX"] = str(wrapper)
        if self.mpi.startswith("/opt/"):  # The loader may not look there.
            library = Path(self.mpi).parent
            values["LDFLAGS"] = f"-Wl,-rpath,{library}/lib:{library}/lib64"
        if self.is_cuda:
            header = find_first(root, NCCL_HEADERS)
            values |= {"HOROVOD_GPU_OPERATIONS": "NCCL", "HOROVOD_CUDA_HOME": CUDA_HOME, "HOROVOD_NCCL_LINK": "SHARED"}
            values["HOROVOD_NCCL_HOME"] = str(Path(header).parents[1])
        return values

    def to_document(self) -> dict[str, object]:
        """Return it as JSON."""
        return asdict(self)


def find_mpi(root: Path, programs: Programs) -> str:
    """Return the folder of MPI's compiler; empty when there is none."""
    folders = [*programs.search_path.split(":"), *(f"{root}{folder}".replace("//", "/") for folder in MPI_FOLDERS)]
    return next((folder for folder in folders if os.access(f"{folder}/{MPI_COMPILER}", os.X_OK)), "")


def find_first(root: Path, paths: Sequence[str]) -> str:
    """Return the first path that the node has; empty when it has none."""
    return next((path for path in paths if (root / path.lstrip("/")).exists()), "")


def plan_horovod(
    version: str, interpreter: Interpreter, root: Path, programs: Programs, *, has_gpus: bool
) -> HorovodPlan:
    """
    Decide how Horovod is built.

    Args:
        version: Of Horovod.
        interpreter: Of the environment, with all its requirements.
        root: Where the node's file tree begins.
        programs: The node's programs.
        has_gpus: Whether the cluster's nodes have GPUs.

    Raises:
        ProvisionFailure: It cannot be built here; the message says what is missing.
    """
    if version not in SOURCES:
        raise ProvisionFailure(f"horovod must be one of {', '.join(SOURCES)}, got {version}", "set it to one of them")
    if not interpreter.frameworks:
        raise ProvisionFailure(
            "Horovod needs a framework to be built for: neither image nor requirements have torch, tensorflow or mxnet",
            "add one to the requirements, or leave horovod out",
        )
    found = {module: _ask_framework(module, interpreter, programs) for module in interpreter.frameworks}
    _check_compilers(interpreter, programs)
    is_cuda = has_gpus and any(cuda for _, cuda in found.values())
    if is_cuda:
        _check_cuda(root)
    return HorovodPlan(
        version,
        {module: number for module, (number, _) in found.items()},
        find_mpi(root, programs),
        is_cuda,
        needs_cxx17(found["torch"][0]) if "torch" in found else False,
        count_jobs(),
    )


def needs_cxx17(version: str) -> bool:
    """Tell whether the headers of a version of PyTorch ask for C++17: those of 2.1 and later."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is None or (int(found[1]), int(found[2])) >= (2, 1)


def count_jobs() -> int:
    """Return how many compilers the machine takes at once, by cores and memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // BYTES_A_JOB))


def build_horovod(pip: Pip, plan: HorovodPlan, folder: Path, scratch: Path, root: Path) -> None:
    """
    Build the wheel, in an environment that has the requirements and what Horovod imports.

    Effects: setuptools, wheel and, where the node has no cmake, cmake in the environment of `pip`.

    Args:
        pip: Of that environment.
        plan: How.
        folder: Where the wheel goes.
        scratch: Where notes are kept.
        root: Where the node's file tree begins.

    Raises:
        ProvisionFailure: pip failed.
    """
    tools = [*TOOLS, *([] if pip.programs.has("cmake") else [CMAKE])]
    pip.run("install", *tools)
    wrapper = scratch / "g++17"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    requirement = scratch / "horovod.txt"
    requirement.write_text(f"horovod=={plan.version} --hash=sha256:{SOURCES[plan.version]}\n")
    path = [str(pip.python.parent), *([plan.mpi] if plan.mpi else []), pip.programs.search_path]
    # Not from pip's cache, whose wheel may be another framework's; without isolation, to see the framework.
    options = ("--no-cache-dir", "--no-build-isolation", "--no-deps", "--no-binary", "horovod")
    pip.run(
        *("wheel", *options, "--wheel-dir", str(folder), "--requirement", str(requirement)),
        environment=plan.variables(root, wrapper),
        programs=Programs(":".join(path)),
    )


def _ask_framework(module: str, interpreter: Interpreter, programs: Programs) -> tuple[str, str]:
    """Import a framework; return its version and the CUDA that it is built for."""
    try:
        output = programs.run(
            [str(interpreter.program), "-I", "-c", _ASK.format(module=module)], timeout_seconds=PROBE_SECONDS
        )
        version, cuda = json.loads(output.strip().splitlines()[-1])
    except (ProgramError, ValueError, IndexError) as error:
        raise ProvisionFailure(
            f"{module} cannot be imported", "correct the requirements", output=getattr(error, "output", "")
        ) from error
    return str(version), str(cuda)


def _check_compilers(interpreter: Interpreter, programs: Programs) -> None:
    missing = [program for program in ("g++", "make") if not programs.has(program)]
    if "torch" in interpreter.frameworks and not (Path(interpreter.headers) / "Python.h").exists():
        missing.append(f"Python.h of {interpreter.version}")
    if missing:
        raise ProvisionFailure(f"Horovod cannot be built without {', '.join(missing)}", COMPILER_REMEDY)


def _check_cuda(root: Path) -> None:
    wanted = {"CUDA's compiler": (f"{CUDA_HOME}/bin/nvcc",), "NCCL's headers": NCCL_HEADERS}
    missing = [what for what, paths in wanted.items() if not find_first(root, paths)]
    if missing:
        raise ProvisionFailure(
            f"Horovod cannot move GPU memory without {' and '.join(missing)}, looked for below {CUDA_HOME} and /usr",
            "give a deep learning image, which has them, or leave horovod out and use torchrun",
        )
