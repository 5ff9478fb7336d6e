"""
The software in which jobs run: declared once, made once by the master, the same on every node.

| kind | what the master makes on the shared file system | what a node has |
|---|---|---|
| requirements | wheels, Horovod's among them | a virtual environment over the image's Python, of these wheels alone |
| conda | the environment | a link to it |
| container | nothing | the image, pulled |

/opt/deeplearning/environments/current leads to the environment; nothing is there for a container.
"""

from pathlib import Path

from deeplearning_agent.deadline import Clock
from deeplearning_agent.node_facts import NodeFacts
from deeplearning_agent.programs import Programs
from deeplearning_provision.conda_environment import provide_conda
from deeplearning_provision.container_image import provide_container
from deeplearning_provision.environment_recipe import CONDA, CONTAINER, REQUIREMENTS, find_recipe
from deeplearning_provision.environment_site import Site
from deeplearning_provision.environment_wheels import provide_wheels
from deeplearning_provision.status import ENVIRONMENT_STEP, Status, lock_file
from deeplearning_provision.steps import ProvisionFailure


def build_or_install(facts: NodeFacts, status: Status, root: Path, programs: Programs, clock: Clock) -> None:
    """
    Bring the declared environment to this node; what is there already is left alone.

    One process of a node does this at a time.

    Args:
        facts: The node.
        status: Where progress is written; the step's last detail says what is there.
        root: Where the node's file tree begins.
        programs: The node's programs.
        clock: Its time.

    Raises:
        ProvisionFailure: It cannot be brought; trying again may help when it says so.
    """
    site = Site.open(facts, status, root, programs, clock)
    with lock_file(root, ENVIRONMENT_STEP):
        site.transcript.begin()
        site.local.mkdir(parents=True, exist_ok=True)
        site.tell("looking at the image")
        recipe, interpreter = find_recipe(facts, site.settings, root, programs)
        if recipe.kind == CONDA:
            detail = provide_conda(site, recipe)
        elif recipe.kind == CONTAINER:
            detail = provide_container(site, recipe)
        elif interpreter is not None:
            detail = provide_wheels(site, interpreter, recipe)
        else:
            raise ProvisionFailure(
                f"environment.kind must be {REQUIREMENTS}, {CONDA} or {CONTAINER}, got {recipe.kind}", "deploy again"
            )
        status.finish(ENVIRONMENT_STEP, detail)
