"""An Auto Scaling group as data: its sizes, instances, activities and suspended processes."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from cdk_rehearsal.machine import MachineHost

LifecycleState = Literal["Pending", "InService", "Terminating"]
HealthStatus = Literal["Healthy", "Unhealthy"]
HealthCheck = Literal["stopped", "impaired", "user", "balancer"]
"""Check that an instance failed: of its state, EC2's status checks, `SetInstanceHealth`, or its load balancer's."""
PROCESSES = (
    "Launch",
    "Terminate",
    "AddToLoadBalancer",
    "AlarmNotification",
    "AZRebalance",
    "HealthCheck",
    "InstanceRefresh",
    "ReplaceUnhealthy",
    "ScheduledActions",
)


def now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(timezone.utc)


def stamp(moment: datetime) -> str:
    """Render a time as Auto Scaling does in causes and notifications."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Activity:
    """A scaling activity; `end_time` is None while it is in progress."""

    group_name: str
    group_arn: str
    description: str
    cause: str
    details: str
    status_code: str = "InProgress"
    status_message: str = ""
    error_code: str = ""  # of EC2, where it refused a launch
    progress: int = 50
    instance_id: str = ""
    activity_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    start_time: datetime = field(default_factory=now)
    end_time: datetime | None = None

    @property
    def is_failed_launch(self) -> bool:
        """True for a launch that failed for a reason of EC2's."""
        return self.status_code in ("Failed", "Cancelled") and bool(self.status_message)

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        document: dict[str, Any] = {
            "ActivityId": self.activity_id,
            "AutoScalingGroupName": self.group_name,
            "AutoScalingGroupARN": self.group_arn,
            "Description": self.description,
            "Cause": self.cause,
            "StartTime": self.start_time,
            "StatusCode": self.status_code,
            "Progress": self.progress,
            "Details": self.details,
        }
        if self.end_time is not None:
            document["EndTime"] = self.end_time
        if self.status_message:
            document["StatusMessage"] = self.status_message
        return document


@dataclass
class GroupInstance:
    """An instance of a group; `failed_check` is None while it passes all, `in_service_at` monotonic time or None."""

    instance_id: str
    instance_type: str
    zone: str
    launched: datetime
    lifecycle_state: LifecycleState = "Pending"
    health_status: HealthStatus = "Healthy"
    protected: bool = False
    failed_check: HealthCheck | None = None
    launch: Activity | None = None
    in_service_at: float | None = None

    def to_api(self) -> dict[str, Any]:
        """Return the API's form, without the launch template."""
        return {
            "InstanceId": self.instance_id,
            "InstanceType": self.instance_type,
            "AvailabilityZone": self.zone,
            "LifecycleState": self.lifecycle_state,
            "HealthStatus": self.health_status,
            "ProtectedFromScaleIn": self.protected,
        }


@dataclass(frozen=True)
class GroupTag:
    """A tag of a group."""

    key: str
    value: str
    propagate: bool

    def to_api(self) -> dict[str, Any]:
        """Return the API's form, without the group."""
        own = {"Key": self.key, "Value": self.value, "PropagateAtLaunch": self.propagate}
        return {"ResourceType": "auto-scaling-group", **own}


@dataclass(frozen=True)
class LaunchConfiguration:
    """A launch configuration, with the data that a launch template would have."""

    name: str
    data: Mapping[str, Any]


@dataclass
class ScalingGroup:
    """State of a group; the driver's lock guards it."""

    name: str
    arn: str
    min_size: int
    max_size: int
    desired: int
    launch_template_id: str
    launch_template_name: str
    launch_template_version: str
    subnet_ids: Sequence[str]
    tags: Sequence[GroupTag]
    zones: Sequence[str]
    placement_group: str = ""
    default_cooldown: int = 300
    health_check_type: str = "EC2"
    health_check_grace_period: int = 0
    termination_policies: Sequence[str] = ("Default",)
    protect_new_instances: bool = False
    created: datetime = field(default_factory=now)
    instances: list[GroupInstance] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    suspended: dict[str, str] = field(default_factory=dict)
    notifications: dict[str, tuple[str, ...]] = field(default_factory=dict)  # topic ARN -> types, once they are set
    awaited: int = 0  # instances in service that complete the resource of a new group
    pending_launches: int = 0  # without an instance yet
    attempts: int = 0
    replacements: int = 0  # unhealthy instances whose replacement was not launched yet
    failures: int = 0  # launches that failed in a row
    retry_at: float = 0.0  # monotonic time before which no launch is tried
    deleting: bool = False
    capacity_cause: str = ""
    host: MachineHost | None = None  # of its instances, where that is not the lab
    launch_configuration: LaunchConfiguration | None = None  # instead of a launch template
    target_groups: Sequence[str] = ()  # ARNs

    @property
    def own_tags(self) -> dict[str, str]:
        """Its tags, key -> value, whether instances get them or not."""
        return {tag.key: tag.value for tag in self.tags}

    @property
    def launch_tags(self) -> dict[str, str]:
        """Tags of its instances, key -> value."""
        return {tag.key: tag.value for tag in self.tags if tag.propagate} | {"aws:autoscaling:groupName": self.name}

    @property
    def active(self) -> list[GroupInstance]:
        """Instances that count towards the desired capacity."""
        return [instance for instance in self.instances if instance.lifecycle_state != "Terminating"]

    @property
    def in_service(self) -> int:
        """Number of instances in service."""
        return sum(instance.lifecycle_state == "InService" for instance in self.instances)

    def find(self, instance_id: str) -> GroupInstance | None:
        """Return an instance of the group."""
        return next((entry for entry in self.instances if entry.instance_id == instance_id), None)

    def choose_victims(self, count: int) -> list[GroupInstance]:
        """Return the instances that a scale-in terminates, by the first termination policy; not the protected ones."""
        newest_first = "NewestInstance" in self.termination_policies[:1]
        candidates = [entry for entry in self.active if not entry.protected]
        return sorted(candidates, key=lambda entry: entry.launched, reverse=newest_first)[:count]

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        template = {
            "LaunchTemplateId": self.launch_template_id,
            "LaunchTemplateName": self.launch_template_name,
            "Version": self.launch_template_version,
        }
        source: dict[str, Any] = {"LaunchTemplate": template}
        if self.launch_configuration is not None:
            source = {"LaunchConfigurationName": self.launch_configuration.name}
        document: dict[str, Any] = {
            "AutoScalingGroupName": self.name,
            "AutoScalingGroupARN": self.arn,
            **source,
            "MinSize": self.min_size,
            "MaxSize": self.max_size,
            "DesiredCapacity": self.desired,
            "DefaultCooldown": self.default_cooldown,
            "AvailabilityZones": list(self.zones),
            "LoadBalancerNames": [],
            "TargetGroupARNs": list(self.target_groups),
            "HealthCheckType": self.health_check_type,
            "HealthCheckGracePeriod": self.health_check_grace_period,
            "Instances": [entry.to_api() | source for entry in self.instances],
            "CreatedTime": self.created,
            "SuspendedProcesses": [
                {"ProcessName": process, "SuspensionReason": reason} for process, reason in self.suspended.items()
            ],
            "VPCZoneIdentifier": ",".join(self.subnet_ids),
            "EnabledMetrics": [],
            "Tags": [tag.to_api() | {"ResourceId": self.name} for tag in self.tags],
            "TerminationPolicies": list(self.termination_policies),
            "NewInstancesProtectedFromScaleIn": self.protect_new_instances,
        }
        if self.placement_group:
            document["PlacementGroup"] = self.placement_group
        if self.deleting:
            document["Status"] = "Delete in progress"
        return document
