"""Choice of the jobs' software: the user's, checked against the nodes, or Horovod for their hardware."""

import re
from dataclasses import replace

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.catalog.torch_wheels import TORCH_PIN, Version, find_unfit, list_capabilities, suggest_versions
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import DEFAULT_ENVIRONMENT, JobEnvironment
from deeplearning_cdk.software.software_file import read_requirements
from deeplearning_contract.setting_parts import SYSTEM_PYTHON, find_wheel_conflict

TORCH_OF_OLD_HOSTS = "torch==2.7.1"
"""
Last version with wheels for CUDA 12.6, which NVIDIA's driver 525 runs; that of `TORCH` needs 580.

Ubuntu 24.04 has a compiler for it that supports Volta.
"""
TORCH = "torch==2.13.0"
"""Last version whose headers need C++17, which g++ 12 and CMake of 2023 support; 2.14 requires C++20."""
_LEAST_MEMORY_MIB = 2048
"""Memory that one compiler takes with PyTorch's headers (`BYTES_A_JOB` of the nodes' build), which a rank needs too."""
_TURING = (7, 5)
_NAMED_PYTHON = re.compile(r"/python(3\.[0-9]{1,2})$")
_UBUNTU = re.compile(r"ubuntu(:|/server/)24\.04\b")
"""Images of Ubuntu 24.04, whose own Python is 3.12."""
_NO_ENVIRONMENT = "JobEnvironment.none() and bring the software in the image"


def choose_environment(
    environment: JobEnvironment | None,
    cache: EnvironmentCache | None,
    types: tuple[InstanceTypeFacts, ...],
    image: str,
    interpreter: str,
    *,
    isolated: bool,
    has_old_hosts: bool = False,
) -> JobEnvironment | None:
    """
    Check the user's environment against image and types, or choose one; None stands for the image's own software.

    `image` is the name of a container's image or the SSM parameter of a node's; empty when neither is known.
    `interpreter` is the path of its own Python. With `has_old_hosts` the driver is the service's, and may be older than
    the newest CUDA needs.

    Raises:
        ValueError: The nodes cannot install the environment, or it cannot work on them.
    """
    chosen = environment or _default_for(types)
    if cache is not None and chosen.kind in ("none", "container"):
        raise ValueError(
            f"software.environment_cache must be left out with an environment of kind {chosen.kind}, got one; there is "
            "nothing to cache: leave it out, or pass JobEnvironment.with_horovod()"
        )
    if chosen.kind == "horovod":
        _check_image(chosen, image)
        _check_memory(types)
        _check_reach(isolated=isolated, has_cache=cache is not None)
        chosen = replace(chosen, framework=chosen.framework or _choose_framework(types, has_old_hosts=has_old_hosts))
        _check_wheel(chosen.framework, _find_python(image, interpreter))
        _check_torch("framework", chosen.framework, repr(chosen.framework), types)
    if chosen.kind == "requirements":
        _check_requirements(chosen.path, types)
    return None if chosen.kind == "none" else chosen


def _default_for(types: tuple[InstanceTypeFacts, ...]) -> JobEnvironment:
    """Return Horovod for CPUs and NVIDIA GPUs; images for other accelerators have their own software."""
    is_known = all(facts.accelerator in (None, "NVIDIA") for facts in types)
    return DEFAULT_ENVIRONMENT if is_known else JobEnvironment.none()


def _choose_framework(types: tuple[InstanceTypeFacts, ...], *, has_old_hosts: bool) -> str:
    known = [tuple(map(int, each.split("."))) for facts in types if (each := facts.compute_capability)]
    has_wheel = find_unfit(_read_version(TORCH_OF_OLD_HOSTS), types) is None
    if any(capability < _TURING for capability in known) or (known and has_old_hosts and has_wheel):
        return TORCH_OF_OLD_HOSTS
    return TORCH


def _check_image(environment: JobEnvironment, image: str) -> None:
    """Check that the framework would be installed."""
    if environment.framework and "pytorch" in image:
        raise ValueError(
            f"framework must be left out with an image that has PyTorch, got {environment.framework!r} with "
            f"{image}; leave it out, or pass an image without a framework"
        )


def _check_memory(types: tuple[InstanceTypeFacts, ...]) -> None:
    for facts in types:
        if facts.memory_mib is not None and facts.memory_mib <= _LEAST_MEMORY_MIB:
            raise ValueError(
                f"instance_type must have more than {_LEAST_MEMORY_MIB} MiB of memory for Horovod, got {facts.name} "
                f"with {facts.memory_mib}; take a larger one such as c5.large, or {_NO_ENVIRONMENT}"
            )


def _find_python(image: str, interpreter: str) -> str:
    """Return the version of an image's own Python; empty when neither its path nor the image says it."""
    if found := _NAMED_PYTHON.search(interpreter):
        return found[1]
    return "3.12" if interpreter == SYSTEM_PYTHON and _UBUNTU.search(image) else ""


def _check_wheel(framework: str, python: str) -> None:
    conflict = find_wheel_conflict(framework, python)
    if conflict is not None:
        fitting, pin = conflict
        raise ValueError(
            f"framework must have a wheel for the image's Python {python}, got {framework!r}, whose are for {fitting}; "
            f"write {pin}, or pass an image with such a Python"
        )


def _check_reach(*, isolated: bool, has_cache: bool) -> None:
    if isolated and not has_cache:
        raise ValueError(
            "software.environment must not be built by isolated nodes, which reach no package index, got Horovod; pass "
            f"{_NO_ENVIRONMENT}, or a software.environment_cache that a cluster with Internet access has filled"
        )


def _check_requirements(path: str, types: tuple[InstanceTypeFacts, ...]) -> None:
    """
    Check an exact pin of PyTorch for all nodes.

    Another index, or a local version such as `+cu126`, may have wheels of another CUDA, which only nodes can check.
    """
    file = read_requirements(path)
    for line in file.lines:
        if line.name == "torch" and line.pin and not (file.has_own_index or "+" in line.pin):
            _check_torch("software.environment", f"torch=={line.pin}", line.where, types)


def _check_torch(prop: str, pin: str, shown: str, types: tuple[InstanceTypeFacts, ...]) -> None:
    if TORCH_PIN.match(pin) is None:
        return
    version = _read_version(pin)
    unfit = find_unfit(version, types)
    if unfit is None:
        return
    fitting = suggest_versions(types)
    remedy = f"take one of {fitting}" if fitting else f"no version has it for all nodes: pass {_NO_ENVIRONMENT}"
    raise ValueError(
        f"{prop} must have a torch whose wheel has code for the GPUs of {unfit.name} (compute capability "
        f"{unfit.compute_capability}), got {shown}, which has it for "
        f"{list_capabilities(version, unfit.architecture)}; {remedy}"
    )


def _read_version(pin: str) -> Version:
    found = TORCH_PIN.match(pin)
    assert found is not None
    return int(found["major"]), int(found["minor"])
