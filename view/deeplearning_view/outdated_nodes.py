"""Finds nodes that started from another launch template than their group's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_view.aws_responses import read_tags


@dataclass(frozen=True)
class OutdatedNodes:
    """
    The nodes of one group, as far as the launch template is concerned.

    Attributes:
        role: What they are for.
        group: Name of the Auto Scaling group.
        version: The launch template's version that new nodes start from.
        outdated: Instance ids of nodes that started from another version, with that version.
        count: All nodes of the group.
    """

    role: NodeRole
    group: str
    version: str
    outdated: Mapping[str, str]
    count: int

    @property
    def is_master(self) -> bool:
        """Whether this is the master's group."""
        return self.role is NodeRole.MASTER


def compare_group(group: Mapping[str, Any]) -> OutdatedNodes:
    """
    Compare the nodes of a group with its launch template.

    Args:
        group: An entry of `DescribeAutoScalingGroups`.
    """
    version = str(group["LaunchTemplate"]["Version"])
    versions = {
        entry["InstanceId"]: str(entry.get("LaunchTemplate", {}).get("Version", "none")) for entry in group["Instances"]
    }
    outdated = {instance_id: found for instance_id, found in versions.items() if found != version}
    role = NodeRole(read_tags(group)[ROLE_TAG])
    return OutdatedNodes(role, group["AutoScalingGroupName"], version, outdated, len(versions))
