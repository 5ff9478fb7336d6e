"""Software of a rehearsal's nodes: content of their images and packages to install, made or downloaded first."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import prepare_sdk
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.image_families import find_image_parts
from cdk_rehearsal.lab.images.base_root import BaseRoot, prepare_base_root
from cdk_rehearsal.lab.images.image_parts import PYTORCH, prepare_layers
from cdk_rehearsal.lab.packages import prepare_index
from cdk_rehearsal.machine import ImagePart
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_rehearsal.software.downloads import (
    HOROVOD_VERSION,
    prepare_digits,
    prepare_horovod,
    prepare_packages_of,
)
from deeplearning_rehearsal.software.job_image import prepare_image_packages
from deeplearning_rehearsal.template import TORCH, find_environment


@dataclass(frozen=True)
class NodeSoftware:
    """
    Base of all images, layers over it, and package index; no index where nodes need no packages.

    Attributes:
        node_modules: What functions of Node.js name of the AWS SDK; None where they name nothing.
    """

    base: BaseRoot
    layers: Mapping[ImagePart, Path]
    index: Path | None
    node_modules: Path | None


def prepare_software(stack: AssemblyStack, cache: Path, report: Callable[[str], None]) -> NodeSoftware:
    """
    Return the software of a stack's nodes; what the cache has not is made or downloaded, which needs a network.

    Raises:
        RehearsalError: The nodes ask for what no rehearsal has, or this machine can neither make nor fetch it.
    """
    prepare_digits(cache, report)
    base = prepare_base_root(cache, report)
    parts = find_image_parts(stack.deployment)
    wheels = prepare_horovod(cache, TORCH, HOROVOD_VERSION, report) if PYTORCH in parts else None
    layers = prepare_layers(parts, base, wheels, cache, report)
    packages = prepare_job_packages(stack, cache, report)
    index = prepare_index(cache, packages, report) if packages else None
    for asset in stack.images:
        prepare_image_packages(asset, cache, report)
    return NodeSoftware(base, layers, index, prepare_sdk(stack.deployment, cache, report))


def prepare_job_packages(stack: AssemblyStack, cache: Path, report: Callable[[str], None]) -> tuple[Path, ...]:
    """
    Return the folders with the packages of the stack's environment, downloaded when the cache has them not.

    None for a stack without an environment. UnavailableError when nodes of the rehearsal could not make such one.
    """
    environment = find_environment(stack.template)
    if environment is None:
        return ()
    return prepare_packages_of(environment, lambda: _find_requirements(stack, environment), cache, report)


def _find_requirements(stack: AssemblyStack, environment: EnvironmentSettings) -> Path:
    if environment.kind != "requirements" or environment.file is None:
        raise UnavailableError(
            f"environment must be Horovod's or a requirements file in the rehearsal, got {environment.kind}; "
            "its nodes have neither conda nor containers"
        )
    digest = environment.file.sha256
    files = [asset.path for asset in stack.assets if asset.packaging == "file"]
    for path in files:
        if hashlib.sha256(path.read_bytes()).hexdigest() == digest:
            return path
    raise UnavailableError(f"environment must be an asset of the assembly, got SHA-256 {digest}; synthesize again")
