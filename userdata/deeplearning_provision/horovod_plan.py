"""
How Horovod is built on a node: for which frameworks, with which transports and compilers.

Only its source is published, of 2023; no image carries it built. Its CMake sets the C++ standard itself and knows 14 at
most, where the headers of PyTorch 2.1 and later ask for 17; its gloo does not pass CMake 4.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_agent.programs import ProgramError, Programs
from deeplearning_provision.environment_interpreter import Interpreter
from deeplearning_provision.pip_program import COMPILER_REMEDY
from deeplearning_provision.steps import ProvisionFailure

SOURCES = {"0.28.1": "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"}
"""Version -> SHA-256 of its source on PyPI."""
FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW", "mxnet": "MXNET"}
MPI_FOLDERS = ("/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin", "/usr/lib64/openmpi/bin")
"""Where images keep an MPI that is not in the `PATH` of services."""
MPI_COMPILER = "mpicxx"
CUDA_HOME = "/usr/local/cuda"
NCCL_HEADERS = ("/usr/local/cuda/include/nccl.h", "/usr/include/nccl.h", "/usr/local/nccl/include/nccl.h")
BYTES_A_JOB = 2 << 30
"""Of memory, for one compiler at PyTorch's headers."""
PROBE_SECONDS = 180
# Debian packages PyTorch's headers apart, and pybind11's, which others carry in PyTorch's own folder.
_ASK = """
import json, os, {module}
cuda, missing = "", ""
if "{module}" == "torch":
    cuda = torch.version.cuda or ""
    own = os.path.join(os.path.dirname(torch.__file__), "include")
    folders = [own, os.path.join(own, "torch", "csrc", "api", "include"), "/usr/include"]
    names = ["torch/extension.h", "pybind11/pybind11.h"]
    missing = ", ".join(n for n in names if not any(os.path.exists(os.path.join(f, n)) for f in folders))
elif "{module}" == "tensorflow":
    cuda = str(tensorflow.sysconfig.get_build_info().get("cuda_version", ""))
else:
    cuda = "yes" if mxnet.runtime.Features().is_enabled("CUDA") else ""
print(json.dumps([{module}.__version__, cuda, missing]))
"""


@dataclass(frozen=True)
class HorovodPlan:
    """
    How Horovod is built.

    Attributes:
        version: Of Horovod.
        frameworks: Framework -> version for which it is built.
        skipped: Framework -> why it is not built for one that is there.
        mpi: Folder of MPI's compiler; empty without MPI.
        is_cuda: Whether it moves GPU memory by NCCL.
        is_cxx17: Whether the compiler is told C++17.
        jobs: Compilers at the same time.
    """

    version: str
    frameworks: Mapping[str, str]
    skipped: Mapping[str, str]
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
    """Return the folder of an MPI compiler that finds mpi.h, which Debian packages apart; empty when there is none."""
    folders = [*programs.search_path.split(":"), *(str(root / folder.lstrip("/")) for folder in MPI_FOLDERS)]
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(ProgramError):
            compiler = f"{folder}/{MPI_COMPILER}"
            programs.run([compiler, "-E", "-x", "c++", "-include", "mpi.h", "/dev/null"], timeout_seconds=PROBE_SECONDS)
            return folder
    return ""


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
    asked = {module: _ask_framework(module, interpreter, programs) for module in interpreter.frameworks}
    _check_compilers(interpreter, programs)
    found = {module: answer for module, answer in asked.items() if not answer.missing}
    skipped = {module: f"{answer.missing} is missing" for module, answer in asked.items() if answer.missing}
    if not found:
        raise ProvisionFailure(f"Horovod cannot be built: {skipped}", "on Debian, add libtorch-dev and pybind11-dev")
    is_cuda = has_gpus and any(answer.cuda for answer in found.values())
    if is_cuda:
        _check_cuda(root)
    return HorovodPlan(
        version,
        {module: answer.version for module, answer in found.items()},
        skipped,
        find_mpi(root, programs),
        is_cuda,
        needs_cxx17(found["torch"].version) if "torch" in found else False,
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


@dataclass(frozen=True)
class Framework:
    """A framework as it says itself: its version, the CUDA that it is built for, and headers that it lacks."""

    version: str
    cuda: str
    missing: str


def _ask_framework(module: str, interpreter: Interpreter, programs: Programs) -> Framework:
    try:
        output = programs.run(
            [str(interpreter.program), "-I", "-c", _ASK.format(module=module)], timeout_seconds=PROBE_SECONDS
        )
        return Framework(*map(str, json.loads(output.strip().splitlines()[-1])))
    except (ProgramError, ValueError, IndexError) as error:
        raise ProvisionFailure(
            f"{module} cannot be imported", "correct the requirements", output=getattr(error, "output", "")
        ) from error


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
