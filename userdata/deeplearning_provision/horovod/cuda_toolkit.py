"""
CUDA toolkit for the build of Horovod: the image's, NVIDIA's from PyPI, or Ubuntu's.

Its major version must be that of the framework's CUDA; the framework's wheels contain the runtime and NCCL. PyPI has
nvcc for CUDA 13 and later; its package of that name for CUDA 12 has only ptxas.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.horovod.framework_facts import Framework
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.system_packages import read_system

IMAGE, PYPI, UBUNTU = "image", "pypi", "ubuntu"
CUDA_HOME = "/usr/local/cuda"
NCCL_HEADERS = (f"{CUDA_HOME}/include", "/usr/include", "/usr/local/nccl/include")
PYPI_MAJOR = 13
"""First major version of CUDA with nvcc on PyPI."""
PYPI_PACKAGES = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]"
"""
Packages with each part of the compiler by name: in 13.0.2 the extra `nvcc` pins only nvcc, whose package installs the
newest of the others, and their PTX is too new for its ptxas. CUDA's `cuda_fp16.h` includes `nv/target` of cccl.
"""
UBUNTU_COMPILER = "g++-12"
"""Newest compiler that nvcc 12.0 supports."""
UBUNTU_RELEASE = "ubuntu 24.04"
UBUNTU_NVCC = "12.0"
UBUNTU_PACKAGE = "nvidia-cuda-toolkit"
"""Package of Ubuntu 24.04 (multiverse): nvcc 12.0 and its tools, 86 MB; its dependencies, 5.6 GB, are not needed."""
UBUNTU_HEADERS = (
    "nvidia-cuda-runtime-cu12==12.0.146",
    "nvidia-cuda-nvcc-cu12==12.0.140",
    "nvidia-cuda-cccl-cu12==12.6.77",
)
"""Headers of that nvcc, from PyPI; its first release of the third package is later."""
ARCHITECTURES: Mapping[int, tuple[str, ...]] = {12: ("70", "75", "80", "86", "90"), 13: ("75", "80", "86", "90")}
"""
CUDA's major version -> compute capabilities of Horovod's kernels.

CUDA 13 does not support Volta. Horovod's build adds PTX of the last one, which later GPUs compile.
"""
VERSION_SECONDS = 60


@dataclass(frozen=True)
class CudaToolkit:
    """Toolkit for Horovod's kernels, and the libraries to link them with."""

    kind: str  # `image`, `pypi` or `ubuntu`
    cuda: str  # CUDA version of the framework
    requirements: tuple[str, ...]  # Requirements of pip
    compiler: str  # The C++ compiler that nvcc accepts
    architectures: tuple[str, ...]  # Compute capabilities of the kernels
    nccl_headers: str  # Folder of nccl.h
    nccl: str  # NCCL's library in the framework's wheels; empty for the image's own
    runtime: str  # CUDA's runtime library in the framework's wheels; empty for the image's own


def choose_toolkit(name: str, framework: Framework, root: Path, programs: Programs, capability: str) -> CudaToolkit:
    """Return the toolkit for a framework with CUDA and the compute capability of the cluster's GPUs."""
    headers, nccl, runtime = (
        _find(framework, pattern) for pattern in ("nccl/include/nccl.h", "*/lib/libnccl.so*", "*/lib/libcudart.so*")
    )
    folder = str(Path(headers).parent) if headers else ""
    own_folder = next((path for path in NCCL_HEADERS if (root / path.lstrip("/") / "nccl.h").exists()), "")
    compiled = read_nvcc_version(root, programs)
    architectures = _list_architectures(framework, capability)
    if compiled and framework.cuda_major in (0, int(compiled.partition(".")[0])) and ((headers and nccl) or own_folder):
        libraries = (folder, nccl, "") if headers and nccl else (own_folder, "", "")
        return CudaToolkit(IMAGE, framework.cuda, (), "g++", architectures, *libraries)
    if not (headers and nccl and runtime):
        raise ProvisionFailure(
            f"Horovod cannot use GPU memory: {name} {framework.version} brings no CUDA runtime and NCCL of its own, "
            f"nvcc in {CUDA_HOME} is {compiled or 'missing'} and nccl.h of the image is {own_folder or 'missing'}",
            "install the framework from PyPI with its packages of CUDA, as torch==2.7.1 and "
            "tensorflow[and-cuda]==2.15.1 bring them, or leave horovod out and use torchrun",
        )
    kind, requirements, compiler = _choose_source(name, framework, root, compiled)
    return CudaToolkit(kind, framework.cuda, requirements, compiler, architectures, folder, nccl, runtime)


def _choose_source(name: str, framework: Framework, root: Path, compiled: str) -> tuple[str, tuple[str, ...], str]:
    if framework.cuda_major >= PYPI_MAJOR:
        return PYPI, (f"{PYPI_PACKAGES}{_read_pin(framework)}",), "g++"
    if UBUNTU_NVCC.startswith(f"{framework.cuda_major}.") and read_system(root) == UBUNTU_RELEASE:
        return UBUNTU, UBUNTU_HEADERS, UBUNTU_COMPILER
    raise ProvisionFailure(
        f"Horovod cannot use GPU memory: no nvcc for CUDA {framework.cuda} of {name} {framework.version}; {CUDA_HOME} "
        f"has {compiled or 'none'}, PyPI has {PYPI_MAJOR} and later, Ubuntu 24.04 has {UBUNTU_NVCC}",
        f"use an image with CUDA {framework.cuda_major or 12} in {CUDA_HOME}, or Ubuntu 24.04 for CUDA 12, or pin a "
        f"torch for CUDA {PYPI_MAJOR} where the GPUs have compute capability 7.5 or more",
    )


def read_nvcc_version(root: Path, programs: Programs) -> str:
    """Return the version of the image's nvcc, such as `12.6`; empty when none runs."""
    path = root / CUDA_HOME.lstrip("/") / "bin" / "nvcc"
    if not path.exists():
        return ""
    with contextlib.suppress(ProgramError):
        return parse_nvcc_version(programs.run([str(path), "--version"], timeout_seconds=VERSION_SECONDS))
    return ""


def parse_nvcc_version(output: str) -> str:
    """Return the version in the output of `nvcc --version`; empty when it has none."""
    found = re.search(r"release (\d+\.\d+)", output)
    return found[1] if found else ""


def _list_architectures(framework: Framework, capability: str) -> tuple[str, ...]:
    """Return the default list, which runs on all later GPUs, preceded by the capability of an older one."""
    known = ARCHITECTURES[12 if framework.cuda_major < PYPI_MAJOR else PYPI_MAJOR]
    own = capability.replace(".", "")
    return (own, *known) if own and int(own) < int(known[0]) else known


def _read_pin(framework: Framework) -> str:
    """Return the release of CUDA's packages that the framework pins; others have headers of another runtime."""
    found = re.search(r"==\s*([\w.*]+)", framework.toolkit)
    return f"=={found[1]}" if found else f"=={framework.cuda}.*"


def _find(framework: Framework, pattern: str) -> str:
    return next((str(path) for folder in framework.nvidia for path in sorted(Path(folder).glob(pattern))), "")
