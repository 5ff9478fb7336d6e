"""One node makes what all share; the others wait for it and say what the master says."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict

from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.environments.site import Site
from deeplearning_provision.lease import Lease
from deeplearning_provision.steps import describe_failure

LOOK_SECONDS = 5.0


@contextlib.contextmanager
def hold_making(site: Site, recipe: Recipe, is_done: Callable[[], bool]) -> Iterator[bool]:
    """
    Let this node alone make a shared environment, and publish its progress to the others; yield whether it is left to
    do.

    Effects: the work of this master and the cause of a failure, in a file for the cluster on the shared file system.
    """
    site.write_claim(digest=recipe.digest, recipe=asdict(recipe), instance=site.facts.instance_id, failure="", doing="")
    claim = Lease(site.shared / f"{recipe.digest}.lock", site.facts.instance_id, site.clock)
    try:
        with claim.hold(is_done, lambda owner: site.wait(f"{owner or 'another node'} is making it")) as is_left:
            yield is_left
    except Exception as error:
        site.write_claim(failure=str(describe_failure(error)), doing="")
        raise
    finally:
        site.claim.clear()


def wait_for_master(site: Site, recipe: Recipe, is_done: Callable[[], bool]) -> None:
    """
    Wait until the master has made the environment of a recipe, for as long as it takes.

    A master that failed may be mended, and the file system's word about a master may be of an earlier cluster: neither
    ends the waiting, and both are reported.
    """
    while not is_done():
        site.wait(_describe_wait(site, recipe))
        site.clock.wait(LOOK_SECONDS)


def _describe_wait(site: Site, recipe: Recipe) -> str:
    claim = site.read_claim()
    if not claim:
        return "waiting for the master to begin"
    if claim.get("digest") != recipe.digest:
        found = claim.get("recipe")
        differences = "; ".join(recipe.differences(found if isinstance(found, dict) else {}))
        return f"waiting: the master makes another environment ({differences}); give both groups one image"
    if claim.get("failure"):
        return f"waiting: the master failed: {claim['failure']}"
    doing = f": {claim['doing']}" if claim.get("doing") else ""
    return f"waiting for the master, {claim.get('instance')}, to make it{doing}"
