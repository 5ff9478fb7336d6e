"""
A root file system with all that a job needs: PyTorch, compilers, OpenMPI and Horovod, as Debian packages them.

Nodes have it whose cluster asks for no environment on an image without a framework: such a cluster says that its image
brings the software. Made once, then only read.
"""

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from deeplearning_rehearsal.lab.base_root import (
    COMPILER_PACKAGES,
    IMAGE_PACKAGES,
    LAB_PACKAGES,
    UNREAD,
    BaseRoot,
    make_root,
)
from deeplearning_rehearsal.lab.cache import fill_once
from deeplearning_rehearsal.lab.downloads import HOROVOD, download_horovod
from deeplearning_rehearsal.lab.package_sources import SUITE

TRAINING_PACKAGES = (
    *("python3-numpy", "python3-torch", "python3-packaging", "python3-cloudpickle", "python3-yaml", "python3-psutil"),
    *(*COMPILER_PACKAGES, "cmake", "openmpi-bin"),
)
"""What such an image has beyond the others. horovodrun takes Gloo for absent where python3-packaging is."""

BUILD_PACKAGES = ("libopenmpi-dev", "libtorch-dev", "pybind11-dev", "python3-cffi")
"""What only Horovod's build needs; none of it stays."""

_BUILD_SCRIPT = Path(__file__).with_name("build_horovod.sh")


def recipe_key() -> str:
    """Name the recipe by its content: another recipe is another folder in the cache."""
    packages = (IMAGE_PACKAGES, LAB_PACKAGES, TRAINING_PACKAGES, BUILD_PACKAGES)
    recipe = (SUITE, packages, HOROVOD, UNREAD, _BUILD_SCRIPT.read_text(), os.uname().machine)
    return f"{SUITE}-training-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def prepare_training_root(base: BaseRoot, cache: Path, tell: Callable[[str], None]) -> BaseRoot:
    """
    Return the root, made first when the cache does not hold it.

    It takes some four minutes and 450 MB of downloads.

    Args:
        base: The root of images that do not bring the software; its archive of packages goes with this one too.
        cache: Folder that keeps roots.
        tell: Told a line for every slow step.

    Raises:
        UnavailableError: This machine cannot make it; the message says what is missing or what failed.
    """
    folder = fill_once(cache, recipe_key(), lambda work: _build(work, tell))
    return BaseRoot(folder / "root", base.archive)


def _build(work: Path, tell: Callable[[str], None]) -> Path:
    begin = time.monotonic()
    tell("making a root file system that brings PyTorch and Horovod, once: about 450 MB of downloads, 2 GB, 4 minutes")
    tell("downloading Horovod's source (3.5 MB)")
    made = work / "made"
    made.mkdir()
    finish = ["sh", str(_BUILD_SCRIPT), '"$1"', str(download_horovod(work)), *BUILD_PACKAGES]
    packages = (*IMAGE_PACKAGES, *LAB_PACKAGES, *TRAINING_PACKAGES)
    make_root(made / "root", packages, finish, work.parent / "build.log", tell)
    tell(f"root file system with PyTorch and Horovod ready after {time.monotonic() - begin:.0f} s")
    return made
