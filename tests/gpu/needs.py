"""The trial's needs of a machine, and those that are missing."""

import json
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.node_facts import FACTS_FILE
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.horovod.cuda_toolkit import CUDA_HOME

INTERPRETERS = ("/opt/pytorch/bin/python", "/usr/bin/python3")
PROBE = """
import json, os, sys, sysconfig, torch
gpus = torch.cuda.device_count()
print(json.dumps({
    "prefix": sys.prefix,
    "torch": torch.__version__,
    "cuda": torch.version.cuda or "",
    "has_headers": os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "gpus": gpus,
    "capability": "{}.{}".format(*torch.cuda.get_device_capability(0)) if gpus else "",
    "gpu": torch.cuda.get_device_name(0) if gpus else "",
}))
"""
SECONDS = 120
PROGRAMS = {
    "nvidia-smi": "install NVIDIA's driver",
    **{name: f"run: apt-get install {name}" for name in ("g++", "make")},
    "sshd": "run: apt-get install openssh-server",
    **dict.fromkeys(("ssh", "ssh-keygen", "ssh-keyscan"), "run: apt-get install openssh-client"),
    "ip": "run: apt-get install iproute2",
    "unshare": "run: apt-get install util-linux",
}


@dataclass(frozen=True)
class PyTorch:
    """PyTorch of an interpreter, and the GPUs that it finds."""

    python: str
    prefix: str = ""  # Folder of the environment
    torch: str = ""  # Version; empty where it cannot be imported
    cuda: str = ""  # Version; empty for a PyTorch for CPUs
    has_headers: bool = False
    gpus: int = 0
    capability: str = ""
    gpu: str = ""  # Name of the first


def probe_pytorch(named: str, programs: Programs) -> PyTorch:
    """Return the PyTorch of the named interpreter; without a name, the product's first that has one for CUDA."""
    found = [_probe(python, programs) for python in ([named] if named else INTERPRETERS)]
    return max(found, key=lambda each: (bool(each.cuda), bool(each.torch)))


def _probe(python: str, programs: Programs) -> PyTorch:
    try:
        output = programs.run([python, "-c", PROBE], timeout_seconds=SECONDS)
        return PyTorch(python, **json.loads(output.splitlines()[-1]))
    except (ProgramError, ValueError, IndexError):
        return PyTorch(python)


def find_missing(pytorch: PyTorch, programs: Programs, *, is_root: bool, root: Path = Path("/")) -> list[str]:
    """Return a line for each thing that is missing, with the way to get it."""
    torch = f"PyTorch {pytorch.torch} of {pytorch.python}"
    rows = [
        (is_root, "root", "run it with sudo: a node's files are written in namespaces"),
        *((programs.has(name), name, remedy) for name, remedy in PROGRAMS.items()),
        (
            (root / CUDA_HOME.lstrip("/") / "bin/nvcc").exists(),
            f"the CUDA toolkit in {CUDA_HOME}",
            "install or link it",
        ),
        (not (root / FACTS_FILE[1:]).exists(), "a machine that is no node", f"take one without {FACTS_FILE}"),
        (pytorch.torch, f"PyTorch in {pytorch.python}", "name another: make gpu-trial PYTORCH=/path/bin/python"),
        (pytorch.cuda or not pytorch.torch, f"CUDA in {torch}", "install a build for CUDA"),
        (pytorch.gpus or not pytorch.cuda, "an NVIDIA GPU", f"{torch} finds none; compare with nvidia-smi -L"),
        (pytorch.has_headers or not pytorch.torch, f"Python.h of {pytorch.python}", "install its headers"),
    ]
    if is_root and programs.has("unshare"):
        rows.append((_may_unshare(programs), "namespaces", "in a container, start that with --privileged"))
    return [f"missing: {what}; {remedy}" for is_there, what, remedy in rows if not is_there]


def _may_unshare(programs: Programs) -> bool:
    try:
        programs.run(["unshare", "--mount", "--net", "true"], timeout_seconds=SECONDS)
    except ProgramError:
        return False
    return True
