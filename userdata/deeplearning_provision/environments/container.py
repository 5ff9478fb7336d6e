"""A container image of the user's, pulled by every node before the first job."""

from deeplearning_node.programs import ProgramError
from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.environments.site import Site
from deeplearning_provision.python.pip import choose_lines, is_network_failure
from deeplearning_provision.steps import ProvisionFailure

PULL_SECONDS = 2 * 3600
ASK_SECONDS = 60


def provide_container(site: Site, recipe: Recipe) -> str:
    """Pull the image, check that the login user may run it, and return one line about it."""
    image = recipe.source
    if not site.programs.has("docker"):
        raise ProvisionFailure("the image of the nodes has no docker", "give a deep learning image, which has it")
    site.tell(f"pulling {image}")
    try:
        site.transcript.run(["docker", "pull", "--quiet", image], timeout_seconds=PULL_SECONDS)
        site.transcript.run(["docker", "image", "inspect", "--format", "{{.Id}}", image], timeout_seconds=ASK_SECONDS)
    except ProgramError as error:
        raise _explain(error, image) from error
    return f"container image {image}"


def _explain(error: ProgramError, image: str) -> ProvisionFailure:
    told = choose_lines(error.output)
    if "permission denied" in error.output.lower():
        return ProvisionFailure(
            "the login user may not use docker", "add the user to the group docker in the set-up script", output=told
        )
    if is_network_failure(error.output):
        return ProvisionFailure(
            f"{image} could not be pulled", "see the route to its registry", output=told, is_final=False
        )
    remedy = (
        "see its name and tag; a private registry needs a login of the nodes, such as Amazon ECR's credential helper"
    )
    return ProvisionFailure(f"{image} could not be pulled", remedy, output=told)
