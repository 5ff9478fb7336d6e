"""The tags of a launched instance, with EC2's rule for those that instance metadata shows."""

import re
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.group import ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.launch_faults import LaunchError

_METADATA_KEY = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}")
_RESERVED_KEYS = frozenset({".", "..", "_index"})


def collect_tags(group: ScalingGroup, data: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the tags of an instance: the launch template's, then those that its group propagates.

    Args:
        group: The group that launches.
        data: Data of its launch template.

    Raises:
        LaunchError: Instance metadata is to show the tags, and a key is not fit for a URL (EC2 User Guide).
    """
    tags = {
        tag["Key"]: tag["Value"]
        for specification in data.get("TagSpecifications", [])
        if specification["ResourceType"] == "instance"
        for tag in specification["Tags"]
    }
    tags |= {tag.key: tag.value for tag in group.tags if tag.propagate}
    tags |= {"aws:autoscaling:groupName": group.name}
    if data.get("MetadataOptions", {}).get("InstanceMetadataTags") == "enabled":
        for key in tags:
            if not _METADATA_KEY.fullmatch(key) or key in _RESERVED_KEYS:
                raise LaunchError(
                    "InvalidParameterValue",
                    f"'{key}' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{{1,255}}), "
                    "and must not be a reserved name ('.', '..', '_index')",
                )
    return tags
