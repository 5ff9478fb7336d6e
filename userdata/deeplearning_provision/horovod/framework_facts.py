"""Facts of an installed framework: version, CUDA, the GPUs of its kernels, and its NVIDIA wheels."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.python.pip import read_version
from deeplearning_provision.steps import ProvisionFailure

PROBE_SECONDS = 180
# Debian has separate packages of PyTorch's headers, and of pybind11's, which others have in PyTorch's own folder.
# `torch.cuda.get_arch_list` is empty on a master without GPUs; the function behind it needs none.
_ASK = """
import importlib.metadata, importlib.util, json, os, {module}
cuda, missing, kernels, needs = "", "", [], []
if "{module}" == "torch":
    cuda = torch.version.cuda or ""
    own = os.path.join(os.path.dirname(torch.__file__), "include")
    folders = [own, os.path.join(own, "torch", "csrc", "api", "include"), "/usr/include"]
    names = ["torch/extension.h", "pybind11/pybind11.h"]
    missing = ", ".join(n for n in names if not any(os.path.exists(os.path.join(f, n)) for f in folders))
    if cuda:
        kernels = (torch._C._cuda_getArchFlags() or "").split()
        needs = importlib.metadata.requires("torch") or []
elif "{module}" == "tensorflow":
    build = tensorflow.sysconfig.get_build_info()
    cuda, kernels = str(build.get("cuda_version", "")), list(build.get("cuda_compute_capabilities", []))
else:
    cuda = "yes" if mxnet.runtime.Features().is_enabled("CUDA") else ""
wheels = importlib.util.find_spec("nvidia")
print(json.dumps({{
    "version": {module}.__version__,
    "cuda": cuda,
    "missing": missing,
    "kernels": kernels,
    "nvidia": list(wheels.submodule_search_locations or []) if wheels else [],
    "toolkit": next((n for n in needs if n.startswith("cuda-toolkit")), ""),
}}))
"""
_KERNEL = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<only>[af]?)")


@dataclass(frozen=True)
class Framework:
    """Framework, as it describes itself."""

    version: str
    cuda: str = ""  # Such as `12.6`; empty for none
    missing: str = ""  # Headers that it lacks
    kernels: tuple[str, ...] = ()  # Such as `sm_70` or `compute_90`; empty when unknown
    nvidia: tuple[str, ...] = ()  # Folders of NVIDIA's wheels
    toolkit: str = ""  # Its pin of CUDA's packages, `cuda-toolkit[...]==13.2.1; ...`; empty in older releases

    @property
    def cuda_major(self) -> int:
        """Major version of its CUDA; 0 when unknown."""
        return read_version(self.cuda)[0]


def ask_framework(module: str, interpreter: Interpreter, programs: Programs) -> Framework:
    """Import a framework in a separate process, and return its facts."""
    try:
        output = programs.run(
            [str(interpreter.program), "-I", "-c", _ASK.format(module=module)], timeout_seconds=PROBE_SECONDS
        )
        found = json.loads(output.strip().splitlines()[-1])
        return Framework(**{**found, "kernels": tuple(found["kernels"]), "nvidia": tuple(found["nvidia"])})
    except (ProgramError, ValueError, IndexError, KeyError, TypeError) as error:
        raise ProvisionFailure(
            f"could not import {module}", "correct the requirements", output=getattr(error, "output", "")
        ) from error


def check_architecture(module: str, framework: Framework, capability: str) -> None:
    """Raise ProvisionFailure for a framework without kernels for the cluster's GPUs; unknown kernels pass."""
    if not capability or not framework.kernels or any(_runs_on(kernel, capability) for kernel in framework.kernels):
        return
    raise ProvisionFailure(
        f"{module} {framework.version} has no kernels for GPUs of compute capability {capability}, it has "
        + " ".join(framework.kernels),
        _remedy(module, framework.kernels, capability),
    )


def _runs_on(kernel: str, capability: str) -> bool:
    """
    Return whether a kernel runs on GPUs of a compute capability.

    Binary code runs on its own and later minor versions of its major version, PTX on everything later, and code whose
    name ends with a letter only on its own: CUDA C++ Programming Guide, Binary Compatibility and PTX Compatibility.
    """
    found = _KERNEL.fullmatch(kernel)
    if found is None:
        return False
    made, has = (int(found["major"]), int(found["minor"])), read_version(capability)
    if found["only"]:
        return made == has
    return made <= has and (found["kind"] == "compute" or made[0] == has[0])


def _remedy(module: str, kernels: Sequence[str], capability: str) -> str:
    if module == "torch" and (5, 0) <= read_version(capability) < (7, 5):
        # CUDA 13 dropped Volta; wheels of 2.7.1 are of CUDA 12.6.
        return "pin torch==2.7.1, which has kernels from sm_50 to sm_90"
    is_old = all(read_version(capability) > _made_for(kernel) for kernel in kernels)
    return f"pin {'a later' if is_old else 'an earlier'} version of {module}, or use another instance type"


def _made_for(kernel: str) -> tuple[int, int]:
    found = _KERNEL.fullmatch(kernel)
    return (int(found["major"]), int(found["minor"])) if found else (0, 0)
