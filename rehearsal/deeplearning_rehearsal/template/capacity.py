"""How many nodes a template asks for, and how few it is content with."""

from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import AssemblyError, UnavailableError
from deeplearning_contract.names import ROLE_TAG, NodeRole

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_REQUEST = "Custom::RequestedCapacity"

WORKER_MINIMUM_VARIABLE = "DEEPLEARNING_WORKER_MIN_CAPACITY"
"""Variable of the capacity adjuster's environment that holds the fewest workers."""


def count_requested(template: Mapping[str, Any]) -> int:
    """Return the nodes that a template asks for, in its request for capacity or in its groups."""
    resources = [(each["Type"], each["Properties"]) for each in template["Resources"].values() if "Properties" in each]
    asked = sum(int(wanted["Master"]) + int(wanted["Workers"]) for kind, wanted in resources if kind == _REQUEST)
    sizes = [group.get("DesiredCapacity", group.get("MinSize", 0)) for kind, group in resources if kind == _GROUP]
    return asked or sum(int(size) for size in sizes)


def require_cluster(stack: AssemblyStack) -> None:
    """Raise AssemblyError if no Auto Scaling group of the stack is a master's."""
    groups = (each for each in stack.template["Resources"].values() if each["Type"] == _GROUP)
    tags = (tag for group in groups for tag in group["Properties"].get("Tags", ()))
    if not any(tag["Key"] == ROLE_TAG and tag["Value"] == NodeRole.MASTER.value for tag in tags):
        raise AssemblyError(
            f"stack must have a cluster, got {stack.name} without an Auto Scaling group that is tagged {ROLE_TAG}="
            f"{NodeRole.MASTER.value}; choose another one with --stack NAME, or add a TrainingCluster to it"
        )


def require_worker_minimum(template: Mapping[str, Any], nodes: int | None) -> None:
    """Raise UnavailableError if the stack's own minimum is higher than this number of nodes, master included."""
    if nodes is None:
        return
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::Lambda::Function":
            continue
        variables = resource["Properties"].get("Environment", {}).get("Variables", {})
        fewest = variables.get(WORKER_MINIMUM_VARIABLE)
        if isinstance(fewest, str) and fewest.isdigit() and nodes - 1 < int(fewest):
            raise UnavailableError(
                f"--nodes must be at least {int(fewest) + 1}, the master and the stack's workers.min_capacity of "
                f"{fewest}, got {nodes}; raise it, or synthesize with a lower workers.min_capacity"
            )
