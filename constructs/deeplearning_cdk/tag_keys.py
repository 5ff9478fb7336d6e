"""Checks the tags that instances get, when all of them are known."""

import re

import jsii
from aws_cdk import aws_autoscaling as autoscaling
from constructs import IValidation

_KEY = re.compile(r"[A-Za-z0-9:_.,=+@-]{1,128}")


@jsii.implements(IValidation)
class InstanceTagKeys:
    """
    Refuses tag keys with which EC2 would launch no instance.

    Instance metadata shows tags as paths, so a key with a slash or a space fails every launch (EC2 user guide, access
    to tags in instance metadata).

    Args:
        group: The group whose propagated tags are checked.
    """

    def __init__(self, group: autoscaling.CfnAutoScalingGroup) -> None:
        self._group = group

    def validate(self) -> list[str]:
        """Return what is wrong, as CDK asks at synth."""
        tags = self._group.tags.render_tags() or []
        return [
            f"tags must have keys of letters, digits and :_.,=+@- on nodes, got {tag['key']!r}; rename the tag, "
            "or keep it off the cluster with exclude_resource_types"
            for tag in tags
            if tag.get("propagateAtLaunch", True) and not _KEY.fullmatch(str(tag["key"]))
        ]
