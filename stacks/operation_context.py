"""
Reads from the context how a cluster is operated: key, alarms, backups, the image's release, and what it may cost.

    -c encryption_key=arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab
    -c alarm_topic=arn:aws:sns:us-east-1:111122223333:on-call
    -c file_system_backup=false
    -c image_release=2026-11-22, to take the image's current release
    -c stop_when_idle_minutes=60 -c stop_after_hours=48
    -c monthly_budget_usd=5000 -c budget_stops=true
"""

from collections.abc import Mapping
from typing import Any

from aws_cdk import Duration

from deeplearning_cdk import Spending
from deeplearning_cdk.props.check import show_value
from deeplearning_cdk.props.rules import is_arn
from stacks.context_values import ContextError, Reader, read_flag, read_number, read_text


def read_arn(service: str) -> Reader:
    """
    Return a reader of the ARN of something of a service.

    Args:
        service: The service's name in ARNs.
    """

    def read(key: str, value: Any) -> str:
        text = read_text(key, value)
        if not is_arn(service, text):
            raise ContextError(
                f"{key} must be an ARN of {service}, got {show_value(text)}; write arn:aws:{service}:region:account:…"
            )
        return text

    return read


OPERATION_KEYS: Mapping[str, Reader] = {
    "image_release": read_text,
    "file_system_backup": read_flag,
    "stop_when_idle_minutes": read_number,
    "stop_after_hours": read_number,
    "monthly_budget_usd": read_number,
    "budget_stops": read_flag,
}
"""What is a prop of the cluster, or part of its spending."""

SHARED_KEYS: Mapping[str, Reader] = {"encryption_key": read_arn("kms"), "alarm_topic": read_arn("sns")}
"""What the stack looks up by its ARN."""


def take_spending(props: Mapping[str, Any]) -> dict[str, Any]:
    """
    Put what a cluster may cost into one prop.

    Args:
        props: What was read.

    Raises:
        ValueError: It contradicts itself.
    """
    cluster = dict(props)
    idle, after = cluster.pop("stop_when_idle_minutes", None), cluster.pop("stop_after_hours", None)
    spending = Spending(
        stop_when_idle=None if idle is None else Duration.minutes(idle),
        stop_after=None if after is None else Duration.hours(after),
        monthly_budget_usd=cluster.pop("monthly_budget_usd", None),
        budget_stops=cluster.pop("budget_stops", False),
    )
    return cluster if spending == Spending() else cluster | {"spending": spending}
