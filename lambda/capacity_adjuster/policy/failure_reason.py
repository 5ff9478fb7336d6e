"""Judges failed launches, and turns them into a reason that a user can act on."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import GroupObservation
from deeplearning_contract.launch_failures import classify_failure, find_remedy
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

_NOISE = re.compile(r"\s*(Launching EC2 instance failed\.?|Encoded authorization failure message: \S+)")
"""What says nothing, and what differs at each attempt."""
_DEATHS_EACH = 2
"""Early deaths for each instance that is asked for, after which another attempt is not waited for."""


@dataclass(frozen=True)
class Shortfall:
    """How far a group came."""

    role: NodeRole  # The group's role
    launched: int  # Instances that launched
    requested: int  # Instances that were asked for
    minimum: int  # Fewest with which the cluster is wanted


def is_hopeless(group: GroupObservation) -> bool:
    """
    Return whether every launch failed for a mistake in the configuration: then no instance will ever come.

    What passes by itself says nothing: the mistake comes to light after it.
    """
    kinds = [classify_failure(activity.message) for activity in group.failed_launches]
    judged = [kind.is_configuration for kind in kinds if kind.is_configuration or not kind.grace_seconds]
    return not group.launched and bool(judged) and all(judged)


def keeps_dying(group: GroupObservation) -> bool:
    """
    Return whether launches die before they are in service again and again for a mistake in the configuration.

    The group tries again at once, so that it is hardly ever quiet; the attempt under way will end like those before it.
    """
    deaths = sum(activity.is_early_death for activity in group.failed_launches)
    return deaths >= _DEATHS_EACH * max(1, group.desired) and is_hopeless(group)


def find_failure(group: GroupObservation) -> Activity | None:
    """Find the failed launch that explains why a group lacks instances; None while an attempt may still succeed."""
    if keeps_dying(group):
        return group.failed_launches[-1]
    return None if group.is_busy else group.standing_failure


def count_grace(group: GroupObservation, failure: Activity, now: float) -> float:
    """Count the seconds in which a group's failed launch may still pass by itself; 0 when there are none."""
    kind = classify_failure(failure.message)
    # A kind begins anew only once, so that kinds that take turns come to an end.
    first = next(other for other in group.failed_launches if classify_failure(other.message) is kind)
    return max(0.0, kind.grace_seconds - (now - first.last_moment)) if kind.grace_seconds else 0.0


def explain_wait(role: NodeRole, failure: Activity) -> str:
    """Return the reason for which a group's next launch is awaited."""
    return str(_explain(f"{role.value} has not launched yet", failure, "Auto Scaling tries again"))


def explain_failure(
    shortfall: Shortfall, failure: Activity, instance_types: Iterable[str] = (), key: str = ""
) -> Reason:
    """
    Return why there is no cluster, and what to do.

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
    """Return why the cluster is smaller than requested, and what to do; arguments as of `explain_failure`."""
    what = f"{shortfall.launched} of {shortfall.requested} workers launched, at least {shortfall.minimum} were wanted"
    return _explain(what, failure, find_remedy(failure.message, instance_types, key))


def _explain(head: str, failure: Activity, remedy: str) -> Reason:
    zone = f" in {failure.zone}" if failure.zone else ""
    message = " ".join(_NOISE.sub("", failure.message).split()).rstrip(".") or "no message"
    return Reason(f"{head}: {classify_failure(failure.message).name}{zone}: {message}", remedy)
