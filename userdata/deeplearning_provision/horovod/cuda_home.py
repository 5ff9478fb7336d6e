"""
CUDA home of one build: nvcc of PyPI or of Ubuntu's package, with the framework's own runtime and NCCL.

A build needs 100 MB of the several gigabytes that a whole toolkit would install on the node.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

from deeplearning_node.programs import ProgramError
from deeplearning_provision.horovod.cuda_toolkit import (
    CUDA_HOME,
    IMAGE,
    PYPI,
    UBUNTU_COMPILER,
    UBUNTU_NVCC,
    UBUNTU_PACKAGE,
    VERSION_SECONDS,
    CudaToolkit,
    parse_nvcc_version,
)
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.pip import Pip
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.system_packages import install_system_packages

FETCH_SECONDS = 900
_UBUNTU_FOLDER = "usr/lib/nvidia-cuda-toolkit"
_UBUNTU_PROGRAMS = ("nvcc", "cudafe++", "ptxas", "fatbinary", "nvlink", "bin2c", "cuobjdump", "__nvcc_device_query")
_UBUNTU_PROFILE = """\
TOP = $(_HERE_)/..
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"
CUDAFE_FLAGS +=
PTXAS_FLAGS +=
"""
"""Replacement of the profile of Ubuntu's nvcc, which names folders of the whole package."""


def make_cuda_home(toolkit: CudaToolkit, pip: Pip, scratch: Path, report: Callable[[str], None]) -> Path:
    """
    Return the CUDA home of a build: the image's, or a new one in `scratch`.

    Effects: downloads some 100 MB; for Ubuntu's nvcc, g++-12 is installed on the node. `pip` installs nothing into its
    environment.
    """
    home = scratch / "cuda"
    home.mkdir(parents=True)
    if toolkit.kind == IMAGE:
        _add_nccl(toolkit, home)
        return Path(CUDA_HOME)
    report(f"fetching the compiler for CUDA {toolkit.cuda}")
    fetched = scratch / "cuda-packages"
    install = ("install", "--no-compile", "--target", str(fetched))
    if toolkit.kind == PYPI:
        pip.run(*install, *toolkit.requirements)
        _copy_pypi(fetched, home)
    else:
        install_system_packages(pip.programs, pip.transcript, (UBUNTU_COMPILER,), report)
        pip.run(*install, "--no-deps", *toolkit.requirements)
        _copy_ubuntu(_fetch_ubuntu(scratch, pip.transcript), fetched, home)
    _add_nccl(toolkit, home)
    _add_runtime(toolkit, home)
    return home


def nccl_folder(scratch: Path) -> Path:
    """Return the folder of the library, under the name that a linker searches."""
    return scratch / "cuda" / "lib64"


def _copy_pypi(fetched: Path, home: Path) -> None:
    found = sorted((fetched / "nvidia").glob("cu*/bin/nvcc"))
    if not found:
        raise ProvisionFailure("NVIDIA's packages on PyPI brought no nvcc", "leave horovod out and use torchrun")
    for name in ("bin", "nvvm", "include"):
        shutil.copytree(found[0].parents[1] / name, home / name)


def _fetch_ubuntu(scratch: Path, transcript: Transcript) -> Path:
    folder, tree = scratch / "ubuntu", scratch / "ubuntu" / "tree"
    folder.mkdir()
    # Only unpacked, which needs neither rights nor dependencies.
    download = ["env", f"--chdir={folder}", "apt-get", "download", UBUNTU_PACKAGE]
    try:
        transcript.run(download, timeout_seconds=FETCH_SECONDS)
        (package,) = folder.glob("*.deb")
        transcript.run(["dpkg-deb", "--extract", str(package), str(tree)], timeout_seconds=FETCH_SECONDS)
        nvcc = tree / _UBUNTU_FOLDER / "bin" / "nvcc"
        version = parse_nvcc_version(transcript.run([str(nvcc), "--version"], timeout_seconds=VERSION_SECONDS))
    except (ProgramError, ValueError) as error:
        output = getattr(error, "output", "")
        raise ProvisionFailure(
            f"could not download {UBUNTU_PACKAGE} from Ubuntu's archive: {error}",
            "check the route to the archive and its component multiverse, or use an image with CUDA 12 in " + CUDA_HOME,
            output=output,
            is_final="Unable to locate package" in output,
        ) from error
    if version != UBUNTU_NVCC:
        raise ProvisionFailure(
            f"{UBUNTU_PACKAGE} must have nvcc {UBUNTU_NVCC}, got {version or 'none'}",
            f"use an image with CUDA 12 in {CUDA_HOME}",
        )
    return tree


def _copy_ubuntu(tree: Path, fetched: Path, home: Path) -> None:
    own = tree / _UBUNTU_FOLDER
    shutil.copytree(own / "bin" / "crt", home / "bin" / "crt")
    for name in _UBUNTU_PROGRAMS:  # /usr/bin/nvcc is a script that starts the other by its path.
        places = (own / "bin" / name, tree / "usr" / "bin" / name)
        shutil.copy2(next(path for path in places if path.exists()), home / "bin" / name)
    (home / "bin" / "nvcc.profile").write_text(_UBUNTU_PROFILE)
    for source, target in (("bin/cicc", "nvvm/bin"), ("libdevice/libdevice.10.bc", "nvvm/libdevice")):
        (home / target).mkdir(parents=True)
        shutil.copy2(own / source, home / target)
    for headers in sorted((fetched / "nvidia").glob("*/include")):
        shutil.copytree(headers, home / "include", dirs_exist_ok=True)


def _add_nccl(toolkit: CudaToolkit, home: Path) -> None:
    if toolkit.nccl:
        shutil.copytree(toolkit.nccl_headers, home / "include", dirs_exist_ok=True)
        _link(home / "lib64" / "libnccl.so", toolkit.nccl)


def _add_runtime(toolkit: CudaToolkit, home: Path) -> None:
    """Add static libraries, which CMake requires, as stand-ins for the framework's shared runtime."""
    libraries = home / "lib64"
    _link(libraries / "libcudart.so", toolkit.runtime)
    (libraries / "libcudart_static.a").write_text("INPUT(-lcudart)\n")
    (libraries / "libcudadevrt.a").write_bytes(b"!<arch>\n")
    (home / "lib").symlink_to("lib64")


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
