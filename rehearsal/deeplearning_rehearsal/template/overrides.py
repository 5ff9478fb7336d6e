"""Changes of a template that a rehearsal makes before it deploys; each is listed in the report."""

import copy
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.template.environment_override import override_environment

REQUESTED_CAPACITY = "Custom::RequestedCapacity"


def apply_overrides(template: Mapping[str, Any], workers: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Set the number of workers in a copy of a template, and the environment that a machine without GPUs can have.

    The maximum of the workers' group is raised where it is lower. Returns the template and path -> new value.

    Raises:
        AssemblyError: The template has no group of workers, or has several that ask for themselves.
    """
    changed = copy.deepcopy(dict(template))
    listing = override_environment(changed)
    if workers is None:
        return changed, listing
    groups = {
        name: resource["Properties"]
        for name, resource in changed.get("Resources", {}).items()
        if resource.get("Type") == "AWS::AutoScaling::AutoScalingGroup" and _has_role(resource, NodeRole.WORKER)
    }
    requests = {
        request: resource["Properties"]
        for request, resource in changed["Resources"].items()
        if resource.get("Type") == REQUESTED_CAPACITY
    }
    if not groups or (len(groups) > 1 and not requests):
        raise AssemblyError(
            f"the template must have {'a' if requests else 'one'} group tagged {ROLE_TAG}={NodeRole.WORKER.value} to "
            f"set its size, got {sorted(groups)}"
        )
    for request, wanted in requests.items():
        wanted["Workers"] = listing[f"{request}.Workers"] = str(workers)
    for name, properties in groups.items():
        if not requests:  # Of a template whose groups ask for themselves.
            properties["DesiredCapacity"] = listing[f"{name}.DesiredCapacity"] = str(workers)
        if int(properties["MaxSize"]) < workers:  # The stack asks one of them; each may be that.
            properties["MaxSize"] = listing[f"{name}.MaxSize"] = str(workers)
    return changed, listing


def _has_role(resource: Mapping[str, Any], role: NodeRole) -> bool:
    tags = resource.get("Properties", {}).get("Tags", [])
    return any(tag.get("Key") == ROLE_TAG and tag.get("Value") == role.value for tag in tags)
