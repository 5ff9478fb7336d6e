"""The Auto Scaling API in front of the driver; operations that the rehearsal lacks are errors."""

from collections.abc import Sequence
from typing import Any, ClassVar

import moto.autoscaling.urls
from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.core.responses import ActionResult, EmptyResult

from cdk_rehearsal.embedded_aws.autoscaling import requests as scaling_requests
from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver, describe_activities
from cdk_rehearsal.embedded_aws.autoscaling.group import ScalingGroup
from cdk_rehearsal.embedded_aws.autoscaling.requests import find_group
from cdk_rehearsal.embedded_aws.server.stand_in_api import StandInApi

_MAX_PAGE = 100


class ScalingApi(StandInApi):
    """Operations of Auto Scaling that a cluster uses."""

    service = "autoscaling"
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
                groups = [find_group(self.driver, name)]
            rows = [row for row in describe_activities(groups) if not ids or row["ActivityId"] in ids]
        page, token = self._page(rows, default=_MAX_PAGE)
        return ActionResult({"Activities": page, "NextToken": token})

    def set_desired_capacity(self) -> ActionResult:
        scaling_requests.set_desired_capacity(
            self.driver,
            self._get_param("AutoScalingGroupName"),
            int(self._get_param("DesiredCapacity")),
            honor_cooldown=bool(self._get_param("HonorCooldown", if_none=False)),
        )
        return EmptyResult()

    def update_auto_scaling_group(self) -> ActionResult:
        params = {name: value for name, value in dict(self._get_params()).items() if value is not None}
        scaling_requests.update_group(self.driver, params["AutoScalingGroupName"], params)
        return EmptyResult()

    def suspend_processes(self) -> ActionResult:
        processes = self._get_param("ScalingProcesses", [])
        scaling_requests.suspend_processes(self.driver, self._get_param("AutoScalingGroupName"), processes)
        return EmptyResult()

    def resume_processes(self) -> ActionResult:
        processes = self._get_param("ScalingProcesses", [])
        scaling_requests.resume_processes(self.driver, self._get_param("AutoScalingGroupName"), processes)
        return EmptyResult()

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        activity = scaling_requests.terminate_instance(
            self.driver,
            self._get_param("InstanceId"),
            decrement=bool(self._get_param("ShouldDecrementDesiredCapacity")),
        )
        return ActionResult({"Activity": activity.to_api()})

    def set_instance_health(self) -> ActionResult:
        scaling_requests.set_instance_health(
            self.driver,
            self._get_param("InstanceId"),
            self._get_param("HealthStatus"),
            respect_grace=bool(self._get_param("ShouldRespectGracePeriod", if_none=True)),
        )
        return EmptyResult()

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
