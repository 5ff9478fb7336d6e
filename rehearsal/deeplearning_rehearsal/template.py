"""The rehearsed template: the nodes that it asks for, the settings that it gives them, and the changes made to it."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack, read_stacks, require_no_images
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.manifest import StackArtifact, find_stacks
from deeplearning_contract.document import read_record
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_rehearsal.intrinsics import map_literals, read_literals
from deeplearning_rehearsal.platforms.platform import Platform
from deeplearning_rehearsal.platforms.registry import PLATFORMS, find_platform

TORCH = "torch==2.13.0"
"""Found on the host as a build for the CPU; a version without a local part takes `2.13.0+cpu` too (PEP 440)."""

_REASON = "these nodes have no GPU"
_CAPABILITY = re.compile(r'("compute_capability":\s*)"([^"]+)"')
_KEY = '"environment":'


def read_cluster(assembly: Path, name: str | None) -> AssemblyStack:
    """
    Read the stack with a cluster, by its name, path or pattern, with the stacks that it needs; None for the only one.

    Raises:
        AssemblyError: The folder is no assembly, there is not exactly one such stack, or nothing would run its
            container images.
    """
    fitting = [each for each in find_stacks(assembly, [name] if name else ()) if name is None or each.fits(name)]
    owning = [each for each in fitting if _has_cluster(each.read_template())]
    if not owning:
        raise AssemblyError(
            f"stack must have a cluster, got {_list_paths(fitting)} without an Auto Scaling group that is tagged "
            f"{ROLE_TAG}={NodeRole.MASTER.value}; choose another one with --stack NAME, or add a TrainingCluster to it"
        )
    if len(owning) > 1:
        raise AssemblyError(f"stack must name one of {_list_paths(owning)}, got {name!r}")
    stack = read_stacks(assembly, [owning[0].path])[-1]
    for each in stack.deployment:
        if each is not stack or not find_platform(stack.template).runs_containers:
            require_no_images(each)
    return stack


def _has_cluster(template: Mapping[str, Any]) -> bool:
    return any(platform.owns(template) for platform in PLATFORMS.values())


def _list_paths(stacks: Sequence[StackArtifact]) -> str:
    return ", ".join(each.path for each in stacks)


def count_gpus(template: Mapping[str, Any]) -> int:
    """Return the most GPUs that the settings of a template's nodes expect; 0 where no type of instance has any."""
    platform = find_platform(template)
    texts = [read_literals(place[key]) for place, key in platform.list_settings(template)]
    return max((int(found[2]) for text in texts for found in _find_gpu_counts(platform).finditer(text)), default=0)


def _find_gpu_counts(platform: Platform) -> re.Pattern[str]:
    return re.compile(rf'("{platform.gpu_key}":\s*)([1-9][0-9]*)')


def apply_overrides(
    template: Mapping[str, Any], workers: int | None, gpus: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Set the number of workers in a copy of a template, and what a machine without GPUs can have.

    A node expects the GPUs that it shows, as on AWS:
    otherwise each would warn of a difference that the rehearsal itself makes.

    Args:
        template: As `cdk synth` wrote it.
        workers: Number of workers; None leaves that of the template.
        gpus: GPUs that each node shows; with 0, a node of a type with GPUs goes on missing them.

    Returns:
        The template, and path -> new value.

    Raises:
        AssemblyError: The template has no workers whose number can be set.
    """
    changed = copy.deepcopy(dict(template))
    listing = override_environment(changed) | _override_gpus(changed, gpus)
    if workers is None:
        return changed, listing
    return changed, listing | find_platform(changed).resize(changed, workers)


def choose_framework(framework: str) -> str:
    """Return what is installed in place of a pinned framework: PyTorch becomes the one for the CPU."""
    return TORCH if re.match(r"torch\b", framework) else framework


def override_environment(template: dict[str, Any]) -> dict[str, str]:
    """
    Change the nodes' settings in a template whose environment is Horovod's; return setting -> new value.
    """
    environment = find_environment(template)
    if environment is None or environment.kind != "horovod":
        return {}
    listing = {}
    framework = choose_framework(environment.framework)
    if framework != environment.framework:
        listing["environment.framework"] = f"{framework}, was {environment.framework}: {_REASON}"
    written = re.compile(rf'("framework":\s*)"{re.escape(environment.framework)}"')

    def change(text: str) -> str:
        for found in _CAPABILITY.finditer(text):
            listing["hardware.compute_capability"] = f"none, was {found[2]}: {_REASON}"
        return _CAPABILITY.sub(r'\1""', written.sub(rf'\1"{framework}"', text))

    for place, key in find_platform(template).list_settings(template):
        place[key] = map_literals(place[key], change)
    return listing


def _override_gpus(template: dict[str, Any], gpus: int) -> dict[str, str]:
    """Change in a template how many GPUs its nodes expect; return setting -> new value."""
    listing, platform = {}, find_platform(template)

    def change(found: re.Match[str]) -> str:
        if int(found[2]) != gpus:
            listing[platform.gpu_key] = f"{gpus}, was {found[2]}: so many does the nvidia-smi of the nodes show"
        return f"{found[1]}{gpus}"

    for place, key in platform.list_settings(template) if gpus else ():
        place[key] = map_literals(place[key], lambda text: _find_gpu_counts(platform).sub(change, text))
    return listing


def find_environment(template: Mapping[str, Any]) -> EnvironmentSettings | None:
    """Return the environment that the nodes' settings ask for; None for the image's own."""
    for place, key in find_platform(template).list_settings(template):
        text = read_literals(place[key])
        if _KEY in text:
            start = text.index(_KEY) + len(_KEY)
            document = json.JSONDecoder().raw_decode(text[start:].lstrip())[0]
            return None if document is None else read_record(EnvironmentSettings, document, "environment")
    return None
