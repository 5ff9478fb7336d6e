"""Builds: distribution, framework and GPUs of each, and the expected outcome."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HOROVOD = "0.28.1"
CPU, PYPI, UBUNTU = "", "pypi", "ubuntu"
"""With which CUDA toolkit; the names are the product's."""


@dataclass(frozen=True)
class BuildRow:
    """
    One build; `toolkit` and `standard` are expected of it.

    Attributes:
        suite: Code name of a release of Debian or Ubuntu.
        frameworks: Requirements of the framework; pip installs the first that it finds.
        capability: Compute capability of the GPUs; empty for CPUs.
        toolkit: Source of nvcc; empty for none.
        standard: C++ standard of the compilers.
        compiler: C++ compiler that `g++` is. Default: the distribution's.
        has_host_python: Whether jobs run in this machine's Python. Default: in the distribution's.
        image_type: Instance type of the `TrainingImage` whose Dockerfile builds it. Default: none, as on a node.
        has_partial_cuda: Whether /usr/local/cuda has a part of a toolkit, whose nvcc does not run. Default: no.
    """

    name: str
    suite: str
    frameworks: tuple[str, ...]
    capability: str
    toolkit: str
    standard: str
    compiler: str = ""
    has_host_python: bool = False
    has_partial_cuda: bool = False
    image_type: str = ""


def _cpu(name: str, suite: str, frameworks: tuple[str, ...], standard: str = "17", **more: Any) -> BuildRow:
    return BuildRow(f"{name}-cpu", suite, frameworks, "", CPU, standard, **more)


_TORCH_CPU = ("torch==2.13.0+cpu", "torch==2.13.0")
ROWS = (
    _cpu("debian-12-torch-2.13.0", "bookworm", _TORCH_CPU),
    # PyPI has builds with CUDA alone; some indexes have one for the CPU, of few versions of Python.
    _cpu("debian-13-torch-2.13.0", "trixie", _TORCH_CPU, "20", has_host_python=True),
    _cpu("debian-13-g++-13-torch-2.13.0", "trixie", _TORCH_CPU, has_host_python=True, compiler="g++-13"),
    _cpu("debian-13-torch-2.15.0", "trixie", ("torch==2.15.0",), "20"),
    _cpu("debian-13-torch-2.15.0-partial-cuda", "trixie", ("torch==2.15.0",), "20", has_partial_cuda=True),
    _cpu("debian-12-tensorflow-2.15.1", "bookworm", ("tensorflow-cpu==2.15.1",)),
    BuildRow("debian-12-torch-2.15.0-cuda", "bookworm", ("torch==2.15.0",), "8.0", PYPI, "20"),
    BuildRow("debian-13-torch-2.13.0-cuda", "trixie", ("torch==2.13.0",), "8.0", PYPI, "20"),
    BuildRow("ubuntu-24.04-torch-2.7.1-cuda", "noble", ("torch==2.7.1",), "7.0", UBUNTU, "17"),
    _cpu("image-debian-12-torch-2.13.0", "bookworm", _TORCH_CPU[:1], image_type="c6i.4xlarge"),
    BuildRow("image-ubuntu-24.04-cuda", "noble", (), "8.6", PYPI, "17", image_type="g5.12xlarge"),
)


@dataclass(frozen=True)
class BuildOutcome:
    """Outcome of a build: its facts and CPU seconds, or its failure, which may be that this machine lacks something."""

    facts: Mapping[str, Any]
    failure: str = ""
    is_unavailable: bool = False
    seconds: float = 0.0


def judge_outcome(row: BuildRow, outcome: BuildOutcome) -> str:
    """Return how an outcome differs from what the row expects; empty when it does not."""
    if outcome.failure:
        return outcome.failure
    expected = {
        "toolkit": row.toolkit,
        "standard": row.standard,
        "has_nccl": bool(row.capability),
        "ranks": 2,
    }
    return "; ".join(
        f"{name} must be {wanted!r}, got {outcome.facts.get(name)!r}"
        for name, wanted in expected.items()
        if outcome.facts.get(name) != wanted
    )
