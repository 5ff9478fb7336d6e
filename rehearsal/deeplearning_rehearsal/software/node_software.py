"""Software of a rehearsal's nodes: content of their images and packages to install, made or downloaded first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.image_families import find_template_parts
from cdk_rehearsal.lab.images.base_root import BaseRoot, prepare_base_root
from cdk_rehearsal.lab.images.image_parts import PYTORCH, prepare_layers
from cdk_rehearsal.lab.package_index import prepare_index
from cdk_rehearsal.machine import ImagePart
from deeplearning_rehearsal.software.digits import prepare_digits
from deeplearning_rehearsal.software.downloads import HOROVOD_VERSION, prepare_horovod
from deeplearning_rehearsal.software.job_packages import prepare_job_packages
from deeplearning_rehearsal.template.environment_override import TORCH


@dataclass(frozen=True)
class NodeSoftware:
    """Base of all images, layers over it, and package index; no index where nodes need no packages."""

    base: BaseRoot
    layers: Mapping[ImagePart, Path]
    index: Path | None


def prepare_software(assembly: Path, stack_name: str | None, cache: Path, tell: Callable[[str], None]) -> NodeSoftware:
    """
    Return the software of a stack's nodes; what the cache has not is made or downloaded, which needs a network.

    Raises:
        RehearsalError: The assembly cannot be read, its nodes ask for what no rehearsal has, or this machine can
            neither make nor fetch it.
    """
    stack = read_stack(assembly, stack_name)
    prepare_digits(cache, tell)
    base = prepare_base_root(cache, tell)
    parts = find_template_parts(stack.template)
    wheels = prepare_horovod(cache, TORCH, HOROVOD_VERSION, tell) if PYTORCH in parts else None
    layers = prepare_layers(parts, base, wheels, cache, tell)
    packages = prepare_job_packages(stack, cache, tell)
    return NodeSoftware(base, layers, prepare_index(cache, packages, tell) if packages else None)
