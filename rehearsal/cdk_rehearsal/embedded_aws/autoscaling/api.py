"""The Auto Scaling API in front of the driver, with the refusals of AWS."""

from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import moto.autoscaling.urls
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.core.responses import ActionResult, EmptyResult

from cdk_rehearsal.embedded_aws.autoscaling.activity import grace_left
from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver, describe_activities
from cdk_rehearsal.embedded_aws.base.scaling_group import (
    PROCESSES,
    GroupInstance,
    HealthStatus,
    ScalingGroup,
    now,
    stamp,
)
from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi

_MAX_PAGE = 100


class ScalingApi(StandInApi):
    """Operations of Auto Scaling that a cluster uses."""

    service = "autoscaling"
    error = AutoscalingClientError
    driver: ClassVar[ScalingDriver]

    def describe_auto_scaling_groups(self) -> ActionResult:
        names = self._get_param("AutoScalingGroupNames", [])
        filters = self._get_param("Filters", [])
        with self.driver.lock:
            groups = [
                group
                for name, group in sorted(self.driver.groups.items())
                if (not names or name in names) and all(_matches(group, entry) for entry in filters)
            ]
            page, token = self._page(groups, default=50)
            return ActionResult({"AutoScalingGroups": [group.to_api() for group in page], "NextToken": token})

    def describe_auto_scaling_instances(self) -> ActionResult:
        ids = self._get_param("InstanceIds", [])
        with self.driver.lock:
            rows = [
                entry | {"AutoScalingGroupName": group.name}
                for _, group in sorted(self.driver.groups.items())
                for entry in group.to_api()["Instances"]
                if not ids or entry["InstanceId"] in ids
            ]
        page, token = self._page(rows, default=50)
        return ActionResult({"AutoScalingInstances": page, "NextToken": token})

    def describe_scaling_activities(self) -> ActionResult:
        """Return activities, newest first; those of deleted groups on request."""
        name = self._get_param("AutoScalingGroupName")
        ids = self._get_param("ActivityIds", [])
        if self._get_param("Filters"):
            raise ValidationError("the rehearsal does not filter scaling activities")
        with self.driver.lock:
            deleted = self.driver.deleted if self._get_param("IncludeDeletedGroups") else ()
            groups = [group for group in (*self.driver.groups.values(), *deleted) if name in (None, group.name)]
            if name and not groups:
                self._find_group()
            rows = [row for row in describe_activities(groups) if not ids or row["ActivityId"] in ids]
        page, token = self._page(rows, default=_MAX_PAGE)
        return ActionResult({"Activities": page, "NextToken": token})

    def set_desired_capacity(self) -> ActionResult:
        """Set a group's desired capacity within its sizes, and after its cooldown on request."""
        desired = int(self._get_param("DesiredCapacity"))
        with self.driver.lock:
            group = self._find_group()
            bound = f"above max value {group.max_size}" if desired > group.max_size else ""
            bound = f"below min value {group.min_size}" if desired < group.min_size else bound
            if bound:
                raise ValidationError(f"New SetDesiredCapacity value {desired} is {bound} for the AutoScalingGroup.")
            last = next((activity.end_time for activity in group.activities if activity.end_time), None)
            is_cooling = last is not None and (now() - last).total_seconds() < group.default_cooldown
            if is_cooling and self._get_param("HonorCooldown", if_none=False):
                raise AutoscalingClientError(
                    "ScalingActivityInProgress",
                    f"Scaling activity in progress for {group.name}: cooldown has not ended",
                )
            self._change_desired(group, desired)
        return EmptyResult()

    def update_auto_scaling_group(self) -> ActionResult:
        """Change a group's sizes, and nothing else of it."""
        changes = {name: value for name, value in dict(self._get_params()).items() if value is not None}
        if unknown := set(changes) - {"AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity"}:
            raise ValidationError(f"the rehearsal cannot update {sorted(unknown)} of a group")
        with self.driver.lock:
            group = self._find_group()
            low, high = int(changes.get("MinSize", group.min_size)), int(changes.get("MaxSize", group.max_size))
            desired = int(changes.get("DesiredCapacity", min(max(group.desired, low), high)))
            if low > high:
                raise ValidationError("Min bound, max bound must be in increasing order")
            if not low <= desired <= high:
                raise ValidationError(f"Desired capacity:{desired} must be between the specified min and max values")
            group.min_size, group.max_size = low, high
            self._change_desired(group, desired)
        return EmptyResult()

    def suspend_processes(self) -> ActionResult:
        """Suspend processes of a group, all when none are named."""
        with self.driver.lock:
            group = self._find_group()
            for process in self._read_processes():
                group.suspended.setdefault(process, f"User suspended at {stamp(now())}")
        return EmptyResult()

    def resume_processes(self) -> ActionResult:
        """Resume processes of a group, all when none are named."""
        with self.driver.lock:
            group = self._find_group()
            for process in self._read_processes():
                group.suspended.pop(process, None)
        self.driver.reconcile_soon(group)
        return EmptyResult()

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        """Terminate an instance of a group, which gets smaller by it on request."""
        with self.driver.lock:
            group, entry = self._find_instance()
            if self._get_param("ShouldDecrementDesiredCapacity"):
                if group.desired <= group.min_size:
                    raise ValidationError(
                        f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                        "replacement will violate group's min size constraint."
                    )
                group.desired -= 1
            cause = f"instance {entry.instance_id} was taken out of service in response to a user request"
            return ActionResult({"Activity": self.driver.begin_termination(group, entry, cause).to_api()})

    def set_instance_health(self) -> ActionResult:
        """Set the health of an instance; its group replaces an unhealthy one, unless that is suspended."""
        status = self._get_param("HealthStatus")
        if status not in get_args(HealthStatus):
            raise ValidationError(f"Valid instance health states are: [{', '.join(get_args(HealthStatus))}].")
        with self.driver.lock:
            group, entry = self._find_instance()
            if self._get_param("ShouldRespectGracePeriod", if_none=True) and grace_left(group, entry) > 0:
                return EmptyResult()  # AWS takes the call and does nothing
            entry.failed_check = "user" if status == "Unhealthy" else None
            entry.health_status = status
        self.driver.reconcile_soon(group)
        return EmptyResult()

    def _find_group(self) -> ScalingGroup:
        group = self.driver.groups.get(self._get_param("AutoScalingGroupName"))
        if group is None:
            raise ValidationError("AutoScalingGroup name not found - null")
        return group

    def _find_instance(self) -> tuple[ScalingGroup, GroupInstance]:
        instance_id = self._get_param("InstanceId")
        found = self.driver.find_instance(instance_id)
        if found is None:
            raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
        return found

    def _read_processes(self) -> tuple[str, ...]:
        names = tuple(self._get_param("ScalingProcesses", [])) or PROCESSES
        for name in names:
            if name not in PROCESSES:
                raise ValidationError(f"The process {name} is not valid")
        return names

    def _change_desired(self, group: ScalingGroup, desired: int) -> None:
        if desired != group.desired:
            group.capacity_cause = (
                "a user request explicitly set group desired capacity changing the desired capacity from "
                f"{group.desired} to {desired}"
            )
            group.desired = desired
            group.retry_at = 0.0
        self.driver.reconcile_soon(group)

    def _page(self, rows: Sequence[Any], *, default: int) -> tuple[Sequence[Any], str | None]:
        size = int(self._get_param("MaxRecords", if_none=default))
        if not 1 <= size <= _MAX_PAGE:
            raise ValidationError(f"The number of records requested must be from 1 to {_MAX_PAGE}")
        token = str(self._get_param("NextToken", if_none="0"))
        if not token.isdecimal():
            raise AutoscalingClientError("InvalidNextToken", "The token is not valid.")
        end = int(token) + size
        return rows[int(token) : end], str(end) if end < len(rows) else None


def install_scaling_api(driver: ScalingDriver) -> None:
    """Replace moto's API with one for the groups of a driver."""
    ScalingApi.driver = driver
    ScalingApi.install(moto.autoscaling.urls.url_paths)


def _matches(group: ScalingGroup, entry: dict[str, Any]) -> bool:
    name, values = str(entry["Name"]), entry.get("Values", [])
    if name.startswith("tag:"):
        return any(tag.key == name.removeprefix("tag:") and tag.value in values for tag in group.tags)
    if name == "tag-key":
        return any(tag.key in values for tag in group.tags)
    if name == "tag-value":
        return any(tag.value in values for tag in group.tags)
    raise ValidationError(f"Filter type {name} is not correct. Allowed Filter types are: tag-key, tag-value, tag:<key>")
