"""Build of Horovod's wheel by a plan, and a test of the result."""

from collections.abc import Callable
from pathlib import Path

from deeplearning_node.health.gpus import has_gpu
from deeplearning_node.programs import Programs
from deeplearning_provision.horovod.cuda_home import make_cuda_home, nccl_folder
from deeplearning_provision.horovod.cuda_toolkit import CudaToolkit
from deeplearning_provision.horovod.plan import FRAMEWORKS, SOURCES, SPAN_STANDARD, HorovodPlan
from deeplearning_provision.program_failure import explain_program_errors
from deeplearning_provision.program_log import Transcript, ignore_line
from deeplearning_provision.python.pip import Pip

NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4.0", "numpy")
"""
Packages that Horovod imports; its setup.py would otherwise fetch them during the build.

Neither Horovod nor PyTorch requires NumPy, but the collectives of objects call `Tensor.numpy()`, which fails without
it (horovod/torch/functions.py of 0.28.1).
"""
TOOLS = ("setuptools<81", "wheel")
"""Tools of its setup.py, which imports pkg_resources; setuptools 81 dropped it."""
CMAKE = "cmake<4"
WRAPPER = """#!/bin/sh
# Horovod's CMake sets C++14 at most; headers of frameworks need more.
count=$#
while [ "$count" -gt 0 ]; do
  word=$1
  shift
  case $word in -std=c++11 | -std=c++14 | -std=gnu++11 | -std=gnu++14) word=-std=c++{standard} ;; esac
  set -- "$@" "$word"
  count=$((count - 1))
done
exec {compiler} "$@"
"""
CPU_CMAKE = """#!/bin/sh
# Horovod's CMake always looks for CUDA, and requires all of it if PyTorch has CUDA and any of it is present.
[ "$1" = --build ] && exec cmake "$@"
exec cmake "$@" -DPYTHON_EXECUTABLE={python} -DCMAKE_CUDA_COMPILER=NOTFOUND -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON
"""
CPU_PYTHON = """#!/bin/sh
# Answers the probe of Horovod's CMake as a PyTorch without CUDA.
case $2 in *torch*) code="import torch; torch.version.cuda = None
$2"; shift 2; set -- -c "$code" "$@" ;; esac
exec {python} "$@"
"""
TRIAL_SECONDS = 300
TRIALS = {
    "torch": """
import torch, horovod.torch as hvd
hvd.init()
assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [1.0, 1.0]
""",
    "tensorflow": """
import tensorflow, horovod.tensorflow as hvd
hvd.init()
assert hvd.allreduce(tensorflow.ones(2), op=hvd.Sum).numpy().tolist() == [1.0, 1.0]
""",
    "mxnet": """
import mxnet, horovod.mxnet as hvd
hvd.init()
assert hvd.allreduce(mxnet.nd.ones(2), average=False).asnumpy().tolist() == [1.0, 1.0]
""",
}
GPU_TRIAL = """
import torch, horovod.torch as hvd
hvd.init()
for kind in (torch.float32, torch.float16):
    reduced = hvd.allreduce(torch.ones(2, dtype=kind, device="cuda"), op=hvd.Sum)
    assert reduced.is_cuda and reduced.tolist() == [1.0, 1.0], f"{kind} became {reduced}"
"""
"""For PyTorch alone: nobody has tried the others on a GPU."""
_WITH_NCCL = """
assert hvd.nccl_built(), "built without NCCL"
"""
# One rank, without MPI's daemons and without a GPU, which the master may lack.
_TRIAL_VARIABLES = {
    "PYTHONNOUSERSITE": "1",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "CUDA_VISIBLE_DEVICES": "",
}
_GPU_VARIABLES = {**_TRIAL_VARIABLES, "CUDA_VISIBLE_DEVICES": "0"}


def build_horovod(
    pip: Pip,
    plan: HorovodPlan,
    folder: Path,
    scratch: Path,
    report: Callable[[str], None],
    *,
    on_line: Callable[[str], None] = ignore_line,
) -> None:
    """
    Build the wheel, in an environment that has the requirements and the imports of Horovod.

    Effects: setuptools, wheel and, if the node lacks it, cmake in the environment of `pip`. `report` gets a line for
    each slow step, `on_line` each line of the compilation; CMake's lines contain the percentage.
    """
    tools = [*TOOLS, *([] if pip.programs.has("cmake") else [CMAKE])]
    pip.run("install", *tools)
    home = make_cuda_home(plan.toolkit, pip, scratch, report) if plan.toolkit else None
    variables = list_variables(plan, pip.python, scratch, home)
    requirement = scratch / "horovod.txt"
    requirement.write_text(f"horovod=={plan.version} --hash=sha256:{SOURCES[plan.version]}\n")
    folders = [pip.python.parent, *([home / "bin"] if home else []), *([plan.mpi] if plan.mpi else [])]
    path = ":".join([*map(str, folders), pip.programs.search_path])
    # Without pip's cache, whose wheel may be for another framework; without isolation, to see the framework.
    options = ("--no-cache-dir", "--no-build-isolation", "--no-deps", "--no-binary", "horovod")
    report(f"compiling Horovod {plan.version} for {', '.join(plan.frameworks)}")
    pip.run(
        *("wheel", "--verbose", *options, "--wheel-dir", str(folder), "--requirement", str(requirement)),
        environment=variables,
        programs=Programs(path),
        on_line=on_line,
    )


def list_variables(plan: HorovodPlan, python: Path, scratch: Path, home: Path | None) -> dict[str, str]:
    """Return the variables that Horovod's build reads; the programs that they name go to `scratch`."""
    asked = {name: module in plan.frameworks for module, name in FRAMEWORKS.items()}
    asked |= {"GLOO": True, "MPI": bool(plan.mpi)}
    values = {f"HOROVOD_WITH{'' if is_asked else 'OUT'}_{name}": "1" for name, is_asked in asked.items()}
    values |= {"MAKEFLAGS": f"-j{plan.jobs}", "CMAKE_POLICY_VERSION_MINIMUM": "3.5"}
    # g++ 13 and later: Horovod relied on headers that no longer include this one (its pull request 3957, never
    # released).
    # Not in the wrapper, which nvcc hands preprocessed code.
    # In C++20 flatbuffers finds std::span by <version>; g++ 14 needs that one.
    values["CXXFLAGS"] = "-include stdexcept" + (" -include version" if plan.standard == SPAN_STANDARD else "")
    if plan.standard:
        values["CXX"] = write_program(scratch / "cxx", WRAPPER.format(standard=plan.standard, compiler=plan.compiler))
    elif plan.toolkit:
        values["CXX"] = plan.compiler
    if plan.mpi.startswith("/opt/"):  # The loader may not search it.
        library = Path(plan.mpi).parent
        values["LDFLAGS"] = f"-Wl,-rpath,{library}/lib:{library}/lib64"
    if plan.toolkit and home:
        return values | _list_cuda(plan.toolkit, plan.standard, scratch, home)
    shown = write_program(scratch / "python-without-cuda", CPU_PYTHON.format(python=python))
    values["HOROVOD_CMAKE"] = write_program(scratch / "cmake-without-cuda", CPU_CMAKE.format(python=shown))
    return values | {"HOROVOD_WITHOUT_NVTX": "1"}


def write_program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def _list_cuda(toolkit: CudaToolkit, standard: str, scratch: Path, home: Path) -> dict[str, str]:
    library = nccl_folder(scratch)
    values = {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": str(home),
        "CUDA_HOME": str(home),
        "HOROVOD_NCCL_LINK": "SHARED",
        "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(toolkit.architectures),
    }
    if toolkit.nccl:
        values |= {"HOROVOD_NCCL_INCLUDE": str(library.with_name("include")), "HOROVOD_NCCL_LIB": str(library)}
    else:
        values["HOROVOD_NCCL_HOME"] = str(Path(toolkit.nccl_headers).parent)
    if standard:
        # Horovod's CMake passes C++11 to nvcc, whose passes would differ: the wrapper sets the host's.
        values["NVCC_APPEND_FLAGS"] = f"-std=c++{standard}"
    return values


def try_horovod(python: Path, plan: HorovodPlan, transcript: Transcript) -> None:
    """
    Reduce a tensor over one rank with every framework, with NCCL in a build for GPUs, and on a GPU where there is one.

    Horovod's own report (`--check-build`) is not reliable.
    """
    for module in plan.frameworks:
        trial = TRIALS[module] + (_WITH_NCCL if plan.toolkit else "")
        with explain_program_errors(
            f"Horovod was built for {module} {plan.frameworks[module]} and does not work with it",
            "choose another version of the framework, or leave horovod out",
        ):
            transcript.run([str(python), "-c", trial], timeout_seconds=TRIAL_SECONDS, environment=_TRIAL_VARIABLES)
    if plan.toolkit and "torch" in plan.frameworks and has_gpu(transcript.programs):
        with explain_program_errors(
            f"Horovod was built for torch {plan.frameworks['torch']} and does not reduce tensors on this node's GPU",
            "run `deeplearning health`; if the GPU is fit, choose another version of the framework, or leave horovod "
            "out and use torchrun",
        ):
            argv = [str(python), "-c", GPU_TRIAL]
            transcript.run(argv, timeout_seconds=TRIAL_SECONDS, environment=_GPU_VARIABLES)
