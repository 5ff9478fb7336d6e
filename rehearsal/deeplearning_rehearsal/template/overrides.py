"""Changes of a template that a rehearsal makes before it deploys; each is listed in the report."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.errors import AssemblyError
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.template.environment_override import override_environment

REQUESTED_CAPACITY = "Custom::RequestedCapacity"


@dataclass(frozen=True)
class Overrides:
    """
    What is changed.

    Attributes:
        worker_desired_capacity: Workers that the stack asks for; raises the maximum of their group where that is lower.
            Default: as the template says.
        parameters: Values of the template's parameters. Default: their defaults.
    """

    worker_desired_capacity: int | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)


def apply_overrides(template: Mapping[str, Any], overrides: Overrides) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Apply overrides to a copy of a template, and what a machine without GPUs asks for.

    Returns:
        The template, and what was changed: path -> new value.

    Raises:
        AssemblyError: The template has no group of workers, or has several that ask for themselves.
    """
    changed = copy.deepcopy(dict(template))
    listing = {f"Parameters.{name}": value for name, value in overrides.parameters.items()}
    listing |= override_environment(changed)
    desired = overrides.worker_desired_capacity
    if desired is None:
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
        wanted["Workers"] = listing[f"{request}.Workers"] = str(desired)
    for name, properties in groups.items():
        if not requests:  # Of a template whose groups ask for themselves.
            properties["DesiredCapacity"] = listing[f"{name}.DesiredCapacity"] = str(desired)
        if int(properties["MaxSize"]) < desired:  # The stack asks one of them; each may be that.
            properties["MaxSize"] = listing[f"{name}.MaxSize"] = str(desired)
    return changed, listing


def _has_role(resource: Mapping[str, Any], role: NodeRole) -> bool:
    tags = resource.get("Properties", {}).get("Tags", [])
    return any(tag.get("Key") == ROLE_TAG and tag.get("Value") == role.value for tag in tags)
