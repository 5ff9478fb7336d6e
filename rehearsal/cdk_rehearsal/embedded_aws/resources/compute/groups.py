"""Creates Auto Scaling groups."""

import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.autoscaling.notifications import NOTIFICATION_TYPES
from cdk_rehearsal.embedded_aws.base.capacity_pools import PlacedLaunch
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from cdk_rehearsal.embedded_aws.base.scaling_group import GroupTag, ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.launch_check import check_launch
from cdk_rehearsal.embedded_aws.resources.compute.templates import find_template
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator, update_alone
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_TERMINATION_POLICIES = {"Default", "OldestInstance", "NewestInstance"}


def _create_group(creation: Creation) -> Created:
    properties = creation.properties
    scaling = creation.services.scaling
    group = _build_group(creation)
    data = creation.services.launcher.describe_template(group)
    _require_launch(creation, group, data)
    check_launch(group, data, creation.services.place, scaling.faults)
    _report_obstacles(creation, group, data)
    _assume_reservation(creation, group, data)
    scaling.add_group(group)
    topics = {
        topic: tuple(entry.get("NotificationTypes", NOTIFICATION_TYPES))
        for entry in properties.get("NotificationConfigurations", [])
        for topic in ([entry["TopicARN"]] if isinstance(entry["TopicARN"], str) else entry["TopicARN"])
    }
    # CreateAutoScalingGroup has no field for them, so nothing is published before the next call.
    scaling.set_notifications_later(group, topics)

    def change(changed: Mapping[str, Any]) -> None:
        """Let later launches have another version; the instances stay (Auto Scaling user guide, "Launch templates")."""
        version = str(changed["LaunchTemplate"]["Version"])
        tags = [{"Key": tag.key, "Value": tag.value} for tag in group.tags]
        creation.require("autoscaling.UpdateAutoScalingGroup", {"AutoScalingGroupName": group.name, "Tags": tags})
        group.launch_template_version = version

    return Created(
        group.name,
        settle=partial(scaling.settle_group, group),
        delete=partial(scaling.delete_group, group.name),
        update=update_alone("LaunchTemplate", change=change),
    )


def _require_launch(creation: Creation, group: ScalingGroup, data: Mapping[str, Any]) -> None:
    """Raise ClientError unless CloudFormation may create a group, and launch instances of its template."""
    tags = [{"Key": tag.key, "Value": tag.value} for tag in group.tags]
    creation.require("autoscaling.CreateAutoScalingGroup", {"AutoScalingGroupName": group.name, "Tags": tags})
    passed = [each for each, tag in zip(tags, group.tags, strict=True) if tag.propagate]
    for subnet in group.subnet_ids:
        creation.require("ec2.RunInstances", {**data, "SubnetId": subnet, "TagSpecifications": [{"Tags": passed}]})


def _report_obstacles(creation: Creation, group: ScalingGroup, data: Mapping[str, Any]) -> None:
    """
    Report why no launch of a group can succeed, whether anything asks for its capacity or not.

    Auto Scaling takes such a group, and each of its launches fails; a fallback may not launch in a rehearsal.
    """
    name = creation.logical_id
    for error in creation.services.launcher.find_obstacles(data, group.placement_group):
        where = f"{data.get('InstanceType', 'm1.small')} in {', '.join(group.zones)}"
        message = f"no launch of {name} ({where}) can succeed: {error}"
        creation.services.authorizer.note_failure(Principal("other", "", name), f"ec2.RunInstances of {name}", message)


def _assume_reservation(creation: Creation, group: ScalingGroup, data: Mapping[str, Any]) -> None:
    """Let the account have the reservation that the launch template targets, in the zone and of the size of a group."""
    launch = PlacedLaunch.read(data, (list(group.zones) or [""])[0])
    if launch.reservation:
        assumed = Reservation(
            id=launch.reservation,
            zone=launch.zone,
            instance_type=launch.instance_type,
            instances=group.max_size,
            is_block=data.get("InstanceMarketOptions", {}).get("MarketType") == "capacity-block",
        )
        creation.services.capacity.reservations.assume(assumed)


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
    target_groups = tuple(properties.get("TargetGroupARNs", ()))
    _require_target_groups(creation, target_groups)
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
        **_find_launch(creation),
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
        target_groups=target_groups,
    )


def _find_launch(creation: Creation) -> dict[str, Any]:
    """Return what a group launches, as fields of it; exactly one of the ways must be given (CreateAutoScalingGroup)."""
    properties = creation.properties
    given = [name for name in ("LaunchTemplate", "LaunchConfigurationName") if name in properties]
    if len(given) != 1:
        raise ValueError(
            "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or "
            "MixedInstancesPolicy parameter."
        )
    if given == ["LaunchTemplate"]:
        template = find_template(creation, properties["LaunchTemplate"])
        return {
            "launch_template_id": template["LaunchTemplateId"],
            "launch_template_name": template["LaunchTemplateName"],
            "launch_template_version": str(properties["LaunchTemplate"]["Version"]),
        }
    name = properties["LaunchConfigurationName"]
    configuration = creation.services.scaling.launch_configurations.get(name)
    if configuration is None:
        raise ValueError(f"Launch configuration name not found - Launch configuration {name} not found")
    empty = dict.fromkeys(("launch_template_id", "launch_template_name", "launch_template_version"), "")
    return empty | {"launch_configuration": configuration}


def _require_target_groups(creation: Creation, arns: Sequence[str]) -> None:
    """Refuse a target group that is not there in the words of zalando-incubator/kube-ingress-aws-controller#254."""
    try:
        for arn in arns:
            creation.client("elbv2").describe_target_groups(TargetGroupArns=[arn])
    except ClientError as error:
        message = "Provided Target Groups may not be valid. Please ensure they exist and try again."
        raise ValueError(message) from error


CREATORS: dict[str, Creator] = {
    "AWS::AutoScaling::AutoScalingGroup": _create_group,
}
