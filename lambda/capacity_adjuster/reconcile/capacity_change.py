"""
Application of a request of the stack: sets the desired capacity of its groups.

The request's record is written before the first call and after the last, so that the next invocation resumes after one
that died. A shrink and a stop change desired too. Each of the three writes its record and then reads those of the
others, so that one of them sees the other and yields. With further candidates, the request goes to the one that the
search names, and waits while it names none. Before the start of the workers' Capacity Block it is for the master alone.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from botocore.exceptions import BotoCoreError, ClientError

from capacity_adjuster.policy.candidate_search import CandidateSearch, Stage
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.requested_capacity import RequestedCapacity, find_due, is_held, is_idle, plan_targets
from capacity_adjuster.policy.stop_policy import StopRecord, is_at_rest
from capacity_adjuster.reconcile.adapters import LOST_RACE, Adapters
from capacity_adjuster.reconcile.observer import Observer

logger = logging.getLogger(__name__)
ASKED = "capacity was requested"
SETTLED = "no capacity is requested: the cluster is stopped, has failed, or had capacity before"


class CapacityChange:
    """Application of the stack's request for capacity, over one or several invocations."""

    def __init__(self, adapters: Adapters, observer: Observer) -> None:
        self._adapters = adapters
        self._observer = observer

    def run(self, groups: Sequence[GroupObservation] | None = None) -> str:
        """
        Apply the last request if it is still open; return the outcome, empty for no open request.

        Reads the groups unless they are given. A refused call ends the invocation; the next one resumes from there.
        """
        records = self._adapters.records
        requested, search = self._read_request()
        if requested is None or not requested.is_open:
            return ""
        if is_held(requested, self._adapters.clock.now()):
            return "another invocation sets the capacity"
        groups = self._adapters.groups.find() if groups is None else groups
        requested = self._read_block(requested)
        asks = plan_targets(requested, groups)
        if asks is None:
            return ""
        block = requested.block
        is_vain = block is not None and block.is_over
        asks = () if is_vain or is_idle(records.read_state(), requested, groups) else asks
        intended = requested.intend(asks, self._adapters.end_lease())
        if not records.write(intended):
            return LOST_RACE
        hindrance = "" if self._observer.has_no_shrink() else "the request waits for a shrink"
        hindrance = hindrance or ("" if self._read_search() == search else "the request waits for the search")
        if hindrance:
            return hindrance if records.write(intended.release(requested.asks)) else LOST_RACE
        outcome = SETTLED
        if intended.asks and not self._is_stopped(groups):
            self._set(intended, groups)
            outcome = f"{ASKED}; {block.reason}" if block else ASKED
        elif is_vain and block:
            outcome = str(block.reason)
        return outcome if records.write(intended.close()) else LOST_RACE

    def is_under_way(self) -> bool:
        """Return whether a request is being applied."""
        requested = self._adapters.records.read(RequestedCapacity)
        return requested is not None and requested.is_open

    def _read_block(self, requested: RequestedCapacity) -> RequestedCapacity:
        """Return the same revision, with the block for which the workers of a request that is not planned wait."""
        reader = self._adapters.block
        if reader is None or requested.asks or not requested.request.workers:
            return requested
        block = reader.read(self._adapters.clock.now())
        return replace(requested, block=None if block.is_active else block)

    def _read_request(self) -> tuple[RequestedCapacity | None, CandidateSearch | None]:
        """
        Return the request, for the candidate that the search names; None while it names none.

        The groups of a candidate that is no longer in the settings are gone, or go.
        """
        requested, search = self._adapters.records.read(RequestedCapacity), self._read_search()
        if requested is None or search is None or search.candidate not in self._observer.order:
            return requested, search
        is_asking = search.stage is Stage.ASKING
        return (requested.address(search.candidate, search.asked) if is_asking else None), search

    def _read_search(self) -> CandidateSearch | None:
        return self._adapters.records.read(CandidateSearch) if self._observer.order else None

    def _is_stopped(self, groups: Sequence[GroupObservation]) -> bool:
        # A stopped cluster stays stopped, with any request of the stack, until its user scales it up.
        record = self._adapters.records.read(StopRecord)
        if record is None:
            return False
        now = self._adapters.clock.now()
        believed = record.believe(now)
        return believed.is_open or is_at_rest(groups, believed, now)

    def _set(self, requested: RequestedCapacity, groups: Sequence[GroupObservation]) -> None:
        try:
            for ask in find_due(requested.asks, groups, requested.former):
                logger.info("desired capacity of %s: %d -> %d", ask.group, ask.before, ask.target)
                self._adapters.groups.set_desired(ask.group, ask.target)
        except (BotoCoreError, ClientError):
            # A new role is denied for some seconds: others need not wait for this invocation's end.
            self._adapters.records.write(requested.release(requested.asks))
            raise
