"""
Stop of the cluster when its time or its budget is over, with a notice to the nodes before.

The record of a stop comes first, so that a later invocation continues it; the calls after it are safe to repeat. A
shrink or a request would raise desired from zero when a stop comes between its last read and its own call, so each
writes its record and then reads the others': one of them sees the other and yields.
"""

import logging
import math
from dataclasses import replace

from capacity_adjuster.policy.stop_policy import (
    NOTICE_BEGIN,
    AlreadyStopped,
    ScaledUpAgain,
    StartStop,
    StopRecord,
    is_up,
    judge_stop,
    plan_notice,
)
from capacity_adjuster.reconcile.adapters import LOST_RACE, Adapters
from capacity_adjuster.reconcile.observer import Observer
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_contract.settings import AdjusterSettings

logger = logging.getLogger(__name__)
_OVER = 1
"""Expired lease: the next invocation continues the stop."""


class Shutdown:
    """Stop of the cluster, over one or several invocations."""

    def __init__(self, settings: AdjusterSettings, adapters: Adapters, observer: Observer) -> None:
        self._settings = settings
        self._adapters = adapters
        self._observer = observer

    def run(self, message_id: str = "") -> str:
        """
        Stop the cluster, or announce its stop, if it is due; return the outcome, empty while the cluster continues.

        `message_id` is the id of a message with which AWS Budgets requests a stop; empty without one. A refused call
        ends the invocation; the next one resumes from there.
        """
        if not self._settings.has_end:
            return ""
        groups, now = self._observer.cluster.groups, self._adapters.clock.now()
        record = self._adapters.records.read(StopRecord) or StopRecord()
        match judge_stop(groups, record, settings=self._settings, message_id=message_id, now=now):
            case StartStop(record=following):
                return self._stop(following)
            case AlreadyStopped(why=why):
                return self._withdraw() or why
            case ScaledUpAgain(record=following):
                logger.info("the cluster was scaled up after its stop (%s): its time starts again", following.cause)
                return "" if self._adapters.records.write(following) else LOST_RACE
        return self._write_notice(plan_notice(groups, record, settings=self._settings, now=now))

    def is_under_way(self) -> bool:
        """Return whether the cluster is stopped or being stopped."""
        record = self._adapters.records.read(StopRecord) if self._settings.has_end else None
        if record is None:
            return False
        believed = record.believe(self._adapters.clock.now())
        return believed.is_open or believed.is_stopped

    def _stop(self, begun: StopRecord) -> str:
        adapters, record = self._adapters, replace(begun, lease_until=self._adapters.end_lease())
        if not adapters.records.write(record):
            return LOST_RACE
        if why := self._find_hindrance():
            adapters.records.write(replace(record, revision=record.revision + 1, lease_until=_OVER))
            return why
        groups = sorted(self._observer.cluster.groups, key=lambda group: group.role is NodeRole.MASTER)
        if is_up(groups):
            logger.warning("stopping the cluster: %s", record.cause)
            self._send_end(record.cause)
        for group in groups:
            if group.desired > group.min_size:
                adapters.groups.set_desired(group.name, group.min_size)
        if not adapters.records.write(record.close(math.floor(adapters.clock.now()))):
            return LOST_RACE
        return f"stopped: {record.cause}"

    def _find_hindrance(self) -> str:
        """Return the reason to wait, as another invocation may raise desired again; ends a shrink that died."""
        if self._observer.has_request():
            return "the stop waits for a request for capacity"
        return "" if self._observer.has_no_shrink() else "the stop waits for a shrink"

    def _send_end(self, cause: str) -> None:
        state = self._observer.state or self._adapters.records.read_state()
        nodes = sum(len(group.launched) for group in self._observer.cluster.groups)
        self._adapters.send_event(
            ClusterEvent(
                kind=EventKind.FINISHED,
                cluster=self._settings.cluster,
                generation=state.generation if state else 0,
                nodes=nodes,
                reason=Reason(cause),
            )
        )

    def _withdraw(self) -> str:
        return self._write_notice("") if self._observer.state is not None else ""

    def _write_notice(self, notice: str) -> str:
        """Write or remove the notice of a stop in the state record; the notice of a Capacity Block stays."""
        adapters, state = self._adapters, self._observer.state
        if state is None and notice:
            state = adapters.records.read_state()
        if state is None or state.phase is Phase.FAILED or state.notice == notice:
            return ""
        if state.notice and not state.notice.startswith(NOTICE_BEGIN):
            return ""
        if not adapters.records.write_state(state.advance(state.phase, notice=notice)):
            return LOST_RACE
        adapters.notify_master(ClusterNotification(state.cluster, state.generation))
        return f"notice: {notice or 'removed'}"
