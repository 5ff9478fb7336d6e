"""What an environment is made of: the same recipe anywhere is the same environment, and has the same digest."""

import hashlib
import json
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from deeplearning_agent.node_facts import NodeFacts
from deeplearning_agent.programs import Programs
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_provision.environment_interpreter import Interpreter, find_interpreter
from deeplearning_provision.horovod_plan import find_mpi

REQUIREMENTS, CONDA, CONTAINER = "requirements", "conda", "container"
DIGEST_LENGTH = 24
"""Of 64: a longer one would leave no room in the first lines of scripts, which Linux cuts at 127 bytes."""


@dataclass(frozen=True)
class Recipe:
    """
    What decides what is in an environment.

    Attributes:
        kind: `requirements`, `conda` or `container`.
        source: SHA-256 of the file in hex; the image's name for a container.
        platform: Of the machine; wheels and conda packages are made for one.
        python: The interpreter's own description; empty for conda and containers, which bring theirs.
        frameworks: Framework -> version that the image has: it is used, so Horovod is built for it.
        horovod: Version that is built; empty for none.
        has_mpi: Whether Horovod is built with MPI.
        has_gpus: Whether Horovod is built for GPUs.
    """

    kind: str
    source: str
    platform: str
    python: str = ""
    frameworks: Mapping[str, str] = field(default_factory=dict)
    horovod: str = ""
    has_mpi: bool = False
    has_gpus: bool = False

    @property
    def digest(self) -> str:
        """Name the environment."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]

    def differences(self, other: Mapping[str, object]) -> list[str]:
        """Say in which parts another node's recipe differs from this one: `python 3.10 here, 3.12 there`."""
        mine = json.loads(json.dumps(asdict(self)))
        return [
            f"{name} {mine[name]} here, {other.get(name)} there"
            for name in sorted(mine)
            if mine[name] != other.get(name)
        ]


def find_recipe(
    facts: NodeFacts, settings: EnvironmentSettings, root: Path, programs: Programs
) -> tuple[Recipe, Interpreter | None]:
    """
    Return the recipe of what the settings ask for on this node, and the image's Python where it matters.

    Args:
        facts: The node.
        settings: What was declared.
        root: Where the node's file tree begins.
        programs: The node's programs.

    Raises:
        ProvisionFailure: The image has no Python that runs.
    """
    source = settings.file.sha256 if settings.file else settings.image
    if settings.kind != REQUIREMENTS:
        return Recipe(settings.kind, source, sysconfig.get_platform(), horovod=settings.horovod), None
    interpreter = find_interpreter(root, programs)
    is_built = bool(settings.horovod)
    recipe = Recipe(
        settings.kind,
        source,
        interpreter.platform,
        f"{interpreter.path} {interpreter.version}",
        dict(sorted(interpreter.frameworks.items())),
        settings.horovod,
        has_mpi=is_built and bool(find_mpi(root, programs)),
        has_gpus=is_built and any(hardware.gpu_count for hardware in facts.needs.hardware.values()),
    )
    return recipe, interpreter
