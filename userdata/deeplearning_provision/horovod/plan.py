"""
Plan of Horovod's build on a node: its frameworks, transports and compilers.

Horovod is published only as source, last in 2023, and no image has a build of it. Its CMake sets C++14 at most, but
the headers of PyTorch 2.1 and later need C++17; its gloo fails with CMake 4.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.horovod.cuda_toolkit import CudaToolkit, choose_toolkit, read_nvcc_version
from deeplearning_provision.horovod.framework_facts import Framework, ask_framework, check_architecture
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.python.pip import read_version, suggest_compilers
from deeplearning_provision.steps import ProvisionFailure

HOROVOD_RECIPE = 2
"""Version of the build itself; a change makes another environment."""
SOURCES = {"0.28.1": "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"}
"""Version -> SHA-256 of its source on PyPI."""
FRAMEWORKS = {"torch": "PYTORCH", "tensorflow": "TENSORFLOW", "mxnet": "MXNET"}
MPI_FOLDERS = ("/opt/amazon/openmpi/bin", "/opt/amazon/openmpi5/bin", "/usr/lib64/openmpi/bin")
"""Folders of images that are not in the `PATH` of services."""
MPI_COMPILER = "mpicxx"
COMPILER = "g++"
STANDARDS = {"torch": (((2, 14), "20"), ((2, 1), "17")), "tensorflow": (((2, 10), "17"),)}
"""
Framework -> pairs of its version and the C++ standard that its headers need from that version on.

PyTorch's is its `CMAKE_CXX_STANDARD`, TensorFlow's for 2.10 that of Horovod's CMake; 2.15.1 compiles with it.
"""
SPAN_STANDARD = "20"
STRICT_COMPILER = 14
"""
First g++ that rejects the `span` of Horovod's flatbuffers, which assigns to a constant (google/flatbuffers, pull
request 7227). From C++20 on, flatbuffers uses the standard library's.
"""
LAST_TENSORFLOW = (2, 18)
"""Last TensorFlow for Horovod 0.28.1, which compiles with 2.15.1, 2.16.2 and 2.18.1; 2.20.0 moved `xla_builder.h`."""
BYTES_A_JOB = 2 << 30
"""Memory of one compiler with PyTorch's headers."""
NEWEST = (9999, 0)
"""Stands for a version that is no number."""
PROBE_SECONDS = 180


@dataclass(frozen=True)
class HorovodPlan:
    version: str
    frameworks: Mapping[str, str]  # Framework -> version
    skipped: Mapping[str, str]  # Framework of the image -> reason to skip it
    mpi: str  # Folder of MPI's compiler; empty without MPI
    toolkit: CudaToolkit | None  # None for CPUs
    standard: str  # C++ standard, `17` or `20`; empty for Horovod's own choice
    jobs: int  # Concurrent compilers

    @property
    def compiler(self) -> str:
        return self.toolkit.compiler if self.toolkit else COMPILER


def find_mpi(root: Path, programs: Programs) -> str:
    """Return the folder of an MPI compiler with mpi.h, a separate package on Debian; empty without one."""
    folders = [*programs.search_path.split(":"), *(str(root / folder.lstrip("/")) for folder in MPI_FOLDERS)]
    for folder in dict.fromkeys(folders):
        with contextlib.suppress(ProgramError):
            compiler = f"{folder}/{MPI_COMPILER}"
            programs.run([compiler, "-E", "-x", "c++", "-include", "mpi.h", "/dev/null"], timeout_seconds=PROBE_SECONDS)
            return folder
    return ""


def describe_compilers(root: Path, programs: Programs) -> dict[str, str]:
    """Return the versions of `g++` and of the image's `nvcc`, if the node has them."""
    found = {"nvcc": read_nvcc_version(root, programs)}
    with contextlib.suppress(ProgramError):
        output = programs.run([COMPILER, "-dumpfullversion", "-dumpversion"], timeout_seconds=PROBE_SECONDS)
        found[COMPILER] = output.strip()
    return {name: version for name, version in sorted(found.items()) if version}


def plan_horovod(
    version: str, interpreter: Interpreter, root: Path, programs: Programs, *, capability: str
) -> HorovodPlan:
    """
    Plan the build for an interpreter that has all requirements.

    `capability` is the compute capability of the cluster's GPUs, such as `7.0`; empty without GPUs.
    """
    if version not in SOURCES:
        raise ProvisionFailure(f"horovod must be one of {', '.join(SOURCES)}, got {version}", "set it to one of them")
    if not interpreter.frameworks:
        raise ProvisionFailure(
            "Horovod needs a framework: neither image nor requirements have torch, tensorflow or mxnet",
            "add one to the requirements, or leave horovod out",
        )
    asked = {module: ask_framework(module, interpreter, programs) for module in interpreter.frameworks}
    for module, framework in asked.items():
        check_architecture(module, framework, capability)
    _check_compilers(interpreter, programs)
    skipped = {module: why for module, framework in asked.items() if (why := _find_obstacle(module, framework))}
    found = {module: framework for module, framework in asked.items() if module not in skipped}
    if not found:
        raise ProvisionFailure(
            f"Horovod cannot be built: {', '.join(f'{module}: {why}' for module, why in skipped.items())}",
            "on Debian, add libtorch-dev and pybind11-dev for torch; pin tensorflow<2.19",
        )
    versions = {module: framework.version for module, framework in found.items()}
    module = next((module for module, framework in found.items() if capability and framework.cuda), "")
    toolkit = choose_toolkit(module, found[module], root, programs, capability) if module else None
    standard = choose_standard(versions, _read_compiler(toolkit.compiler if toolkit else COMPILER, programs))
    return HorovodPlan(version, versions, skipped, find_mpi(root, programs), toolkit, standard, count_jobs())


def choose_standard(frameworks: Mapping[str, str], compiler: int) -> str:
    """Return the C++ standard that the headers and the compiler need; empty for Horovod's own choice."""
    wanted = [
        standard
        for module, version in frameworks.items()
        for least, standard in STANDARDS.get(module, ())
        if read_version(version, NEWEST) >= least
    ]
    return max([*wanted, SPAN_STANDARD if compiler >= STRICT_COMPILER else ""])


def _read_compiler(compiler: str, programs: Programs) -> int:
    """Return the major version of a g++; 0 when it is unknown."""
    with contextlib.suppress(ProgramError, ValueError):
        return int(programs.run([compiler, "-dumpversion"], timeout_seconds=PROBE_SECONDS).partition(".")[0])
    return 0


def count_jobs() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // BYTES_A_JOB))


def _find_obstacle(module: str, framework: Framework) -> str:
    if module == "tensorflow" and read_version(framework.version, NEWEST) > LAST_TENSORFLOW:
        return f"Horovod does not compile with the headers of {framework.version}"
    return f"{framework.missing} is missing" if framework.missing else ""


def _check_compilers(interpreter: Interpreter, programs: Programs) -> None:
    missing = [program for program in (COMPILER, "make") if not programs.has(program)]
    if missing:
        raise ProvisionFailure(
            f"Horovod cannot be built without {', '.join(missing)}", suggest_compilers(interpreter.version)
        )
    if "torch" in interpreter.frameworks:
        check_headers(interpreter)


def check_headers(interpreter: Interpreter) -> None:
    """Refuse a Python without its headers; those of another version do not serve it."""
    if not (Path(interpreter.headers) / "Python.h").exists():
        raise ProvisionFailure(
            f"Horovod cannot be built without Python.h of {interpreter.version} in {interpreter.headers}",
            suggest_compilers(interpreter.version),
        )
