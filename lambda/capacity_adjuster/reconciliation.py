"""
Carries decisions out: looks, looks again, acts, and may die between any two calls.

Every step is safe to repeat and leaves behind what the next invocation needs. What must happen once is written by
compare-and-set; who loses that race stops, because another invocation is at it.
"""

import logging
import math
from dataclasses import replace

from botocore.exceptions import ClientError

from capacity_adjuster.adjustment import Adjustment
from capacity_adjuster.decision import (
    Decision,
    Resume,
    Shrink,
    Verdict,
    Wait,
    decide,
    judge_denial,
)
from capacity_adjuster.edges import Edges
from capacity_adjuster.observation import (
    SUSPENDED_PROCESSES,
    ClusterObservation,
    GroupObservation,
    needs_activities,
    needs_decision,
)
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.messages import Doorbell
from deeplearning_contract.settings import AdjusterSettings

logger = logging.getLogger(__name__)

RESERVE_SECONDS = 10
"""Kept of an invocation's time for acting on the last look."""
_SKEW_SECONDS = 5
"""Clocks of two invocations differ by less."""
_DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"})
_LOST_RACE = "another invocation was faster"


class Reconciliation:
    """
    One run from what is seen to what is to be done.

    Args:
        settings: The adjuster's settings.
        edges: What it acts on.
    """

    def __init__(self, settings: AdjusterSettings, edges: Edges) -> None:
        self._settings = settings
        self._edges = edges
        self._observed = ClusterObservation()
        self._adjustment: Adjustment | None = None
        self._found: tuple[GroupObservation, ...] = ()
        self._is_watching = False

    def run(self) -> str:
        """
        Reconcile as far as it goes in one invocation.

        Returns:
            What came of it, in words, for the log.

        Raises:
            botocore.exceptions.ClientError: AWS refused a call; the next invocation goes on from there.
            OSError: The stack's signal could not be delivered.
        """
        state: ClusterState | None = None
        try:
            self._found = self._edges.groups.find()
            self._observed = ClusterObservation(self._found)
            if not needs_decision(self._found):
                return "instances come and go, or the groups are not there yet"
            if not self._watch():
                return "another invocation looks already"
            state = self._edges.records.read_state()
            return self._converge(state)
        except ClientError as error:
            if error.response["Error"]["Code"] in _DENIED_CODES and state is None:
                now = self._edges.clock.now()
                decision = judge_denial(self._observed, str(error), settings=self._settings, now=now)
                if isinstance(decision, Verdict):
                    logger.warning("%s", self._give(decision))
            raise
        finally:
            # After a verdict there is nothing left to look at, so that watch may end by itself.
            if self._is_watching and state is None:
                self._edges.records.end_watch()

    def _converge(self, state: ClusterState | None) -> str:
        while True:
            decision = self._settle(state)
            logger.info("decided: %s", decision)
            match decision:
                case Wait():
                    return decision.why
                case Verdict():
                    return self._give(decision)
                case Resume():
                    is_done = self._resume(decision.adjustment)
                case Shrink():
                    is_done = self._shrink(decision)
            if not is_done:
                return _LOST_RACE

    def _settle(self, state: ClusterState | None = None, own: Adjustment | None = None) -> Decision:
        """Look until two looks, some time apart, lead to the same decision, or to none."""
        clock, seconds = self._edges.clock, self._settings.settle_seconds
        decision = self._look(state, own)
        while isinstance(decision, Shrink | Verdict):
            if clock.remaining() < seconds + RESERVE_SECONDS:
                return Wait("no time is left in this invocation")
            clock.sleep(seconds)
            last, decision = decision, self._look(state, own)
            if decision == last:
                break
        return decision

    def _watch(self) -> bool:
        """
        Let one invocation look closely, because a cluster of N nodes wakes N of them at about the same time.

        It only spares calls: what is decided is kept safe by compare-and-set.
        """
        now = self._edges.clock.now()
        until = now + self._settings.settle_seconds + RESERVE_SECONDS
        self._is_watching = self._edges.records.begin_watch(now, until)
        return self._is_watching

    def _look(self, state: ClusterState | None, own: Adjustment | None) -> Decision:
        edges = self._edges
        if state is None:
            found, self._found = self._found or edges.groups.find(), ()
            self._observed = ClusterObservation(tuple(self._add_activities(group, found) for group in found))
        if own is not None:
            self._adjustment = own
        elif state is not None or self._may_have_adjustment():
            self._adjustment = edges.records.read_adjustment()
        return decide(
            self._observed,
            state=state,
            adjustment=self._adjustment,
            settings=self._settings,
            now=edges.clock.now(),
        )

    def _add_activities(self, group: GroupObservation, found: tuple[GroupObservation, ...]) -> GroupObservation:
        if not needs_activities(group, found):
            return group
        return replace(group, activities=self._edges.groups.read_activities(group.name))

    def _may_have_adjustment(self) -> bool:
        """Spare the read while the groups are busy; a suspended process shows itself."""
        suspended = {name for group in self._observed.groups for name in group.suspended}
        return not self._observed.is_busy or not suspended.isdisjoint(SUSPENDED_PROCESSES)

    def _shrink(self, decision: Shrink) -> bool:
        """Lower desired to what launched, unless that changes before nothing can launch any more."""
        groups, records = self._edges.groups, self._edges.records
        opened = Adjustment(
            revision=1 + (self._adjustment.revision if self._adjustment else 0),
            group=decision.group,
            requested=decision.requested,
            target=len(decision.launched),
            reason=decision.reason,
            processes=decision.processes,
            lease_until=self._end_lease(),
        )
        if not records.write_adjustment(opened):
            return False
        try:
            groups.suspend(opened.group, opened.processes)
            if self._settle(own=opened.close()) == decision and records.read_state() is None:
                groups.set_desired(opened.group, opened.target)
        finally:
            groups.resume(opened.group, opened.processes)
        self._adjustment = opened.close()
        return records.write_adjustment(self._adjustment)

    def _resume(self, orphan: Adjustment) -> bool:
        """Resume what a dead invocation suspended; only who gets hold of its record may."""
        records = self._edges.records
        taken = replace(orphan, revision=orphan.revision + 1, lease_until=self._end_lease())
        if not records.write_adjustment(taken):
            return False
        self._edges.groups.resume(taken.group, taken.processes)
        self._adjustment = taken.close()
        return records.write_adjustment(self._adjustment)

    def _give(self, verdict: Verdict) -> str:
        records, state = self._edges.records, verdict.state
        if state.phase is Phase.FAILED:
            if records.read_state() is not None:
                return _LOST_RACE
            # The signal is safe to repeat, and the item says that nothing is left to do: so the item comes second.
            self._edges.signal_failure(state.reason)
        if not records.write_state(state):
            return _LOST_RACE
        self._is_watching = False
        if state.phase is Phase.LAUNCHED:
            self._edges.ring_master(Doorbell(state.cluster, state.generation))
        return f"verdict {state.phase.value}: {len(state.expected)} of {state.requested} nodes {state.reason}".rstrip()

    def _end_lease(self) -> int:
        clock = self._edges.clock
        return math.ceil(clock.now() + clock.remaining() + _SKEW_SECONDS)
