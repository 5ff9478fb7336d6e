"""Creates launch templates, placement groups and Auto Scaling groups."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.autoscaling.notifications import NOTIFICATION_TYPES
from cdk_rehearsal.embedded_aws.base.scaling_group import GroupTag, ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.launch_check import check_launch
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_NO_EFFECT_IN_EC2 = ("EbsOptimized", "Monitoring")
_TERMINATION_POLICIES = {"Default", "OldestInstance", "NewestInstance"}
MAX_USER_DATA = 16 * 1024
"""Bytes of user data before base64 (EC2 User Guide)."""


def _create_launch_template(creation: Creation) -> Created:
    properties = creation.properties
    ec2 = creation.client("ec2")
    data = {name: value for name, value in properties["LaunchTemplateData"].items() if name not in _NO_EFFECT_IN_EC2}
    if len(data.get("UserData", "")) * 3 / 4 > MAX_USER_DATA:
        raise ValueError(f"User data is limited to {MAX_USER_DATA} bytes")
    image = str(data.get("ImageId", ""))
    if image.startswith("resolve:ssm:/aws/service/"):
        creation.services.images.seed_parameter(image.removeprefix("resolve:ssm:"))
    elif image.startswith("ami-"):
        creation.services.images.admit(image)
    name = properties.get("LaunchTemplateName") or creation.name(128)
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=_typed(data))["LaunchTemplate"]
    names = ("LaunchTemplateId", "LatestVersionNumber", "DefaultVersionNumber")
    return Created(template["LaunchTemplateId"], {name: str(template[name]) for name in names})


def _create_group(creation: Creation) -> Created:
    properties = creation.properties
    scaling = creation.services.scaling
    group = _build_group(creation)
    data = creation.services.launcher.describe_template(group)
    _require_launch(creation, group, data)
    check_launch(group, data, creation.services.place, scaling.faults)
    scaling.add_group(group)
    topics = {
        topic: tuple(entry.get("NotificationTypes", NOTIFICATION_TYPES))
        for entry in properties.get("NotificationConfigurations", [])
        for topic in ([entry["TopicARN"]] if isinstance(entry["TopicARN"], str) else entry["TopicARN"])
    }
    # CreateAutoScalingGroup has no field for them, so nothing is published before the next call.
    scaling.set_notifications_later(group, topics)
    delete = partial(scaling.delete_group, group.name)
    return Created(group.name, settle=partial(scaling.settle_group, group), delete=delete)


def _require_launch(creation: Creation, group: ScalingGroup, data: Mapping[str, Any]) -> None:
    """Raise ClientError unless CloudFormation may create a group, and launch instances of its template."""
    tags = [{"Key": tag.key, "Value": tag.value} for tag in group.tags]
    creation.require("autoscaling.CreateAutoScalingGroup", {"AutoScalingGroupName": group.name, "Tags": tags})
    passed = [each for each, tag in zip(tags, group.tags, strict=True) if tag.propagate]
    for subnet in group.subnet_ids:
        creation.require("ec2.RunInstances", {**data, "SubnetId": subnet, "TagSpecifications": [{"Tags": passed}]})


def _build_group(creation: Creation) -> ScalingGroup:
    properties = creation.properties
    place = creation.services.place
    name = properties.get("AutoScalingGroupName") or creation.name(255)
    low, high = int(properties["MinSize"]), int(properties["MaxSize"])
    desired = int(properties.get("DesiredCapacity", low))
    if not low <= desired <= high:
        raise ValueError(f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}")
    policies = tuple(properties.get("TerminationPolicies", ("Default",)))
    if not set(policies) <= _TERMINATION_POLICIES:
        raise ValueError(f"TerminationPolicies must be of {sorted(_TERMINATION_POLICIES)} here, got {policies}")
    template = _find_template(creation, properties["LaunchTemplate"])
    subnets = tuple(properties["VPCZoneIdentifier"])
    answer = creation.client("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
    given = properties.get("Tags", [])
    tags = [*given, *({**tag, "PropagateAtLaunch": True} for tag in creation.tags()[len(given) :])]
    return ScalingGroup(
        name=name,
        arn=place.arn("autoscaling", f"autoScalingGroup:{uuid.uuid4()}:autoScalingGroupName/{name}"),
        min_size=low,
        max_size=high,
        desired=desired,
        awaited=desired if creation.services.options.waits_for_desired else low,
        launch_template_id=template["LaunchTemplateId"],
        launch_template_name=template["LaunchTemplateName"],
        launch_template_version=str(properties["LaunchTemplate"]["Version"]),
        subnet_ids=subnets,
        tags=tuple(
            GroupTag(tag["Key"], str(tag["Value"]), is_true(tag.get("PropagateAtLaunch", False))) for tag in tags
        ),
        zones=tuple(sorted({entry["AvailabilityZone"] for entry in answer})),
        placement_group=str(properties.get("PlacementGroup", "")),
        default_cooldown=int(properties.get("Cooldown", 300)),
        health_check_type=str(properties.get("HealthCheckType", "EC2")),
        health_check_grace_period=int(properties.get("HealthCheckGracePeriod", 0)),
        termination_policies=policies,
        protect_new_instances=is_true(properties.get("NewInstancesProtectedFromScaleIn", False)),
    )


def _find_template(creation: Creation, reference: dict[str, Any]) -> dict[str, Any]:
    name = next(name for name in ("LaunchTemplateId", "LaunchTemplateName") if name in reference)
    answer = creation.client("ec2").describe_launch_templates(**{f"{name}s": [reference[name]]})
    template: dict[str, Any] = answer["LaunchTemplates"][0]
    return template


def _typed(value: Any) -> Any:
    """Return numbers and truth values as the API's types; CloudFormation takes them as text too."""
    if isinstance(value, list):
        return [_typed(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    typed = {name: _typed(entry) for name, entry in value.items()}
    for name in ("DeviceIndex", "NetworkCardIndex", "VolumeSize", "Iops", "Throughput", "HttpPutResponseHopLimit"):
        if name in typed:
            typed[name] = int(typed[name])
    for name in ("AssociatePublicIpAddress", "DeleteOnTermination", "Encrypted"):
        if name in typed:
            typed[name] = is_true(typed[name])
    return typed


CREATORS: dict[str, Creator] = {
    "AWS::EC2::LaunchTemplate": _create_launch_template,
    # moto has no placement groups; the lab needs no more than that launch templates can name one.
    "AWS::EC2::PlacementGroup": lambda creation: Created(creation.name(255)),
    "AWS::AutoScaling::AutoScalingGroup": _create_group,
}
