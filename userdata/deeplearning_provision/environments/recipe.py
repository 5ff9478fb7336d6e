"""
Recipe of an environment: its settings and the facts of the image.

Every node computes its recipe without a network, so it finds a kept environment without pip. The key names the
environment itself: a digest of the recipe and of the packages that pip resolved at the time of the build.
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
"""Length of a key, of 64 hex digits, to keep the first lines of scripts below Linux's limit of 127 bytes."""


@dataclass(frozen=True)
class Recipe:
    """Settings and facts that determine the content of an environment."""

    kind: str  # `horovod`, `requirements`, `conda` or `container`
    # SHA-256 of the file in hex; for a container the image's name; for `horovod` the framework to install, if any
    source: str
    platform: str  # Platform of wheels and conda packages
    python: str = ""  # Path and version; empty for conda and containers, which have their own
    libc: str = ""  # Version
    system: str = ""  # Distribution and its version
    frameworks: Mapping[str, str] = field(default_factory=dict)  # Framework of the image -> version
    horovod: str = ""  # Version to build; empty for none
    image_horovod: tuple[str, ...] = ()  # Frameworks for which the image has a Horovod
    has_mpi: bool = False  # Whether the image has a compiler of MPI
    compute_capability: str = ""  # Compute capability of the GPUs for Horovod; empty for none

    @property
    def digest(self) -> str:
        return shorten(asdict(self))

    @property
    def is_in_image(self) -> bool:
        """True if the image has a framework, and a Horovod for each of its frameworks."""
        return self.kind == HOROVOD and bool(self.frameworks) and set(self.frameworks) <= set(self.image_horovod)

    def key(self, packages: Iterable[str], compilers: Mapping[str, str]) -> str:
        """Return the key of the environment with these packages and, for Horovod, these compilers."""
        built = [HOROVOD_RECIPE, dict(compilers)] if self.horovod else []
        return shorten({"recipe": asdict(self), "packages": sorted(packages), "built": built})

    def differences(self, other: Mapping[str, object]) -> list[str]:
        """Return the differences of another node's recipe, such as `python 3.10 here, 3.12 there`."""
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
    """Return the recipe of this node, and the image's Python for an environment over it."""
    source = settings.file.sha256 if settings.file else settings.image
    if settings.kind not in {HOROVOD, REQUIREMENTS}:
        return Recipe(settings.kind, source, sysconfig.get_platform(), horovod=settings.horovod), None
    interpreter = find_interpreter(root, programs, settings.interpreter)
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
    """Return the lowest compute capability of the cluster's GPUs; empty when none is known."""
    found = {hardware.compute_capability for hardware in facts.needs.hardware.values()} - {""}
    return min(found, key=lambda text: [int(part) for part in text.split(".")], default="")


def has_mpi_compiler(root: Path, programs: Programs) -> bool:
    """
    Return whether the image has a compiler of MPI.

    It is not run, since it may need a C++ compiler, which only the master installs; all nodes must agree.
    """
    return programs.has(MPI_COMPILER) or any((root / path.lstrip("/") / MPI_COMPILER).exists() for path in MPI_FOLDERS)
