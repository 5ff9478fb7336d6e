"""
Change of the candidate from which capacity is requested, over one or several invocations.

A candidate is left before the next one is asked: its groups launch nothing any more and are lowered, and must be empty
in two reads. Then the record names the next candidate, and the stack's request follows it. The record comes first each
time, so that the next invocation resumes after one that died. A departure writes its record and then reads those of
requests and shrinks, as they do in turn, so that one of them sees the other and yields; a verdict takes the lease of
the search.
"""

import logging
import math
from collections.abc import Iterable
from dataclasses import replace

from capacity_adjuster.policy.candidate_search import CandidateSearch, Refusal, Stage, explain_search, list_contents
from capacity_adjuster.policy.decision import Outcome
from capacity_adjuster.policy.observation import SUSPENDED_PROCESSES, GroupObservation
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.reconcile.adapters import LOST_RACE, Adapters
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import RESERVE_SECONDS, Observer
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.launch_failures import Scope
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_contract.settings import AdjusterSettings

logger = logging.getLogger(__name__)


class CandidateChange:
    """Search among the candidates of one cluster; without further candidates it reads and does nothing."""

    def __init__(
        self, settings: AdjusterSettings, adapters: Adapters, observer: Observer, capacity_change: CapacityChange
    ) -> None:
        self._settings = settings
        self._adapters = adapters
        self._observer = observer
        self._capacity_change = capacity_change
        self._record: CandidateSearch | None = None

    def run(self) -> str | Outcome:
        """
        Continue the search; return the outcome for the log, or the verdict that ends it.

        The outcome is empty while the candidate that is asked stays, or when there is no search. A refused call ends
        the invocation; the next one resumes from there.
        """
        observer, groups = self._observer, self._observer.cluster.groups
        if not self._observer.order or not groups or any(group.is_deleting for group in groups):
            return ""
        observer.read_state()
        if observer.state is not None:
            return ""
        record = self._adapters.records.read(CandidateSearch)
        if record is not None and record.is_held(self._adapters.clock.now()):
            return "another invocation changes the candidate, or writes the verdict"
        if record is None or record.stage is Stage.ASKING:
            return self._watch(record)
        if record.stage is Stage.RESTING:
            return self._ask_next(record)
        taken = record.hold(self._adapters.end_lease())
        return self._empty(taken) if self._adapters.records.write(taken) else LOST_RACE

    def answers(self, refusal: Refusal) -> bool:
        """Return whether another candidate may do what the current one refused."""
        return self._record is not None and refusal.scope in (Scope.CANDIDATE, Scope.QUOTA)

    def leave(self, refusal: Refusal) -> str | Outcome:
        """Leave the current candidate; return the outcome for the log, or the verdict that ends the search."""
        assert self._record is not None
        contents = list_contents(self._observer.order, self._settings.first_candidate)
        left = self._record.leave(refusal, contents, math.floor(self._adapters.clock.now()))
        record = replace(
            left,
            lease_until=self._adapters.end_lease(),
            processes={
                group.name: tuple(name for name in SUSPENDED_PROCESSES if name not in group.suspended)
                for group in _list_own(left, self._observer.cluster.groups)
            },
        )
        if not self._adapters.records.write(record):
            return LOST_RACE
        last = record.attempts[-1]
        logger.warning(
            "leaving candidate %s: %s, %d of %d workers", last.candidate, last.kind, last.launched, last.requested
        )
        return self._empty(record)

    def has_moved(self) -> bool:
        """Return whether another invocation has changed the search since this one read it; False without a search."""
        return self._record is not None and self._adapters.records.read(CandidateSearch) != self._record

    def seal(self, state: ClusterState) -> ClusterState | None:
        """Return a verdict with its candidate; None when another invocation has changed the candidate meanwhile."""
        if self._record is None:
            return state
        if not self._adapters.records.write(self._record.hold(self._adapters.end_lease())):
            return None
        return replace(state, candidate=self._record.candidate, attempts=self._record.attempts)

    def _watch(self, record: CandidateSearch | None) -> str:
        """Begin the search, or the patience of the candidate, once its request is applied."""
        records, now = self._adapters.records, math.floor(self._adapters.clock.now())
        if record is None or not record.since:
            requested = records.read(RequestedCapacity)
            if requested is not None and record is not None:
                requested = requested.address(record.candidate, record.asked)
            # Launches that never end must not keep the request, and with it the patience, from its begin.
            is_open = requested is not None and requested.is_open
            if is_open and (asked := self._capacity_change.run(self._observer.cluster.groups)):
                return asked
            if requested is not None and requested.asks and not requested.is_open and not requested.is_over:
                begun = CandidateSearch(0, requested.request.candidate, Stage.ASKING, began=now)
                record = (record or begun).count_from(now)
                if not records.write(record):
                    return LOST_RACE
        self._record = record
        if record is not None:
            self._observer.candidates_tried = record.count_tried()
            patience, search = self._settings.patience_seconds, self._settings.search_seconds
            self._observer.patience_until = record.end_patience(patience, search)
        return ""

    def _empty(self, record: CandidateSearch) -> str | Outcome:
        """Empty the groups of a candidate, with the lease of this invocation; ask the next one when nothing is left."""
        groups = self._adapters.groups
        if why := self._find_hindrance():
            return self._release(record, why)
        own = _list_own(record, groups.find())
        for group in own:
            # A retry under way would launch after the group is found empty.
            missing = tuple(name for name in record.processes.get(group.name, ()) if name not in group.suspended)
            groups.suspend(group.name, missing)
        for group in own:
            if group.desired > group.min_size:
                groups.set_desired(group.name, group.min_size)
        if not self._is_empty(record):
            return self._release(record, f"candidate {record.candidate} is being left")
        for group in own:
            groups.resume(group.name, record.processes.get(group.name, ()))
        return self._ask_next(record)

    def _find_hindrance(self) -> str:
        """Return the reason to wait, as another invocation may raise or lower desired; ends a shrink that died."""
        if self._observer.has_request():
            return "the candidate is left after the request for its capacity"
        return "" if self._observer.has_no_shrink() else "the candidate is left after a shrink"

    def _release(self, record: CandidateSearch, why: str) -> str:
        return why if self._adapters.records.write(record.hold(0)) else LOST_RACE

    def _is_empty(self, record: CandidateSearch) -> bool:
        """Return whether the groups are empty, and nothing is in progress, in two reads some time apart."""
        groups, clock, seconds = self._adapters.groups, self._adapters.clock, self._settings.settle_seconds
        for is_last in (False, True):
            own = _list_own(record, groups.find())
            if any(group.instances or group.desired > group.min_size for group in own):
                return False
            if any(each.is_in_progress for group in own for each in groups.read_activities(group.name) or ()):
                return False
            if is_last:
                return True
            if clock.remaining() < seconds + RESERVE_SECONDS:
                return False
            clock.sleep(seconds)
        return False

    def _ask_next(self, record: CandidateSearch) -> str | Outcome:
        now = math.floor(self._adapters.clock.now())
        self._observer.candidates_tried = record.count_tried()
        patience, search = self._settings.patience_seconds, self._settings.search_seconds
        following = record.ask_next(self._observer.order, now, patience_seconds=patience, search_seconds=search)
        if following is None:
            return self._fail(record, now)
        if following.stage is record.stage is Stage.RESTING:
            return "every candidate rests"
        if not self._adapters.records.write(following):
            return LOST_RACE
        if following.stage is Stage.RESTING:
            return "every candidate rests"
        self._send_move(record, following)
        return self._capacity_change.run() or f"candidate {following.candidate} is to be asked"

    def _send_move(self, record: CandidateSearch, following: CandidateSearch) -> None:
        kinds = "".join(f": {attempt.kind}" for attempt in record.attempts[-1:])
        reason = Reason(f"capacity moves from candidate {record.candidate} to {following.candidate}{kinds}")
        logger.warning("%s", reason)
        self._adapters.send_event(
            ClusterEvent(
                kind=EventKind.CAPACITY_MOVED, cluster=self._settings.cluster, generation=0, nodes=0, reason=reason
            )
        )

    def _fail(self, record: CandidateSearch, now: int) -> Outcome:
        requested = max((attempt.requested for attempt in record.attempts), default=0)
        reason = explain_search(record, self._settings.worker_min_capacity, now)
        state = ClusterState(self._settings.cluster, 1, 1, Phase.FAILED, 1 + requested, (), reason)
        return Outcome(replace(state, candidate=record.candidate, attempts=record.attempts))


def _list_own(record: CandidateSearch, groups: Iterable[GroupObservation]) -> list[GroupObservation]:
    """Return the groups of the record's candidate, the workers' first."""
    own = (group for group in groups if record.candidate in ("", group.candidate))
    return sorted(own, key=lambda group: group.role is NodeRole.MASTER)
