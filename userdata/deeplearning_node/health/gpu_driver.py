"""NVIDIA driver of a node, held against the CUDA of the software of jobs."""

import json
import re
from collections.abc import Mapping

from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpus import COMMAND, QUERY_SECONDS
from deeplearning_node.programs import ProgramError, Programs

LEAST_DRIVERS: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""
Major version of CUDA -> major version of the oldest driver for all its minor versions.

Source: CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
Compatibility".
"""
_OLDER_SOFTWARE: Mapping[int, str] = {
    11: "torch==2.7.1+cu118 from PyTorch's own index",
    12: "torch==2.7.1 with CUDA 12.6",
}
"""Major version of CUDA -> example of software for it (PyTorch, "Previous PyTorch Versions")."""
PROBE_SECONDS = 120

# Imports no framework: that takes seconds and initializes a GPU. A package of NVIDIA's that raises the CUDA of an older
# driver (CUDA compatibility, "Forward Compatibility") is a libcuda of its own, which says the version that it supports.
_PROBE = r"""
import ctypes, importlib.metadata, importlib.util, json, os, re
found = []
torch = importlib.util.find_spec("torch")
for folder in (torch.submodule_search_locations or []) if torch else []:
    with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
        found += re.findall(r"^cuda\b[^=\n]*=\s*['\"]([0-9]+\.[0-9]+)", file.read(), re.M)
for package in importlib.metadata.distributions():
    if re.fullmatch(r"nvidia[-_]cuda[-_]runtime([-_]cu[0-9]+)?", package.metadata["Name"] or "", re.I):
        found.append(package.version)
version = ctypes.c_int(0)
try:
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
except (OSError, AttributeError):
    pass
newest = max((tuple(map(int, re.findall("[0-9]+", text)[:2])) for text in found), default=())
print(json.dumps({"cuda": list(newest), "library": version.value // 1000}))
"""
_DRIVER = re.compile(r"^\s*([0-9]+)(\.[0-9]+)*\s*$", re.MULTILINE)


def check_driver(programs: Programs, python: str, newer_driver: str) -> None:
    """
    Raise StageFailure where the node's driver is too old for the CUDA of PyTorch, or of NVIDIA's packages.

    Software without CUDA, and a version of CUDA or of the driver that is not known, pass.

    Args:
        programs: The node's programs.
        python: Interpreter of the software of jobs.
        newer_driver: Remedy that brings another driver; empty where the user cannot choose it.
    """
    try:
        listed = programs.run(
            [COMMAND, "--query-gpu=driver_version", "--format=csv,noheader"], timeout_seconds=QUERY_SECONDS
        )
        found = json.loads(programs.run([python, "-I", "-c", _PROBE], timeout_seconds=PROBE_SECONDS))
    except (ProgramError, ValueError):
        return  # The checks of the GPUs and of the environment report what does not run.
    driver, cuda = _DRIVER.search(listed), found["cuda"]
    least = LEAST_DRIVERS.get(cuda[0]) if cuda else None
    if driver is None or least is None or int(driver[1]) >= least or found["library"] >= cuda[0]:
        return
    shown = ".".join(map(str, cuda))
    older = max((major for major, needed in LEAST_DRIVERS.items() if needed <= int(driver[1])), default=0)
    remedies = [
        older
        and f"take software for an older CUDA, such as {_OLDER_SOFTWARE[older]} for driver {LEAST_DRIVERS[older]}",
        newer_driver,
        f"put NVIDIA's cuda-compat-{cuda[0]}-{cuda[1] if len(cuda) > 1 else 0} into the image",
    ]
    raise StageFailure(
        f"CUDA {shown} of the software of jobs needs NVIDIA driver {least} or newer, the host has {driver[0].strip()}",
        ", or ".join(remedy for remedy in remedies if remedy),
    )
