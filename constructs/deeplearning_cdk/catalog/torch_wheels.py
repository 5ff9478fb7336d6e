"""
Compute capabilities that PyTorch's wheels support, as far as they are known at synthesis.

A GPU runs code of its own major compute capability and of the same or an earlier minor one (CUDA C++ programming guide,
"Binary Compatibility"). Wheels have no code for other GPUs that a driver could compile, except for 12.0.

Sources: the "PyTorch CUDA Support Matrix" of pytorch's RELEASE.md and its changes for 2.9 (pull request 164471), 2.11
(175253, which drops Volta of the CUDA 12.8 builds), 2.12 (182849) and 2.14 (197555, issue 190355);
`.ci/manywheel/build_cuda.sh` of 2.8 (issue 157517: Volta stays, Maxwell and Pascal go); the requirements of the wheels
on PyPI, which name CUDA 12.6 for 2.7, 12.8 for 2.8 to 2.10, 13.0 for 2.11 and 2.13, 13.2 for 2.15, and on Arm none
before 2.11.
"""

import re
from dataclasses import dataclass

from deeplearning_cdk.catalog.instance_catalog import Architecture, InstanceTypeFacts

Version = tuple[int, int]

TORCH_PIN = re.compile(r"torch\s*==\s*(?P<major>\d+)\.(?P<minor>\d+)(?P<rest>[^\s;#,]*)")
"""Exact pin of PyTorch; the rest is the patch version, and a local version such as `+cu126`."""


@dataclass(frozen=True)
class _Wheels:
    """Compute capabilities that the wheels on PyPI support, from one version of PyTorch on."""

    first: Version
    capabilities: tuple[str, ...]


_OLDEST = (2, 1)
"""Oldest version that is checked."""
_WHEELS: dict[Architecture, tuple[_Wheels, ...]] = {
    "x86_64": (
        _Wheels(_OLDEST, ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0")),
        _Wheels((2, 8), ("7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")),
        _Wheels((2, 11), ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")),
    ),
    "arm64": (_Wheels(_OLDEST, ()), _Wheels((2, 11), ("8.0", "9.0", "10.0", "11.0", "12.0"))),
}


def find_unfit(version: Version, types: tuple[InstanceTypeFacts, ...]) -> InstanceTypeFacts | None:
    """Return the first type whose GPUs the wheel of a version does not support; None if all fit or none is known."""
    if version < _OLDEST:
        return None
    return next((facts for facts in types if facts.compute_capability and not _runs(version, facts)), None)


def list_capabilities(version: Version, architecture: Architecture) -> str:
    """Return the compute capabilities that the wheel of a version supports, for an error."""
    return ", ".join(_find(version, architecture).capabilities) or "none"


def suggest_versions(types: tuple[InstanceTypeFacts, ...]) -> str:
    """Return the versions of PyTorch whose wheels support all types, for an error: `2.1 to 2.10`; empty without one."""
    rows = _WHEELS[types[0].architecture]
    ends = [*(wheels.first for wheels in rows[1:]), None]
    fit = [(wheels.first, end) for wheels, end in zip(rows, ends, strict=True) if not find_unfit(wheels.first, types)]
    if not fit:
        return ""
    first, last = fit[0][0], fit[-1][1]
    return f"{first[0]}.{first[1]} " + ("and later" if last is None else f"to {last[0]}.{last[1] - 1}")


def _find(version: Version, architecture: Architecture) -> _Wheels:
    return [wheels for wheels in _WHEELS[architecture] if wheels.first <= version][-1]


def _runs(version: Version, facts: InstanceTypeFacts) -> bool:
    major, minor = map(int, facts.compute_capability.split("."))
    known = (tuple(map(int, each.split("."))) for each in _find(version, facts.architecture).capabilities)
    return any(code[0] == major and code[1] <= minor for code in known)
