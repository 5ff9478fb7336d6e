"""Tags of a cluster: its cost allocation tag, the tags of its nodes, and the rules for their keys and values."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import jsii
from aws_cdk import IResolvable, IStableAnyProducer, Lazy, Stack, Tags
from aws_cdk import aws_autoscaling as autoscaling
from constructs import Construct, IValidation

from deeplearning_cdk.props.check import Rule, check_prop
from deeplearning_contract.names import CANDIDATE_TAG, CLUSTER_TAG, ROLE_TAG, NodeRole

# EC2 user guide, "View tags for your EC2 instances using instance metadata": a key with a slash or a space fails every
# launch. The EC2 API reference (Tag) takes keys of 127 characters, other pages 128.
_KEY = re.compile(r"[A-Za-z0-9:_.,=+@-]{1,127}")
_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
_PATHS = (".", "..", "_index")
_OWN = "deeplearning:"
_LAUNCHED_TYPES = ("volume", "network-interface")
_UNTAGGED_TYPES = ["AWS::EC2::PlacementGroup"]
"""Resource types that a changed tag would replace, which fails while they contain nodes; they cost nothing."""

InstanceTagKey = Annotated[
    str,
    Rule(
        must="have 1 to 127 letters, digits and :_.,=+@-, and not begin with aws:",
        remedy="rename the tag, or keep it off the cluster and its stack with exclude_resource_types, which takes "
        "aws:cdk:stack for the stack",
        is_kept=lambda key: bool(_KEY.fullmatch(key)) and not key.lower().startswith("aws:"),
    ),
    Rule(
        must=f"be none of {', '.join(_PATHS)}",
        remedy="instance metadata reserves these names, so rename the tag",
        is_kept=lambda key: key not in _PATHS,
    ),
]
"""Key of a tag on nodes."""

TagKey = Annotated[
    InstanceTagKey,
    Rule(
        must=f"not begin with {_OWN}",
        remedy="a cluster finds its nodes by such tags, so take another prefix",
        is_kept=lambda key: not key.lower().startswith(_OWN),
    ),
]
"""Key of a user's tag."""

TagValue = Annotated[
    str,
    Rule(
        must="have at most 256 letters, digits, spaces and _.:/=+-@",
        remedy="shorten it, or leave the others out",
        is_kept=lambda value: bool(_VALUE.fullmatch(value)),
        can_carry=lambda _: True,
    ),
]
"""Value of a tag."""


def tag_costs(scope: Construct, cluster: str) -> str:
    """
    Add the cluster's tag to every resource of a construct that supports tags, and return the cluster's name.

    Cost reports show the tag once it is activated as a cost allocation tag in the billing console.
    """
    Tags.of(scope).add(CLUSTER_TAG, cluster, exclude_resource_types=_UNTAGGED_TYPES)
    return cluster


def name_tags(cluster: str, node_role: NodeRole, candidate: str) -> dict[str, str]:
    """Return the tags of the nodes of a role and a candidate."""
    return {
        CANDIDATE_TAG: candidate,
        CLUSTER_TAG: cluster,
        ROLE_TAG: node_role.value,
        "Name": f"{cluster}-{node_role.value}",
    }


def tag_launched(group: Callable[[], autoscaling.CfnAutoScalingGroup]) -> IResolvable:
    """
    Return the tag specifications of a launch template: the propagated tags of its group, for volumes and interfaces.

    An Auto Scaling group tags instances alone; their volumes and interfaces would be in no cost report. `group` returns
    the group, which is made after its template; its tags are complete at synthesis only.
    """
    return Lazy.any(_LaunchedTags(group))


@jsii.implements(IStableAnyProducer)
class _LaunchedTags:
    def __init__(self, group: Callable[[], autoscaling.CfnAutoScalingGroup]) -> None:
        self._group = group

    def produce(self) -> Any:
        tags = [{"key": tag["key"], "value": tag["value"]} for tag in _propagated_tags(self._group())]
        return [{"resourceType": kind, "tags": tags} for kind in _LAUNCHED_TYPES]


@jsii.implements(IValidation)
class InstanceTags:
    """
    Validation of the tags that a group propagates to its instances.

    It refuses tags with which EC2 would launch no instance, and tags of the cluster (`own`) with another value. Tags of
    the stack are among them: CloudFormation adds them to the resources of a stack, and those of a group to its
    instances (CloudFormation user guide, "Resource tag"), also where the app has excluded the group from them.
    """

    def __init__(self, group: autoscaling.CfnAutoScalingGroup, own: Mapping[str, str]) -> None:
        self._group = group
        self._own = own

    def validate(self) -> list[str]:
        """Return the problems, which the CDK reports at synthesis."""
        tags = _propagated_tags(self._group)
        found = [self._find_problem("tag key", str(tag["key"]), str(tag["value"])) for tag in tags]
        known = {str(tag["key"]) for tag in tags}
        for stack in _list_stacks(self._group):
            prop = f"tag key of the stack {stack.node.path}"
            inherited = {key: value for key, value in stack.tags.tag_values().items() if key not in known}
            found += [self._find_problem(prop, key, value) for key, value in inherited.items()]
        return [problem for problem in found if problem]

    def _find_problem(self, prop: str, key: str, value: str) -> str:
        try:
            check_prop(prop, key, InstanceTagKey if self._own.get(key) == value else TagKey)
            check_prop(f"tag {key}", value, TagValue)
        except ValueError as error:
            return str(error)
        return ""


def _list_stacks(group: Construct) -> list[Stack]:
    """Return the stack of a group and the stacks that it is nested in, whose tags it inherits."""
    stacks = [Stack.of(group)]
    while (parent := stacks[-1].nested_stack_parent) is not None:
        stacks.append(parent)
    return stacks


def _propagated_tags(group: autoscaling.CfnAutoScalingGroup) -> list[Any]:
    return [tag for tag in group.tags.render_tags() or [] if tag.get("propagateAtLaunch", True)]
