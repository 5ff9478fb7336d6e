"""
The software in which jobs run: declared once, made once by the master, the same on every node.

| kind | what the master makes on the shared file system | what a node has |
|---|---|---|
| horovod | an archive of a virtual environment over the image's Python, unless the image brings all | the environment |
| requirements | the same | the same |
| conda | the environment | a link to it |
| container | nothing | the image, pulled |

/opt/deeplearning/environments/current leads to the environment; nothing is there for a container.
"""

from pathlib import Path

from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP
from deeplearning_provision.environments.conda import provide_conda
from deeplearning_provision.environments.container import provide_container
from deeplearning_provision.environments.flow import Flow
from deeplearning_provision.environments.image import provide_image
from deeplearning_provision.environments.recipe import (
    CONDA,
    CONTAINER,
    HOROVOD,
    REQUIREMENTS,
    Recipe,
    find_recipe,
)
from deeplearning_provision.environments.site import Site
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.status import Status, lock_file
from deeplearning_provision.steps import ProvisionFailure


def build_or_install(
    facts: NodeFacts, status: Status, root: Path, programs: Programs, clock: Clock, *, is_thorough: bool = False
) -> None:
    """
    Make the declared environment available on this node; one that is there already stays.

    One process of a node does this at a time. With `is_thorough` the master reads the archive to its end, and builds a
    damaged one anew; otherwise nodes find damage when they unpack it. The step's last detail describes the environment.
    """
    site = Site.open(facts, status, root, programs, clock, is_thorough=is_thorough)
    with lock_file(root, ENVIRONMENT_STEP):
        site.transcript.begin()
        site.local.mkdir(parents=True, exist_ok=True)
        site.tell("looking at the image")
        recipe, interpreter = find_recipe(facts, site.settings, root, programs)
        if recipe.kind == CONDA:
            status.finish(ENVIRONMENT_STEP, provide_conda(site, recipe))
        elif recipe.kind == CONTAINER:
            status.finish(ENVIRONMENT_STEP, provide_container(site, recipe))
        elif interpreter is not None:
            _provide_over_image(site, recipe, interpreter)
        else:
            kinds = f"{HOROVOD}, {REQUIREMENTS}, {CONDA} or {CONTAINER}"
            raise ProvisionFailure(f"environment.kind must be {kinds}, got {recipe.kind}", "deploy again")


def _provide_over_image(site: Site, recipe: Recipe, interpreter: Interpreter) -> None:
    if recipe.kind == HOROVOD:
        _check_framework(site.settings.framework, recipe)
    if recipe.is_in_image and (detail := provide_image(site, interpreter)):
        site.status.finish(ENVIRONMENT_STEP, detail)
        return
    flow = Flow(site, interpreter, recipe)
    site.status.finish(ENVIRONMENT_STEP, flow.run())
    flow.make_lasting()


def _check_framework(pinned: str, recipe: Recipe) -> None:
    """Refuse an image that does not go with what was pinned; a pinned PyTorch may be the default, and gives way."""
    if not recipe.frameworks and not pinned:
        raise ProvisionFailure(
            "the image must have torch, tensorflow or mxnet when no framework is pinned, got none of them",
            "give the environment a framework such as torch==2.7.1, or an image that has one, and deploy",
        )
    if pinned.startswith("tensorflow") and recipe.frameworks and "tensorflow" not in recipe.frameworks:
        found = ", ".join(f"{name} {version}" for name, version in recipe.frameworks.items())
        raise ProvisionFailure(
            f"environment.framework must be left out where the image has another, got {pinned} beside {found}",
            "give an image without a framework, or a requirements file, and deploy",
        )
