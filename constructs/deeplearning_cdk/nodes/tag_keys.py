"""The tags that instances get: their rules, and the check when all of them are known."""

import re
from collections.abc import Mapping
from typing import Annotated

import jsii
from aws_cdk import aws_autoscaling as autoscaling
from constructs import IValidation

from deeplearning_cdk.props.check import Rule, check_prop

# EC2 user guide, "View tags for your EC2 instances using instance metadata": a key with a slash or a space fails every
# launch. The EC2 API reference (Tag) takes keys of 127 characters, other pages 128.
_KEY = re.compile(r"[A-Za-z0-9:_.,=+@-]{1,127}")
_VALUE = re.compile(r"[\w .:/=+@-]{0,256}")
_PATHS = (".", "..", "_index")
_OWN = "deeplearning:"

InstanceTagKey = Annotated[
    str,
    Rule(
        must="have 1 to 127 letters, digits and :_.,=+@-, and not begin with aws:",
        remedy="rename the tag, or keep it off the cluster with exclude_resource_types",
        is_kept=lambda key: bool(_KEY.fullmatch(key)) and not key.lower().startswith("aws:") and key not in _PATHS,
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
"""Key of a tag of the user's."""

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


@jsii.implements(IValidation)
class InstanceTags:
    """
    Refuses tags with which EC2 would launch no instance, and those of a cluster with another value.

    Args:
        group: The group whose propagated tags are checked.
        own: The tags that the cluster gives it.
    """

    def __init__(self, group: autoscaling.CfnAutoScalingGroup, own: Mapping[str, str]) -> None:
        self._group = group
        self._own = own

    def validate(self) -> list[str]:
        """Return what is wrong, as CDK asks at synth."""
        tags = [tag for tag in self._group.tags.render_tags() or [] if tag.get("propagateAtLaunch", True)]
        return [problem for tag in tags if (problem := self._find_problem(str(tag["key"]), str(tag["value"])))]

    def _find_problem(self, key: str, value: str) -> str:
        try:
            check_prop("tag key", key, InstanceTagKey if self._own.get(key) == value else TagKey)
            check_prop(f"tag {key}", value, TagValue)
        except ValueError as error:
            return str(error)
        return ""
