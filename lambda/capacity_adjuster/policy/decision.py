"""
Policy of the adjuster: the decision from an observation, as pure functions.

It waits while anything is in progress. It only lowers the workers' desired capacity, to what launched, never below the
minimum, and only when a failed launch explains the missing workers. Its verdict is `launched` or `failed`. Until a
membership is published, other launched instances lead to a new verdict `launched`, for the next generation. After that
the master maintains the membership, and only the breaker acts.
"""

import math
from dataclasses import dataclass, field, replace

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.breaker import Breaker, Rearm, RecordMembers, Trip, judge_breaker
from capacity_adjuster.policy.candidate_search import Refusal
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
from deeplearning_contract.launch_failures import Scope, classify_failure, clean_message
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_contract.settings import AdjusterSettings

DENIED_SECONDS = 180
"""Time for which a new role can be denied until AWS has propagated its policy."""
_FIRST = 1
"""Revision and generation of the first verdict."""


@dataclass(frozen=True)
class Wait:
    """Do nothing now."""

    why: str  # Reason of the wait
    # Time of the next read; 0 when unknown. Not compared between decisions.
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class Resume:
    """Resume the processes that a shrink suspended whose invocation has died."""

    adjustment: Adjustment


@dataclass(frozen=True)
class Shrink:
    """Lower the workers' desired capacity to what launched."""

    group: str  # Name of the workers' group
    desired: int  # Its desired capacity
    launched: tuple[str, ...]  # Ids of the workers that launched
    requested: int  # Requested workers
    reason: Reason  # Reason of the shortfall
    # Processes to suspend, without those that are suspended already; not compared between decisions
    processes: tuple[str, ...] = field(compare=False)


@dataclass(frozen=True)
class Outcome:
    """Write the state record; in phase `failed`, signal the failure first."""

    state: ClusterState
    # What a search among candidates may answer instead of this failure; not compared between decisions
    refusal: Refusal | None = field(default=None, compare=False)


Decision = Wait | Resume | Shrink | Outcome | Trip | Rearm | RecordMembers


def describe_decision(decision: Decision) -> str:
    """Return a decision with its reason, for the log."""
    match decision:
        case Wait():
            words = f"wait: {decision.why}"
        case Outcome():
            state = decision.state
            counts = f"generation {state.generation}, {len(state.expected)} of {state.requested} nodes"
            words = f"{state.phase.value}, {counts}" + (f": {state.reason}" if state.reason else "")
        case Resume():
            words = "resume the processes that an interrupted shrink had suspended"
        case Shrink():
            words = f"shrink from {decision.requested} to {decision.desired} workers: {decision.reason}"
        case Trip():
            words = f"suspend the launches of {decision.breaker.group}: {decision.breaker.reason}"
        case Rearm():
            words = f"count the losses of {decision.breaker.group} from zero, since its launches were resumed"
        case RecordMembers():
            words = f"record {len(decision.breaker.members)} members of {decision.breaker.group}"
    return words


@dataclass(frozen=True)
class _Situation:
    """Input of a verdict; both groups exist."""

    master: GroupObservation
    workers: GroupObservation
    state: ClusterState | None
    adjustment: Adjustment | None
    settings: AdjusterSettings
    now: float

    @property
    def requested(self) -> int:
        """Number of requested workers."""
        return count_requested(self.workers, self.adjustment)

    @property
    def minimum(self) -> int:
        """
        Minimum number of workers.

        A user who raises the group's own minimum raises it too: Auto Scaling would refuse less.
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
    patience_until: float = math.inf,
) -> Decision:
    """
    Return the decision at a time in seconds since the epoch.

    State and records are None before their first write; the records also when they cannot matter. From `patience_until`
    on, a candidate that has not given the minimum is refused.
    """
    if adjustment is not None and adjustment.is_open:
        return Wait("another invocation adjusts") if adjustment.is_held(now) else Resume(adjustment)
    if state is not None and state.phase is Phase.FAILED:
        return Wait("the cluster has failed")
    master, workers = observed.master, observed.workers
    if master is None or workers is None or master.is_deleting or workers.is_deleting:
        return Wait("a group does not exist yet, or is being deleted")
    situation = _Situation(master, workers, state, adjustment, settings, now)
    decision = judge_breaker(workers, state, breaker, now) or _judge_capacity(situation, breaker)
    is_late = isinstance(decision, Wait) and state is None and now >= patience_until
    return (_judge_patience(situation) if is_late else None) or decision


def _judge_capacity(situation: _Situation, breaker: Breaker | None) -> Decision:
    master, workers, state = situation.master, situation.workers, situation.state
    if state is not None and state.phase is not Phase.LAUNCHED:
        return Wait("a membership is published, which the master maintains")
    if breaker is not None and breaker.is_tripped:
        return _fail(situation, breaker.reason)
    if master.is_busy or not master.launched:
        return _judge_master(situation)
    if len(workers.launched) < workers.desired or workers.is_busy:
        return _judge_workers(situation)
    return _judge_complete(situation)


def count_requested(workers: GroupObservation, adjustment: Adjustment | None) -> int:
    """
    Return the number of requested workers.

    It is the desired capacity, unless a shrink of the adjuster set it and no user has changed it since.
    """
    is_ours = adjustment is not None and adjustment.explains(workers.name, workers.desired)
    return adjustment.requested if adjustment is not None and is_ours else workers.desired


def judge_denial(
    observed: ClusterObservation, denial: str, *, settings: AdjusterSettings, now: float, since: float
) -> Decision:
    """
    Return the decision after AWS denied the adjuster a call; `denial` names the action.

    `since` is the first denial in a row, and `now` this one, in seconds since the epoch.
    """
    if now - (observed.workers.created if observed.workers else since) < DENIED_SECONDS:
        return Wait("denied, which may pass by itself")
    reason = Reason(f"capacity adjuster must be allowed its calls, got {denial}", "check the policies of its role")
    wanted = observed.workers.desired if observed.workers else 0
    return Outcome(_follow(None, settings, Phase.FAILED, requested=1 + wanted, reason=reason))


def judge_block(
    state: ClusterState | None, reason: Reason, *, settings: AdjusterSettings, workers: int
) -> Outcome | None:
    """
    Return the failure of a cluster whose workers wait for a Capacity Block that never begins.

    None once a membership is published: the master goes on alone.
    """
    if state is not None and state.phase is not Phase.LAUNCHED:
        return None
    return Outcome(_follow(state, settings, Phase.FAILED, requested=1 + workers, reason=reason))


def _judge_master(situation: _Situation) -> Decision:
    master = situation.master
    failure = find_failure(master)
    if failure is None:
        return Wait("the master has not launched yet")
    grace = count_grace(master, failure, situation.now)
    if grace:
        return Wait(explain_wait(NodeRole.MASTER, failure), grace)
    shortfall = Shortfall(NodeRole.MASTER, launched=0, requested=1, minimum=1)
    reason = explain_failure(shortfall, failure, _types(master), situation.settings.encryption_key)
    return replace(_fail(situation, reason), refusal=_refuse(situation, master, failure))


def _judge_complete(situation: _Situation) -> Decision:
    master, workers, adjustment, state = situation.master, situation.workers, situation.adjustment, situation.state
    if any(len(group.launched) > group.desired and not group.keeps_surplus for group in (master, workers)):
        return Wait("a group is about to terminate its surplus instances")
    if len(master.launched) != 1:
        return Wait("there is more than one master")
    expected = (*master.launched, *workers.launched)
    if state is not None and state.expected == expected:
        return Wait("the verdict stands")
    requested = max(situation.requested, len(workers.launched))
    reason = adjustment.reason if adjustment and requested > len(workers.launched) else NO_REASON
    following = _follow(
        state, situation.settings, Phase.LAUNCHED, requested=1 + requested, expected=expected, reason=reason
    )
    # A user who asked for fewer than the minimum since gets them.
    return Outcome(replace(following, worker_minimum=min(situation.minimum, len(workers.launched))))


def _judge_workers(situation: _Situation) -> Decision:
    workers, requested = situation.workers, situation.requested
    if workers.is_busy and not keeps_dying(workers):
        return Wait("the workers' group is busy")
    failure = find_failure(workers)
    if failure is None:
        return Wait("workers are missing and no launch has failed, so their launch is pending")
    grace = count_grace(workers, failure, situation.now)
    if grace:
        return Wait(explain_wait(NodeRole.WORKER, failure), grace)
    minimum = situation.minimum
    shortfall = Shortfall(NodeRole.WORKER, launched=len(workers.launched), requested=requested, minimum=minimum)
    if shortfall.launched < minimum or is_hopeless(workers):
        reason = explain_failure(shortfall, failure, _types(workers), situation.settings.encryption_key)
        return replace(_fail(situation, reason), refusal=_refuse(situation, workers, failure))
    if workers.elsewhere:
        return Wait("workers are requested from another group too, so none is lowered")
    return Shrink(
        group=workers.name,
        desired=workers.desired,
        launched=workers.launched,
        requested=requested,
        reason=explain_shrink(shortfall, failure, _types(workers), situation.settings.encryption_key),
        processes=tuple(name for name in SUSPENDED_PROCESSES if name not in workers.suspended),
    )


def _judge_patience(situation: _Situation) -> Outcome | None:
    """Refuse a candidate that is short of its minimum; None if it is not, or waits for what every candidate lacks."""
    master, workers = situation.master, situation.workers
    least = min(situation.minimum, workers.desired)
    if master.launched and len(workers.launched) >= least:
        return None
    short = workers if master.launched else master
    failure = next(iter(short.failed_launches[-1:]), None)
    scope = classify_failure(failure.message).scope if failure else Scope.CANDIDATE
    if scope in (Scope.CLUSTER, Scope.REGION):
        return None
    seconds = situation.settings.patience_seconds
    launched = f"{len(workers.launched)} of {workers.desired} workers"
    text = f"{short.role.value} must launch within {seconds} s, got {launched}"
    return replace(_fail(situation, Reason(text)), refusal=_refuse(situation, short, failure))


def _refuse(situation: _Situation, group: GroupObservation, failure: Activity | None) -> Refusal:
    kind = classify_failure(failure.message) if failure else None
    name = kind.name if kind else f"nothing within {situation.settings.patience_seconds} s"
    return Refusal(
        scope=kind.scope if kind else Scope.CANDIDATE,
        kind=f"master: {name}" if group.role is NodeRole.MASTER else name,
        launched=len(situation.workers.launched),
        requested=situation.requested,
        message=clean_message(failure.message) if failure else "",
        zone=failure.zone if failure else "",
    )


def _types(group: GroupObservation) -> frozenset[str]:
    return frozenset(instance.instance_type for instance in group.instances if instance.instance_type)


def _fail(situation: _Situation, reason: Reason) -> Outcome:
    requested = 1 + situation.requested
    return Outcome(_follow(situation.state, situation.settings, Phase.FAILED, requested=requested, reason=reason))


def _follow(
    state: ClusterState | None,
    settings: AdjusterSettings,
    phase: Phase,
    *,
    requested: int,
    reason: Reason,
    expected: tuple[str, ...] = (),
) -> ClusterState:
    """Return the successor of the last verdict; fields of other writers are kept."""
    if state is None:
        return ClusterState(settings.cluster, _FIRST, _FIRST, phase, requested, expected, reason)
    generation = state.generation + (phase is Phase.LAUNCHED)
    return state.advance(phase, generation=generation, requested=requested, expected=expected, reason=reason)
