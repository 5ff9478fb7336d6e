"""Which instances a group finds unhealthy, and why, in the words of Auto Scaling."""

import time

from cdk_rehearsal.embedded_aws.autoscaling.group import GroupInstance, HealthCheck, ScalingGroup

SHUT_DOWN = "Client.InstanceInitiatedShutdown: Instance initiated shutdown"
_CAUSES: dict[HealthCheck, str] = {
    "stopped": "an EC2 health check indicating it has been terminated or stopped",
    "impaired": "an EC2 instance status checks failure",
    "user": "a user health-check",
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
    """
    Return for how many seconds a failed check of an instance still counts for nothing.

    The grace period begins when the instance enters service. It does not spare an instance that EC2 sees stopped or
    terminated.
    """
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
