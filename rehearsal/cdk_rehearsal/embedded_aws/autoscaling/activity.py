"""Scaling activities and health checks of a group, in the words of Auto Scaling."""

import time

from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.base.scaling_group import Activity, GroupInstance, HealthCheck, ScalingGroup, now, stamp
from cdk_rehearsal.embedded_aws.base.signals import Outcome

SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
_CAUSES: dict[HealthCheck, str] = {
    "stopped": "an EC2 health check indicating it has been terminated or stopped",
    "impaired": "an EC2 instance status checks failure",
    "user": "a user health-check",
    "balancer": "an ELB system health check failure",
}


def find_unhealthy(group: ScalingGroup) -> list[GroupInstance]:
    """
    Mark the instances that fail a check, and return those that the group replaces now.

    The caller holds the driver's lock. Of an unhealthy instance of a group whose replacing is suspended, no more is
    seen than its health status; it is replaced when the process is resumed. A suspended HealthCheck silences EC2's
    checks; the user's own has set the health status already.
    """
    for entry in group.active:
        is_looked_at = "HealthCheck" not in group.suspended and grace_left(group, entry) <= 0
        if entry.failed_check is not None and is_looked_at:
            entry.health_status = "Unhealthy"
    if {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
        return []
    return [entry for entry in group.active if entry.health_status == "Unhealthy"]


def grace_left(group: ScalingGroup, entry: GroupInstance) -> float:
    """Return the seconds left of the grace period, which begins in service and spares no stopped instance."""
    if entry.failed_check == "stopped":
        return 0.0
    if entry.in_service_at is None:
        return float(group.health_check_grace_period)
    return max(0.0, entry.in_service_at + group.health_check_grace_period - time.monotonic())


def name_cause(entry: GroupInstance) -> str:
    """Return the cause of the activity that ends an unhealthy instance."""
    return f"an instance was taken out of service in response to {_CAUSES[entry.failed_check or 'user']}"


def explain_early_end(reason: str) -> str:
    """Return the status of a launch whose instance ended too early (hashicorp/terraform-provider-aws#39904)."""
    return (
        f"Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: {reason}"
    )


def begin_launch(group: ScalingGroup) -> Activity:
    """Begin the activity of one launch; the caller holds the driver's lock."""
    if group.replacements:
        group.replacements -= 1
        cause = "an instance was launched in response to an unhealthy instance needing to be replaced"
        return _begin(group, "Launching a new EC2 instance", cause)
    actual = len(group.active) + group.pending_launches
    return _begin(
        group,
        "Launching a new EC2 instance",
        f"{group.capacity_cause}.  At {stamp(now())} an instance was started in response to a difference between "
        f"desired and actual capacity, increasing the capacity from {actual} to {actual + 1}",
    )


def begin_termination(group: ScalingGroup, instance_id: str, cause: str) -> Activity:
    """Begin the activity of one termination; the caller holds the driver's lock."""
    activity = _begin(group, f"Terminating EC2 instance: {instance_id}", cause)
    activity.instance_id = instance_id
    return activity


def name_instance(activity: Activity, instance_id: str) -> None:
    """Set the instance that an activity launches."""
    activity.instance_id, activity.description = instance_id, f"Launching a new EC2 instance: {instance_id}"


def scale_in_cause(group: ScalingGroup) -> str:
    """Return the cause of a termination by scale-in."""
    return (
        f"{group.capacity_cause}.  At {stamp(now())} an instance was taken out of service in response to a difference "
        "between desired and actual capacity"
    )


def end_badly(activity: Activity, error: LaunchError) -> None:
    """End a launch's activity with the failure that EC2 gave."""
    message = f"{error.message} Launching EC2 instance failed."
    activity.description = f"Launching a new EC2 instance.  Status Reason: {message}"
    activity.status_message, activity.error_code = message, error.code
    end(activity, "Failed")


def cancel_launch(activity: Activity, reason: str) -> None:
    """End the activity of a launch whose instance never entered service; `reason` may be empty."""
    activity.status_message = reason
    if reason:
        activity.description += f".  Status Reason: {reason}"
    end(activity, "Cancelled")


def settle(group: ScalingGroup) -> Outcome | None:
    """
    Return the outcome of a new group's creation, as CloudFormation waits for it; None while it lasts.

    CloudFormation "marks the Auto Scaling group as successful (by setting its status to CREATE_COMPLETE) when the
    desired capacity is reached" (the property's documentation). When it gives up is not documented; groups have
    failed with their last activity ("Group did not stabilize", eksctl-io/eksctl#8383), so here a launch that fails
    is enough.
    """
    if group.in_service >= group.awaited:
        return Outcome()
    last = next((activity for activity in group.activities if activity.is_failed_launch), None)
    if last is not None and group.pending_launches == 0:
        return Outcome(f"Group did not stabilize. Last scaling activity: {last.status_message}")
    return None


def _begin(group: ScalingGroup, description: str, cause: str) -> Activity:
    subnet, zone = (list(group.subnet_ids) or [""])[0], (list(group.zones) or [""])[0]
    activity = Activity(
        group_name=group.name,
        group_arn=group.arn,
        description=description,
        cause=f"At {stamp(now())} {cause}.",
        details=f'{{"Subnet ID":"{subnet}","Availability Zone":"{zone}"}}',
    )
    group.activities.insert(0, activity)
    return activity


def end(activity: Activity, status: str) -> None:
    """End an activity with a status of Auto Scaling."""
    activity.status_code = status
    activity.progress = 100
    activity.end_time = now()
