"""What the Auto Scaling API does to groups, with the refusals of AWS; and EC2's health checks."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, get_args

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError

from cdk_rehearsal.embedded_aws.autoscaling.activity import grace_left
from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.autoscaling.group import (
    PROCESSES,
    Activity,
    GroupInstance,
    HealthCheck,
    HealthStatus,
    ScalingGroup,
    now,
    stamp,
)


def find_group(driver: ScalingDriver, name: str) -> ScalingGroup:
    """Return a group; raise ValidationError where there is none of that name."""
    group = driver.groups.get(name)
    if group is None:
        raise ValidationError("AutoScalingGroup name not found - null")
    return group


def age_groups(driver: ScalingDriver, seconds: float) -> None:
    """Let every group have been made so many seconds earlier."""
    with driver.lock:
        for group in driver.groups.values():
            group.created -= timedelta(seconds=seconds)


def set_desired_capacity(driver: ScalingDriver, name: str, desired: int, *, honor_cooldown: bool) -> None:
    """Set a group's desired capacity within its sizes, and after its cooldown where that is to be honoured."""
    with driver.lock:
        group = find_group(driver, name)
        if desired > group.max_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {desired} is above max value {group.max_size} for the AutoScalingGroup."
            )
        if desired < group.min_size:
            raise ValidationError(
                f"New SetDesiredCapacity value {desired} is below min value {group.min_size} for the AutoScalingGroup."
            )
        last = next((activity.end_time for activity in group.activities if activity.end_time), None)
        if honor_cooldown and last and (now() - last).total_seconds() < group.default_cooldown:
            raise AutoscalingClientError(
                "ScalingActivityInProgress", f"Scaling activity in progress for {name}: cooldown has not ended"
            )
        _change_desired(driver, group, desired)


def update_group(driver: ScalingDriver, name: str, changes: Mapping[str, Any]) -> None:
    """Change a group's sizes, and nothing else of it."""
    unknown = set(changes) - {"AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity"}
    if unknown:
        raise ValidationError(f"the rehearsal cannot update {sorted(unknown)} of a group")
    with driver.lock:
        group = find_group(driver, name)
        low, high = int(changes.get("MinSize", group.min_size)), int(changes.get("MaxSize", group.max_size))
        desired = int(changes.get("DesiredCapacity", min(max(group.desired, low), high)))
        if low > high:
            raise ValidationError("Min bound, max bound must be in increasing order")
        if not low <= desired <= high:
            raise ValidationError(f"Desired capacity:{desired} must be between the specified min and max values")
        group.min_size, group.max_size = low, high
        _change_desired(driver, group, desired)


def suspend_processes(driver: ScalingDriver, name: str, processes: Iterable[str]) -> None:
    """Suspend processes of a group, all when none are named."""
    with driver.lock:
        group = find_group(driver, name)
        for process in _known(processes):
            group.suspended.setdefault(process, f"User suspended at {stamp(now())}")


def resume_processes(driver: ScalingDriver, name: str, processes: Iterable[str]) -> None:
    """Resume processes of a group, all when none are named."""
    with driver.lock:
        group = find_group(driver, name)
        for process in _known(processes):
            group.suspended.pop(process, None)
    driver.reconcile_soon(group)


def set_instance_health(driver: ScalingDriver, instance_id: str, status: str, *, respect_grace: bool) -> None:
    """Set the health of an instance; its group replaces an unhealthy one, unless that is suspended."""
    if status not in get_args(HealthStatus):
        raise ValidationError(f"Valid instance health states are: [{', '.join(get_args(HealthStatus))}].")
    with driver.lock:
        group, entry = _find_instance(driver, instance_id)
        if respect_grace and grace_left(group, entry) > 0:
            return  # AWS takes the call and does nothing
        entry.failed_check = "user" if status == "Unhealthy" else None
        entry.health_status = "Unhealthy" if status == "Unhealthy" else "Healthy"
    driver.reconcile_soon(group)


def fail_instance(driver: ScalingDriver, instance_id: str, check: HealthCheck) -> bool:
    """
    Let a health check of EC2 find an instance unhealthy; its group replaces it, unless that is suspended.

    Return whether a group had the instance and was not terminating it already.
    """
    with driver.lock:
        try:
            group, entry = _find_instance(driver, instance_id)
        except ValidationError:
            return False
        entry.failed_check = check
        driver.reconcile_soon(group, after=grace_left(group, entry))
    return True


def terminate_instance(driver: ScalingDriver, instance_id: str, *, decrement: bool) -> Activity:
    """Terminate an instance of a group, which gets smaller by it where `decrement` and its minimum allow."""
    with driver.lock:
        return _terminate(driver, *_find_instance(driver, instance_id), decrement=decrement)


def _find_instance(driver: ScalingDriver, instance_id: str) -> tuple[ScalingGroup, GroupInstance]:
    for group in driver.groups.values():
        entry = group.find(instance_id)
        if entry is not None and entry.lifecycle_state != "Terminating":
            return group, entry
    raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")


def _terminate(driver: ScalingDriver, group: ScalingGroup, entry: GroupInstance, *, decrement: bool) -> Activity:
    if decrement:
        if group.desired <= group.min_size:
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without replacement "
                "will violate group's min size constraint."
            )
        group.desired -= 1
    cause = f"instance {entry.instance_id} was taken out of service in response to a user request"
    return driver.begin_termination(group, entry, cause)


def _change_desired(driver: ScalingDriver, group: ScalingGroup, desired: int) -> None:
    if desired != group.desired:
        group.capacity_cause = (
            f"a user request explicitly set group desired capacity changing the desired capacity from {group.desired} "
            f"to {desired}"
        )
        group.desired = desired
        group.retry_at = 0.0
    driver.reconcile_soon(group)


def _known(processes: Iterable[str]) -> tuple[str, ...]:
    names = tuple(processes) or PROCESSES
    for name in names:
        if name not in PROCESSES:
            raise ValidationError(f"The process {name} is not valid")
    return names
