"""
What an environment is made from.

The recipe is what was declared and what the image is. Every node knows it at once, without a network, so a kept
environment is found without pip. The key is the recipe and what pip resolved on the day of the build: it names the
environment itself.
"""

import hashlib
import json
import os
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_provision.horovod.plan import HOROVOD_RECIPE, MPI_COMPILER, MPI_FOLDERS
from deeplearning_provision.python.interpreter import Interpreter, find_interpreter
from deeplearning_provision.system_packages import read_system

HOROVOD, REQUIREMENTS, CONDA, CONTAINER = "horovod", "requirements", "conda", "container"
DIGEST_LENGTH = 24
"""Of 64: a longer one would leave no room in the first lines of scripts, which Linux cuts at 127 bytes."""


@dataclass(frozen=True)
class Recipe:
    """What decides what is in an environment, as far as a node knows it by itself."""

    kind: str  # `horovod`, `requirements`, `conda` or `container`
    # SHA-256 of the file in hex; the image's name for a container; for `horovod` the framework to install, empty where
    # the image has one
    source: str
    platform: str  # Of the machine; wheels and conda packages are made for one
    python: str = ""  # The interpreter's own description; empty for conda and containers, which bring theirs
    libc: str = ""  # Version of the C library
    system: str = ""  # Distribution and its version, whose packages are built with
    # Framework -> version that the image has: it is used, so Horovod is built for it
    frameworks: Mapping[str, str] = field(default_factory=dict)
    horovod: str = ""  # Version that is built; empty for none
    image_horovod: tuple[str, ...] = ()  # Frameworks for which the image has a Horovod
    has_mpi: bool = False  # Whether the image has a compiler of MPI
    compute_capability: str = ""  # Of the GPUs for which Horovod is built; empty for none

    @property
    def digest(self) -> str:
        return shorten(asdict(self))

    @property
    def is_in_image(self) -> bool:
        """Whether the image brings all of it: a framework, and a Horovod for each that it has."""
        return self.kind == HOROVOD and bool(self.frameworks) and set(self.frameworks) <= set(self.image_horovod)

    def key(self, packages: Iterable[str], compilers: Mapping[str, str]) -> str:
        """Return the key of this recipe's environment: with the resolved packages and, for Horovod, the compilers."""
        built = [HOROVOD_RECIPE, dict(compilers)] if self.horovod else []
        return shorten({"recipe": asdict(self), "packages": sorted(packages), "built": built})

    def differences(self, other: Mapping[str, object]) -> list[str]:
        """Say in which parts another node's recipe differs from this one: `python 3.10 here, 3.12 there`."""
        mine = json.loads(json.dumps(asdict(self)))
        return [
            f"{name} {mine[name]} here, {other.get(name)} there"
            for name in sorted(mine)
            if mine[name] != other.get(name)
        ]


def shorten(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def find_recipe(
    facts: NodeFacts, settings: EnvironmentSettings, root: Path, programs: Programs
) -> tuple[Recipe, Interpreter | None]:
    """Return the recipe of the settings on this node, and the image's Python where it matters."""
    source = settings.file.sha256 if settings.file else settings.image
    if settings.kind not in {HOROVOD, REQUIREMENTS}:
        return Recipe(settings.kind, source, sysconfig.get_platform(), horovod=settings.horovod), None
    interpreter = find_interpreter(root, programs)
    if settings.kind == HOROVOD:
        source = "" if interpreter.frameworks else settings.framework
    recipe = Recipe(
        settings.kind,
        source,
        interpreter.platform,
        f"{interpreter.path} {interpreter.version}",
        os.confstr("CS_GNU_LIBC_VERSION") or "",
        read_system(root),
        dict(sorted(interpreter.frameworks.items())),
        settings.horovod,
        interpreter.horovod,
        has_mpi=bool(settings.horovod) and has_mpi_compiler(root, programs),
        compute_capability=find_capability(facts) if settings.horovod else "",
    )
    return recipe, interpreter


def find_capability(facts: NodeFacts) -> str:
    """Return the lowest compute capability of the cluster's GPUs; empty without GPUs, or where none is known."""
    found = {hardware.compute_capability for hardware in facts.needs.hardware.values()} - {""}
    return min(found, key=lambda text: [int(part) for part in text.split(".")], default="")


def has_mpi_compiler(root: Path, programs: Programs) -> bool:
    """
    Return whether the image has a compiler of MPI.

    It is not run: it may need a C++ compiler that only the node that builds gets, and all nodes must find the same.
    """
    return programs.has(MPI_COMPILER) or any((root / path.lstrip("/") / MPI_COMPILER).exists() for path in MPI_FOLDERS)
