"""Builds Horovod into a wheel, as planned."""

from pathlib import Path

from deeplearning_agent.programs import Programs
from deeplearning_provision.horovod_plan import SOURCES, HorovodPlan
from deeplearning_provision.pip_program import Pip

NEEDS = ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi>=1.4.0")
"""What Horovod imports; its setup.py would otherwise fetch them while it builds."""
TOOLS = ("setuptools<81", "wheel")
"""Its setup.py imports pkg_resources, which setuptools 81 dropped."""
CMAKE = "cmake<4"
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
