"""Creates scaling policies and scheduled actions: checked as Auto Scaling does, and never acted upon."""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator

_ADJUSTMENTS = ("ChangeInCapacity", "ExactCapacity", "PercentChangeInCapacity")
_CRON_FIELDS = 5


def _create_policy(creation: Creation) -> Created:
    """Create a policy that nothing sets off: the lab has no metrics, and no alarm of it ever changes its state."""
    properties = creation.properties
    group = _find_group(creation)
    kind = properties.get("PolicyType", "SimpleScaling")
    if kind == "TargetTrackingScaling":
        _check_tracking(properties.get("TargetTrackingConfiguration"), group)
    elif properties.get("AdjustmentType") not in _ADJUSTMENTS:
        raise ValueError(f"AdjustmentType must be one of {', '.join(_ADJUSTMENTS)} for the policy type {kind}")
    elif kind == "StepScaling":
        _check_steps(properties.get("StepAdjustments", []))
    elif "ScalingAdjustment" not in properties:
        raise ValueError(f"ScalingAdjustment must be given for the policy type {kind}")
    name = properties.get("PolicyName") or creation.name(255)
    path = f"scalingPolicy:{uuid.uuid4()}:autoScalingGroupName/{group.name}:policyName/{name}"
    arn = creation.services.place.arn("autoscaling", path)
    return Created(arn, {"Arn": arn, "PolicyName": name})


def _find_group(creation: Creation) -> ScalingGroup:
    name = creation.properties["AutoScalingGroupName"]
    group = creation.services.scaling.groups.get(name)
    if group is None:
        raise ValueError(f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")
    return group


def _check_tracking(configuration: Mapping[str, Any] | None, group: ScalingGroup) -> None:
    """Check the metric (Auto Scaling API, `TargetTrackingConfiguration`); the words are the rehearsal's."""
    if configuration is None:
        raise ValueError("TargetTrackingConfiguration must be given for the policy type TargetTrackingScaling")
    metrics = [name for name in configuration if name.endswith("MetricSpecification")]
    if len(metrics) != 1:
        raise ValueError("TargetTrackingConfiguration must have either a predefined or a customized metric")
    metric = configuration.get("PredefinedMetricSpecification", {})
    if metric.get("PredefinedMetricType") != "ALBRequestCountPerTarget":
        return
    label = str(metric.get("ResourceLabel", ""))
    _, mark, target_group = label.partition("/targetgroup/")
    if not label.startswith("app/") or not any(
        mark and arn.endswith(mark[1:] + target_group) for arn in group.target_groups
    ):
        raise ValueError(f"ResourceLabel must name a target group of the Auto Scaling group, got {label!r}")


def _check_steps(steps: Sequence[Mapping[str, Any]]) -> None:
    """Check that steps neither overlap nor leave a gap (Auto Scaling user guide, "Step scaling"); own words."""
    if not steps:
        raise ValueError("StepAdjustments must be given for the policy type StepScaling")
    low, high = float("-inf"), float("inf")
    ranges = sorted(
        (float(step.get("MetricIntervalLowerBound", low)), float(step.get("MetricIntervalUpperBound", high)))
        for step in steps
    )
    if any(first[1] != second[0] for first, second in itertools.pairwise(ranges)):
        raise ValueError(f"StepAdjustments must neither overlap nor leave a gap, got {ranges}")
    if any((start, end) == (low, high) or start >= end for start, end in ranges):
        raise ValueError(f"StepAdjustments must have a lower bound below an upper bound, got {ranges}")
    if low < ranges[0][0] < 0 or 0 < ranges[-1][1] < high:
        raise ValueError(f"StepAdjustments must reach without a bound as far as they lead away from 0, got {ranges}")


def _create_action(creation: Creation) -> Created:
    """Create an action that never comes due: a rehearsal is over too soon."""
    properties = creation.properties
    group = _find_group(creation)
    sizes = properties.select("MinSize", "MaxSize", "DesiredCapacity")
    if not sizes:
        raise ValueError("At least one of MinSize, MaxSize and DesiredCapacity must be given")
    if "MinSize" in sizes and "MaxSize" in sizes and int(sizes["MinSize"]) > int(sizes["MaxSize"]):
        raise ValueError("Min bound, max bound must be in increasing order")
    when = properties.select("StartTime", "Recurrence")
    if not when or ("Recurrence" in when and len(str(when["Recurrence"]).split()) != _CRON_FIELDS):
        raise ValueError(f"Recurrence must have five fields, or StartTime be given, got {when}")
    name = creation.name(255)
    return Created(f"{group.name}|{name}", {"ScheduledActionName": name})


CREATORS: dict[str, Creator] = {
    "AWS::AutoScaling::ScalingPolicy": _create_policy,
    "AWS::AutoScaling::ScheduledAction": _create_action,
}
