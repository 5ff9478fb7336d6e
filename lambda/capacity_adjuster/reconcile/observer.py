"""Observations of one invocation: only the reads that the decision needs, and a second read that confirms it."""

import math
from dataclasses import replace

from capacity_adjuster.policy.breaker import FAILURE_SECONDS, Breaker, Rearm, Trip, needs_record
from capacity_adjuster.policy.candidate_search import list_order
from capacity_adjuster.policy.decision import (
    Decision,
    Outcome,
    Shrink,
    Wait,
    decide,
)
from capacity_adjuster.policy.observation import (
    SUSPENDED_PROCESSES,
    ClusterObservation,
    GroupObservation,
    is_spare,
    is_standing,
    needs_activities,
    needs_decision,
)
from capacity_adjuster.policy.requested_capacity import RequestedCapacity, is_held
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile.adapters import Adapters
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import AdjusterSettings

RESERVE_SECONDS = 10
"""Time of an invocation that is reserved for the action after the last read."""


class Observer:
    """Observer of the cluster in one invocation: what it read last; the records are None before their first write."""

    def __init__(self, settings: AdjusterSettings, adapters: Adapters) -> None:
        self._settings = settings
        self._adapters = adapters
        self.order = list_order(settings.candidates)  # Candidates in order; none without further ones
        self._found: tuple[GroupObservation, ...] = ()
        self._breaker: Breaker | None = None
        self._dying: set[str] = set()
        """Groups whose launches die early, so that most reads see a running attempt."""
        self.cluster = ClusterObservation()
        self.state: ClusterState | None = None
        self.adjustment: Adjustment | None = None  # Also None when it cannot matter
        self.patience_until = math.inf  # Time from which on a candidate that is short of the minimum is refused
        self.candidates_tried = 0  # Candidates that were asked for capacity; 0 when unknown, or without further ones
        self.waits_for_block = False  # Whether the workers wait for their Capacity Block, so that none is the minimum
        self.has_read_state = False  # The state record is not read while instances launch or terminate

    @property
    def is_published(self) -> bool:
        """True once the master maintains the membership, or the cluster has failed."""
        return self.state is not None and self.state.phase is not Phase.LAUNCHED

    @property
    def may_have_request(self) -> bool:
        """True if a request may be open; it waits while instances launch in all groups."""
        asked = (self.cluster.master, self.cluster.workers)
        return needs_decision(self.cluster.groups) or any(group is not None and not group.desired for group in asked)

    def read_once(self) -> str:
        """Return the reason why no decision is needed; empty when one may be."""
        self._found = self._adapters.groups.find()
        self.cluster = ClusterObservation(self._found)
        if not needs_decision(self._found):
            return "instances launch or terminate, or the groups do not exist yet"
        self.read_state()
        if self.state is not None and is_standing(self.cluster, self.state):
            return f"the verdict stands: {self.state.phase.value}"
        return ""

    def read_state(self) -> None:
        """Read the state record, once in this invocation."""
        if not self.has_read_state:
            self.state = self._adapters.records.read_state()
            self.has_read_state = True

    def read_until_stable(self, own: Adjustment | None = None) -> Decision:
        """
        Read until two reads, some time apart, lead to the same decision, or to one that is safe.

        `own` is the record of the current shrink, in place of the stored one.
        """
        clock, last, decision = self._adapters.clock, None, self._read_decision(own)
        while decision != last:
            pause = self._choose_pause(decision, is_held=own is not None)
            if pause is None:
                break
            if clock.remaining() < pause + RESERVE_SECONDS:
                return Wait("no time is left in this invocation")
            clock.sleep(pause)
            if self.state is not None:  # A worker that joined before it died is only now in it.
                self.state = self._adapters.records.read_state()
            last, decision = decision, self._read_decision(own)
        return decision

    def has_request(self) -> bool:
        """Return whether an invocation that may be alive applies a request."""
        return is_held(self._adapters.records.read(RequestedCapacity), self._adapters.clock.now())

    def has_no_shrink(self) -> bool:
        """Return whether no shrink is in progress; ends one whose invocation has died."""
        shrink = self._adapters.records.read(Adjustment)
        if shrink is None or not shrink.is_open:
            return True
        return not shrink.is_held(self._adapters.clock.now()) and self.resume_shrink(shrink)

    def resume_shrink(self, orphan: Adjustment) -> bool:
        """Resume the processes that a dead invocation suspended, after taking over its record."""
        adapters = self._adapters
        taken = replace(orphan, revision=orphan.revision + 1, lease_until=adapters.end_lease())
        if not adapters.records.write(taken):
            return False
        adapters.groups.resume(taken.group, taken.processes)
        self.adjustment = taken.close()
        return adapters.records.write(self.adjustment)

    def _choose_pause(self, decision: Decision, *, is_held: bool) -> float | None:
        """Return the seconds until the next read; None for no further read in this invocation."""
        seconds = self._settings.settle_seconds
        if isinstance(decision, Shrink | Outcome | Trip | Rearm):
            return seconds
        if not isinstance(decision, Wait) or is_held or not decision.seconds:
            return None
        has_time = self._adapters.clock.remaining() >= decision.seconds + seconds + 2 * RESERVE_SECONDS
        return decision.seconds if has_time else None

    def _read_decision(self, own: Adjustment | None) -> Decision:
        adapters, now = self._adapters, self._adapters.clock.now()
        found, self._found = self._found or adapters.groups.find(), ()
        self.cluster = ClusterObservation(tuple(self._add_activities(group, found, now) for group in found))
        if own is not None:
            self.adjustment = own
        elif self._may_have_adjustment():
            self.adjustment = adapters.records.read(Adjustment)
        workers = self.cluster.workers
        has_record = workers is not None and needs_record(workers, self.state, now)
        self._breaker = adapters.records.read(Breaker) if has_record else None
        return decide(
            self.cluster,
            state=self.state,
            adjustment=self.adjustment,
            breaker=self._breaker,
            settings=replace(self._settings, worker_min_capacity=0) if self.waits_for_block else self._settings,
            now=now,
            patience_until=self.patience_until,
        )

    def _add_activities(
        self, group: GroupObservation, found: tuple[GroupObservation, ...], now: float
    ) -> GroupObservation:
        groups = self._adapters.groups
        if is_spare(group, found):
            return replace(group, activities=())
        if self.is_published:
            # Only the breaker acts, which needs the workers' losses.
            is_worker = group.role is NodeRole.WORKER
            since = now - FAILURE_SECONDS
            return replace(group, activities=groups.read_activities(group.name, since)) if is_worker else group
        if not needs_activities(group, found) and group.name not in self._dying:
            return group
        seen = replace(group, activities=groups.read_activities(group.name))
        if seen.stillborn:
            self._dying.add(group.name)
        return seen

    def _may_have_adjustment(self) -> bool:
        """
        Return whether to read the shrink's record: not while the groups are busy or after the membership was published.
        """
        suspended = {name for group in self.cluster.groups for name in group.suspended}
        is_quiet = not self.is_published and not self.cluster.is_busy
        return is_quiet or not suspended.isdisjoint(SUSPENDED_PROCESSES)
