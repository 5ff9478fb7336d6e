"""Targets of faults: Auto Scaling groups of an assembly's stacks, by the tags that CloudFormation gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import AssemblyError

Fault = Literal["capacity", "instance", "network"]
STACK_TAG, LOGICAL_ID_TAG = "aws:cloudformation:stack-name", "aws:cloudformation:logical-id"
"""CloudFormation adds both to groups and their instances (AWS::AutoScaling::AutoScalingGroup TagProperty)."""


@dataclass(frozen=True)
class GroupTarget:
    """An Auto Scaling group of a stack."""

    stack: AssemblyStack
    logical_id: str

    @property
    def properties(self) -> Mapping[str, Any]:
        """Its properties, as its template has them."""
        properties: Mapping[str, Any] = self.stack.template["Resources"][self.logical_id].get("Properties", {})
        return properties

    @property
    def tags(self) -> dict[str, str]:
        """Tags of the group and of its instances that nothing else has."""
        return {STACK_TAG: self.stack.name, LOGICAL_ID_TAG: self.logical_id}


def find_groups(stacks: Sequence[AssemblyStack]) -> tuple[GroupTarget, ...]:
    """
    Return the groups of stacks in the order of their deployment.

    Those of nested stacks are not among them, whose stack has a name that CloudFormation makes up.

    Raises:
        AssemblyError: There is none.
    """
    groups = tuple(
        GroupTarget(stack, logical_id)
        for stack in stacks
        for logical_id, resource in stack.template.get("Resources", {}).items()
        if resource["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    )
    if not groups:
        names = ", ".join(stack.name for stack in stacks)
        raise AssemblyError(f"a fault strikes an Auto Scaling group of a stack that is not nested, got none in {names}")
    return groups
