"""
The policy: what to do about what was seen. Pure, so that every rule can be tried on values.

It waits while anything is in progress. It only ever lowers the workers' desired capacity, to what launched, never below
the minimum, and only when a failed launch explains what is missing. It says `launched` or `failed`; as long as no
roster is published it says `launched` again, for the next generation, when others are there than it had said. After
that the master keeps the membership, and only the breaker is left.
"""

from dataclasses import dataclass, field, replace

from capacity_adjuster.policy.breaker import Breaker, Rearm, Remember, Trip, judge_breaker
from capacity_adjuster.policy.failure_reason import (
    Shortfall,
    count_grace,
    explain_failure,
    explain_shrink,
    explain_wait,
    find_failure,
    is_hopeless,
    keeps_dying,
)
from capacity_adjuster.policy.observation import (
    SUSPENDED_PROCESSES,
    ClusterObservation,
    GroupObservation,
)
from capacity_adjuster.policy.shrink_record import Adjustment
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_contract.settings import AdjusterSettings

DENIED_SECONDS = 180
"""A new role can be denied what it may do for a while, until AWS has spread its policy."""
_FIRST = 1
"""Revision and generation of the first verdict."""


@dataclass(frozen=True)
class Wait:
    """Do nothing now."""

    why: str  # What is waited for
    # When to look again, where that is known; 0 where it is not. No part of what is decided.
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Resume:
    """Resume what a shrink suspended whose invocation has died."""

    adjustment: Adjustment


@dataclass(frozen=True)
class Shrink:
    """Lower the workers' desired capacity to what launched."""

    group: str  # Name of the workers' group
    desired: int  # Its desired capacity
    launched: tuple[str, ...]  # Ids of the workers that launched
    requested: int  # Workers asked for
    reason: Reason  # Why fewer launched
    # Processes to suspend, those that nobody has suspended; no part of what is decided
    processes: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True)
class Verdict:
    """Write the state item; when it says `failed`, signal the failure first."""

    state: ClusterState


Decision = Wait | Resume | Shrink | Verdict | Trip | Rearm | Remember


def describe_decision(decision: Decision) -> str:
    """Return a decision as a reader of the log wants it: what, and why."""
    match decision:
        case Wait():
            return f"wait: {decision.why}"
        case Verdict():
            state = decision.state
            counts = f"generation {state.generation}, {len(state.expected)} of {state.requested} nodes"
            return f"{state.phase.value}, {counts}" + (f": {state.reason}" if state.reason else "")
        case Resume():
            return "resume what a shrink that died had suspended"
        case Shrink():
            return f"shrink from {decision.requested} to {decision.desired} workers: {decision.reason}"
        case _:
            return type(decision).__name__.lower()


@dataclass(frozen=True)
class _Situation:
    """What a verdict rests on; both groups are there."""

    master: GroupObservation
    workers: GroupObservation
    state: ClusterState | None
    adjustment: Adjustment | None
    settings: AdjusterSettings
    now: float

    @property
    def requested(self) -> int:
        """Workers that were asked for."""
        return count_requested(self.workers, self.adjustment)

    @property
    def minimum(self) -> int:
        """
        Fewest workers with which the cluster is wanted.

        A user who raises the group's own minimum has raised it too: Auto Scaling would refuse less.
        """
        return max(self.settings.worker_min_capacity, self.workers.min_size)


def decide(
    observed: ClusterObservation,
    *,
    state: ClusterState | None,
    adjustment: Adjustment | None,
    breaker: Breaker | None,
    settings: AdjusterSettings,
    now: float,
) -> Decision:
    """
    Decide what to do at a time in seconds since the epoch.

    State and records are None before there are any; the records also when they cannot matter.
    """
    if adjustment is not None and adjustment.is_open:
        return Wait("another invocation adjusts") if adjustment.is_held(now) else Resume(adjustment)
    if state is not None and state.phase is Phase.FAILED:
        return Wait("the cluster has failed")
    master, workers = observed.master, observed.workers
    if master is None or workers is None or master.is_deleting or workers.is_deleting:
        return Wait("a group is not there yet, or is being deleted")
    situation = _Situation(master, workers, state, adjustment, settings, now)
    return judge_breaker(workers, state, breaker, now) or _judge_capacity(situation, breaker)


def _judge_capacity(situation: _Situation, breaker: Breaker | None) -> Decision:
    master, workers, state = situation.master, situation.workers, situation.state
    if state is not None and state.phase is not Phase.LAUNCHED:
        return Wait("a roster is published, so the master keeps the membership")
    if breaker is not None and breaker.is_tripped:
        return _fail(situation, Reason.of(breaker))
    if master.is_busy or not master.launched:
        return _judge_master(situation)
    if len(workers.launched) < workers.desired or workers.is_busy:
        return _judge_workers(situation)
    return _judge_complete(situation)


def count_requested(workers: GroupObservation, adjustment: Adjustment | None) -> int:
    """
    Count the workers that were asked for.

    Desired says so, unless it is what a shrink of ours left; a user who has changed it since has asked anew.
    """
    is_ours = adjustment is not None and adjustment.explains(workers.name, workers.desired)
    return adjustment.requested if adjustment is not None and is_ours else workers.desired


def judge_denial(
    observed: ClusterObservation, denial: str, *, settings: AdjusterSettings, now: float, since: float
) -> Decision:
    """
    Decide what to do when AWS denies the adjuster a call, in words that name the action.

    `since` is the first denial in a row, and `now` this one, in seconds since the epoch.
    """
    if now - (observed.workers.created if observed.workers else since) < DENIED_SECONDS:
        return Wait("denied, which may pass by itself")
    reason = Reason(f"capacity adjuster must be allowed its calls, got {denial}", "check the policies of its role")
    wanted = observed.workers.desired if observed.workers else 0
    return Verdict(_follow(None, settings, Phase.FAILED, requested=1 + wanted, reason=reason))


def _judge_master(situation: _Situation) -> Decision:
    master = situation.master
    failure = find_failure(master)
    if failure is None:
        return Wait("the master has not launched yet")
    grace = count_grace(master, failure, situation.now)
    if grace:
        return Wait(explain_wait(NodeRole.MASTER, failure), grace)
    shortfall = Shortfall(NodeRole.MASTER, launched=0, requested=1, minimum=1)
    return _fail(situation, explain_failure(shortfall, failure, _types(master), situation.settings.encryption_key))


def _judge_complete(situation: _Situation) -> Decision:
    master, workers, adjustment, state = situation.master, situation.workers, situation.adjustment, situation.state
    if any(len(group.launched) > group.desired and not group.keeps_surplus for group in (master, workers)):
        return Wait("a group is about to terminate what it has too many")
    if len(master.launched) != 1:
        return Wait("there is more than one master")
    expected = (*master.launched, *workers.launched)
    if state is not None and state.expected == expected:
        return Wait("the verdict stands")
    requested = max(situation.requested, len(workers.launched))
    reason = Reason.of(adjustment) if adjustment and requested > len(workers.launched) else NO_REASON
    following = _follow(
        state, situation.settings, Phase.LAUNCHED, requested=1 + requested, expected=expected, reason=reason
    )
    return Verdict(replace(following, worker_minimum=situation.minimum))


def _judge_workers(situation: _Situation) -> Decision:
    workers, requested = situation.workers, situation.requested
    if workers.is_busy and not keeps_dying(workers):
        return Wait("the workers' group is busy")
    failure = find_failure(workers)
    if failure is None:
        return Wait("workers are missing and no launch has failed, so their launch is still to come")
    grace = count_grace(workers, failure, situation.now)
    if grace:
        return Wait(explain_wait(NodeRole.WORKER, failure), grace)
    minimum = situation.minimum
    shortfall = Shortfall(NodeRole.WORKER, launched=len(workers.launched), requested=requested, minimum=minimum)
    if shortfall.launched < minimum or is_hopeless(workers):
        return _fail(situation, explain_failure(shortfall, failure, _types(workers), situation.settings.encryption_key))
    if workers.elsewhere:
        return Wait("workers of another group are asked for too, so that none is lowered")
    return Shrink(
        group=workers.name,
        desired=workers.desired,
        launched=workers.launched,
        requested=requested,
        reason=explain_shrink(shortfall, failure, _types(workers), situation.settings.encryption_key),
        processes=tuple(name for name in SUSPENDED_PROCESSES if name not in workers.suspended),
    )


def _types(group: GroupObservation) -> frozenset[str]:
    return frozenset(instance.instance_type for instance in group.instances if instance.instance_type)


def _fail(situation: _Situation, reason: Reason) -> Verdict:
    requested = 1 + situation.requested
    return Verdict(_follow(situation.state, situation.settings, Phase.FAILED, requested=requested, reason=reason))


def _follow(
    state: ClusterState | None,
    settings: AdjusterSettings,
    phase: Phase,
    *,
    requested: int,
    reason: Reason,
    expected: tuple[str, ...] = (),
) -> ClusterState:
    """Follow the last verdict with the next; what is not the adjuster's to say stays as it was."""
    if state is None:
        return ClusterState(settings.cluster, _FIRST, _FIRST, phase, requested, expected).explain(reason)
    generation = state.generation + (phase is Phase.LAUNCHED)
    return state.advance(phase, generation=generation, requested=requested, expected=expected).explain(reason)
