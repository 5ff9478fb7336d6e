"""
The image that containers of a rehearsal have: a kept environment where there is one, else a build by its Dockerfile.

Both are stand-ins, which the image names.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import ImageAsset
from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab import StandIn
from cdk_rehearsal.lab.images.base_root import BaseRoot
from cdk_rehearsal.lab.images.container_image import ContainerImage, build_image, read_dockerfile
from deeplearning_contract.document import read_record
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import SYSTEM_PYTHON, EnvironmentSettings
from deeplearning_rehearsal.software.downloads import prepare_packages_of
from deeplearning_rehearsal.software.kept_environments import ARCHIVE, COMPLETE, KeptEnvironments
from deeplearning_rehearsal.template import choose_framework

KEPT_IMAGE = StandIn(
    "container image",
    "the image that Docker builds",
    "the environment that a node of an earlier rehearsal built from the same declaration, over the nodes' Debian 12; "
    "only the variables of the Dockerfile count; no repository holds it",
)
_SETTINGS = "node.json"


def find_or_build_image(
    asset: ImageAsset, base: BaseRoot, cache: Path, report: Callable[[str], None]
) -> ContainerImage:
    """Return the image of a training image's asset from a kept environment, or as `build_job_image` does."""
    return find_kept_image(asset, cache, report) or build_job_image(asset, base, cache, report)


def prepare_image_packages(asset: ImageAsset, cache: Path, report: Callable[[str], None]) -> None:
    """Download the packages of a training image, while there is a network: the lab, where it is built, has none."""
    if find_kept_image(asset, cache, report) is None:
        settings = _read_settings(asset)
        _leave_gpus_out(settings)
        _prepare_packages(asset, settings, cache, report)


def _prepare_packages(
    asset: ImageAsset, settings: dict[str, Any], cache: Path, report: Callable[[str], None]
) -> tuple[Path, ...]:
    requirements = next((asset.directory / "files").glob("*-requirements.txt"), None)
    return prepare_packages_of(_read_environment(settings), lambda: _require(requirements), cache, report)


def find_kept_image(asset: ImageAsset, cache: Path, report: Callable[[str], None]) -> ContainerImage | None:
    """Return an image with an environment that a node made without MPI from the same declaration; None without one."""
    settings = _read_settings(asset)
    _leave_gpus_out(settings)
    kept = KeptEnvironments(cache, _read_environment(settings), report)
    with kept.open_archives(SYSTEM_PYTHON) as folders:
        if not folders:
            return None
        folder = folders[0]
        digest = hashlib.sha256((folder / COMPLETE).read_bytes()).hexdigest()

        def fill(work: Path) -> Path:
            report(f"unpacking the environment {folder.name} for containers, once")
            place = work / "layer" / ENVIRONMENT_DIRECTORY.lstrip("/") / folder.name
            place.mkdir(parents=True)
            command = ["tar", "--extract", "--no-same-owner", f"--file={folder / ARCHIVE}", f"--directory={place}"]
            subprocess.run(command, check=True)
            shutil.copyfile(folder / COMPLETE, place / COMPLETE)
            (place.parent / "current").symlink_to(folder.name)
            return work / "layer"

        layer = fill_once(cache, f"image-{folder.name}-{digest[:16]}", fill, report)
    _, environment = read_dockerfile(asset.dockerfile.read_text())
    return ContainerImage((layer,), environment, KEPT_IMAGE)


def build_job_image(asset: ImageAsset, base: BaseRoot, cache: Path, report: Callable[[str], None]) -> ContainerImage:
    """
    Return the image of a training image's asset, built by its Dockerfile for machines without GPUs.

    Packages that the cache has not are downloaded, which needs a network.

    Raises:
        RehearsalError: The Dockerfile cannot be carried out here, a step failed, or a package cannot be downloaded.
    """
    settings = _read_settings(asset)
    changes = _leave_gpus_out(settings)
    packages = _prepare_packages(asset, settings, cache, report)
    with tempfile.TemporaryDirectory() as work:
        context = Path(work) / "context"
        shutil.copytree(asset.directory, context)
        (context / _SETTINGS).write_text(json.dumps(settings, indent=2, sort_keys=True))
        changed = replace(asset, directory=context, dockerfile=context / asset.dockerfile.relative_to(asset.directory))
        image = build_image(changed, base, packages, cache, report)
    if not changes:
        return image
    behaviour = f"{image.stand_in.behaviour}; built for {' and '.join(changes)}, because this machine has no GPU"
    return replace(image, stand_in=replace(image.stand_in, behaviour=behaviour))


def _read_settings(asset: ImageAsset) -> dict[str, Any]:
    path = asset.directory / _SETTINGS
    if not path.is_file():
        raise UnavailableError(f"image must be a TrainingImage in the rehearsal, got {asset.directory.name}")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def _read_environment(settings: dict[str, Any]) -> EnvironmentSettings:
    return read_record(EnvironmentSettings, settings["needs"]["environment"], "environment")


def _leave_gpus_out(settings: dict[str, Any]) -> list[str]:
    """Change settings as those of nodes are changed in a rehearsal, and return what they are changed to."""
    changes = []
    environment, framework = settings["needs"]["environment"], ""
    if environment["kind"] == "horovod":
        framework = choose_framework(environment.get("framework", ""))
    if framework and framework != environment["framework"]:
        environment["framework"] = framework
        changes.append(framework)
    if [part for part in settings["needs"]["hardware"].values() if part.pop("compute_capability", "")]:
        changes.append("no compute capability")
    return changes


def _require(requirements: Path | None) -> Path:
    if requirements is None:
        raise UnavailableError("image must have its requirements in the build context, got none; synthesize again")
    return requirements
