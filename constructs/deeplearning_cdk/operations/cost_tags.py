"""The tags by which a cluster's costs are found: on everything that can have them, also volumes and interfaces."""

from collections.abc import Callable
from typing import Any

import jsii
from aws_cdk import IResolvable, IStableAnyProducer, Lazy, Tags
from aws_cdk import aws_autoscaling as autoscaling
from constructs import Construct

from deeplearning_contract.names import CANDIDATE_TAG, CLUSTER_TAG, FIRST_CANDIDATE, ROLE_TAG, NodeRole

NAME_TAG = "Name"
_LAUNCHED_TYPES = ("volume", "network-interface")
_TAGS_FOR_EVER = ["AWS::EC2::PlacementGroup"]
"""Types that another tag would replace, which fails while nodes are placed in them; they cost nothing."""


def name_tags(cluster: str, node_role: NodeRole) -> dict[str, str]:
    """Return the tags of the nodes of a role."""
    return {
        CANDIDATE_TAG: FIRST_CANDIDATE,
        CLUSTER_TAG: cluster,
        ROLE_TAG: node_role.value,
        NAME_TAG: f"{cluster}-{node_role.value}",
    }


def tag_costs(scope: Construct, cluster: str) -> str:
    """
    Put the cluster's tag on everything in a construct that takes tags.

    It shows in cost reports once it is activated as a cost allocation tag in the billing console.

    Args:
        scope: The cluster.
        cluster: Its name.

    Returns:
        The name.
    """
    Tags.of(scope).add(CLUSTER_TAG, cluster, exclude_resource_types=_TAGS_FOR_EVER)
    return cluster


def tag_launched(group: Callable[[], autoscaling.CfnAutoScalingGroup]) -> IResolvable:
    """
    Return for a launch template the tags of a group's instances, for what is launched with them.

    A group gives its tags to instances alone; their volumes and interfaces would show in no cost report.

    Args:
        group: Gives the group, which is made after its template; all its tags are known at synthesis only.
    """
    return Lazy.any(_LaunchedTags(group))


@jsii.implements(IStableAnyProducer)
class _LaunchedTags:
    """Tag specifications of a launch template, from the propagated tags of a group."""

    def __init__(self, group: Callable[[], autoscaling.CfnAutoScalingGroup]) -> None:
        self._group = group

    def produce(self) -> Any:
        """Return the specifications, as CDK asks at synthesis."""
        tags = [
            {"key": tag["key"], "value": tag["value"]}
            for tag in self._group().tags.render_tags() or []
            if tag.get("propagateAtLaunch", True)
        ]
        return [{"resourceType": kind, "tags": tags} for kind in _LAUNCHED_TYPES]
