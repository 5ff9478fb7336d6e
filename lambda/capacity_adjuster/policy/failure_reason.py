"""Reasons of failed launches, with remedies."""

from collections.abc import Iterable
from dataclasses import dataclass

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import GroupObservation
from deeplearning_contract.launch_failures import classify_failure, clean_message, find_remedy
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

_DEATHS_EACH = 2
"""Early deaths for each requested instance after which no further attempt is awaited."""


@dataclass(frozen=True)
class Shortfall:
    """Launched and requested instances of a group."""

    role: NodeRole  # The group's role
    launched: int  # Instances that launched
    requested: int  # Requested instances
    minimum: int  # Minimum of the cluster


def is_hopeless(group: GroupObservation) -> bool:
    """
    Return whether every launch failed for a mistake in the configuration, so that no instance will ever launch.

    Temporary failures do not count: the mistake may show after them.
    """
    kinds = [classify_failure(activity.message) for activity in group.failed_launches]
    judged = [kind.is_configuration for kind in kinds if kind.is_configuration or not kind.grace_seconds]
    return not group.launched and bool(judged) and all(judged)


def keeps_dying(group: GroupObservation) -> bool:
    """
    Return whether launches die repeatedly before they are in service for a mistake in the configuration.

    The group retries at once, so that it is rarely quiet; the current attempt will end like the earlier ones.
    """
    deaths = sum(activity.is_early_death for activity in group.failed_launches)
    return deaths >= _DEATHS_EACH * max(1, group.desired) and is_hopeless(group)


def find_failure(group: GroupObservation) -> Activity | None:
    """Return the failed launch that explains a group's missing instances; None while an attempt may still succeed."""
    if keeps_dying(group):
        return group.failed_launches[-1]
    return None if group.is_busy else group.standing_failure


def count_grace(group: GroupObservation, failure: Activity, now: float) -> float:
    """Return the seconds for which a group's failed launch may still be temporary; 0 for none."""
    kind = classify_failure(failure.message)
    # Each kind restarts its grace period only once, so that alternating kinds end.
    first = next(other for other in group.failed_launches if classify_failure(other.message) is kind)
    return max(0.0, kind.grace_seconds - (now - first.last_moment)) if kind.grace_seconds else 0.0


def explain_wait(role: NodeRole, failure: Activity) -> str:
    """Return the reason to wait for a group's next launch."""
    return str(_explain(f"{role.value} has not launched yet", failure, "Auto Scaling retries"))


def explain_failure(
    shortfall: Shortfall, failure: Activity, instance_types: Iterable[str] = (), key: str = ""
) -> Reason:
    """
    Return the reason and remedy of a cluster that cannot form.

    The group's instance types name the quota, and `key` the KMS key of the nodes' volumes; empty where unknown.
    """
    remedy = find_remedy(failure.message, instance_types, key)
    if shortfall.role is NodeRole.MASTER:
        return _explain("master did not launch", failure, remedy)
    least = max(1, shortfall.minimum)
    what = f"launched workers must be at least {least}, got {shortfall.launched} of {shortfall.requested}"
    if 0 < shortfall.launched < shortfall.minimum and not classify_failure(failure.message).is_configuration:
        remedy += ", or lower workers.min_capacity"
    return _explain(what, failure, remedy)


def explain_shrink(
    shortfall: Shortfall, failure: Activity, instance_types: Iterable[str] = (), key: str = ""
) -> Reason:
    """Return the reason and remedy of a cluster below its requested size; arguments as of `explain_failure`."""
    what = f"{shortfall.launched} of {shortfall.requested} workers launched, at least {shortfall.minimum} were required"
    return _explain(what, failure, find_remedy(failure.message, instance_types, key))


def _explain(head: str, failure: Activity, remedy: str) -> Reason:
    zone = f" in {failure.zone}" if failure.zone else ""
    message = clean_message(failure.message).rstrip(".") or "no message"
    return Reason(f"{head}: {classify_failure(failure.message).name}{zone}: {message}", remedy)
