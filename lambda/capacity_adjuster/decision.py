"""
The policy: what to do about what was seen. Pure, so that every rule can be tried on values.

It waits while anything is in progress. It only ever lowers the workers' desired capacity, to what launched, never below
the minimum, and only when a failed launch explains what is missing. It gives one verdict, `launched` or `failed`.
"""

from dataclasses import dataclass, field

from capacity_adjuster.adjustment import Adjustment
from capacity_adjuster.failure_reason import Shortfall, classify_failure, explain_failure, explain_shrink
from capacity_adjuster.observation import (
    SUSPENDED_PROCESSES,
    Activity,
    ClusterObservation,
    GroupObservation,
)
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.messages import MAX_REASON
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import AdjusterSettings

DENIED_SECONDS = 180
"""A new role can be denied what it may do for a while, until AWS has spread its policy."""
_FIRST = 1
"""Revision and generation of the first verdict, the only one that the adjuster gives."""


@dataclass(frozen=True)
class Wait:
    """Do nothing now."""

    why: str


@dataclass(frozen=True)
class Resume:
    """Resume what a shrink suspended whose invocation has died."""

    adjustment: Adjustment


@dataclass(frozen=True)
class Shrink:
    """
    Lower the workers' desired capacity to what launched.

    Attributes:
        group: Name of the workers' group.
        launched: Ids of the workers that launched.
        requested: Workers asked for.
        reason: Why fewer launched.
        processes: Processes to suspend, those that nobody has suspended; no part of what is decided.
    """

    group: str
    launched: tuple[str, ...]
    requested: int
    reason: str
    processes: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True)
class Verdict:
    """Write the state item; when it says `failed`, signal the failure first."""

    state: ClusterState


Decision = Wait | Resume | Shrink | Verdict


def decide(
    observed: ClusterObservation,
    *,
    state: ClusterState | None,
    adjustment: Adjustment | None,
    settings: AdjusterSettings,
    now: float,
) -> Decision:
    """
    Decide what to do.

    Args:
        observed: The groups.
        state: The state item; None before there is one.
        adjustment: The record of the last shrink; None before there is one.
        settings: The adjuster's settings.
        now: Seconds since the epoch.
    """
    if adjustment is not None and adjustment.is_open:
        return Wait("another invocation adjusts") if now < adjustment.lease_until else Resume(adjustment)
    if state is not None:
        return Wait(f"the verdict has been given: {state.phase.value}")
    master, workers = observed.master, observed.workers
    if master is None or workers is None or master.is_deleting or workers.is_deleting:
        return Wait("a group is not there yet, or is being deleted")
    if master.is_busy or not master.launched:
        return _judge_master(master, workers, adjustment, settings, now)
    if len(workers.launched) < workers.desired or workers.is_busy:
        return _judge_workers(workers, adjustment, settings, now)
    return _judge_complete(master, workers, adjustment, settings)


def count_requested(workers: GroupObservation, adjustment: Adjustment | None) -> int:
    """
    Count the workers that were asked for.

    Desired says so, unless it is what a shrink of ours left; a user who has changed it since has asked anew.
    """
    is_ours = adjustment is not None and adjustment.group == workers.name and adjustment.target == workers.desired
    return adjustment.requested if adjustment is not None and is_ours else workers.desired


def judge_denial(observed: ClusterObservation, denial: str, *, settings: AdjusterSettings, now: float) -> Decision:
    """
    Decide what to do when AWS denies the adjuster a call.

    Args:
        observed: The groups when they were last seen.
        denial: AWS's words, which name the action.
        settings: The adjuster's settings.
        now: Seconds since the epoch.
    """
    if observed.workers is None or now - observed.workers.created < DENIED_SECONDS:
        return Wait("denied, which may pass by itself")
    reason = f"capacity adjuster must be allowed its calls, got {denial}; check the policies that apply to its role"
    return _give_verdict(settings, Phase.FAILED, observed.workers.desired, (), reason[:MAX_REASON])


def _judge_master(
    master: GroupObservation,
    workers: GroupObservation,
    adjustment: Adjustment | None,
    settings: AdjusterSettings,
    now: float,
) -> Decision:
    failure = None if master.is_busy else master.standing_failure
    if failure is None:
        return Wait("the master has not launched yet")
    if _may_pass(master, failure, now):
        return Wait("the master's launch failed in a way that may pass by itself")
    reason = explain_failure(Shortfall(NodeRole.MASTER, launched=0, requested=1, minimum=1), failure, _types(master))
    return _give_verdict(settings, Phase.FAILED, count_requested(workers, adjustment), (), reason)


def _judge_complete(
    master: GroupObservation, workers: GroupObservation, adjustment: Adjustment | None, settings: AdjusterSettings
) -> Decision:
    if any(len(group.launched) > group.desired and not group.keeps_surplus for group in (master, workers)):
        return Wait("a group is about to terminate what it has too many")
    if len(master.launched) != 1:
        return Wait("there is more than one master")
    requested = max(count_requested(workers, adjustment), len(workers.launched))
    reason = adjustment.reason if adjustment and requested > len(workers.launched) else ""
    return _give_verdict(settings, Phase.LAUNCHED, requested, (*master.launched, *workers.launched), reason)


def _judge_workers(
    workers: GroupObservation, adjustment: Adjustment | None, settings: AdjusterSettings, now: float
) -> Decision:
    if workers.is_busy:
        return Wait("the workers' group is busy")
    failure = workers.standing_failure
    if failure is None:
        return Wait("workers are missing and no launch has failed, so their launch is still to come")
    if _may_pass(workers, failure, now):
        return Wait("a worker's launch failed in a way that may pass by itself")
    requested, launched = count_requested(workers, adjustment), workers.launched
    # A user who raises the group's own minimum has raised the fewest workers too: Auto Scaling would refuse less.
    minimum = max(settings.worker_min_capacity, workers.min_size)
    shortfall = Shortfall(NodeRole.WORKER, launched=len(launched), requested=requested, minimum=minimum)
    if len(launched) < minimum or _is_hopeless(workers):
        reason = explain_failure(shortfall, failure, _types(workers))
        return _give_verdict(settings, Phase.FAILED, requested, (), reason)
    return Shrink(
        group=workers.name,
        launched=launched,
        requested=requested,
        reason=explain_shrink(shortfall, failure, _types(workers)),
        processes=tuple(name for name in SUSPENDED_PROCESSES if name not in workers.suspended),
    )


def _is_hopeless(workers: GroupObservation) -> bool:
    """Tell whether every launch failed for a mistake in the configuration: then no worker will ever come."""
    failures = [classify_failure(activity.message) for activity in workers.failed_launches]
    return not workers.launched and all(failure.is_configuration for failure in failures)


def _may_pass(group: GroupObservation, failure: Activity, now: float) -> bool:
    grace = classify_failure(failure.message).grace_seconds
    return max(0.0, now - group.failed_launches[0].last_moment) < grace


def _types(group: GroupObservation) -> frozenset[str]:
    return frozenset(instance.instance_type for instance in group.instances if instance.instance_type)


def _give_verdict(
    settings: AdjusterSettings, phase: Phase, workers_requested: int, expected: tuple[str, ...], reason: str
) -> Verdict:
    return Verdict(
        ClusterState(
            cluster=settings.cluster,
            revision=_FIRST,
            generation=_FIRST,
            phase=phase,
            requested=1 + workers_requested,
            expected=expected,
            reason=reason,
        )
    )
