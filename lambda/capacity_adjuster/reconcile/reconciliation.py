"""
Reconciliation: reads, reads again, acts, and may die between any two calls.

Every step is safe to repeat and leaves what the next invocation needs. Steps that must happen once are written by
compare-and-set; the loser of that race stops, since another invocation, or the master, continues.
"""

import logging
import math
from dataclasses import replace

from botocore.exceptions import ClientError

from capacity_adjuster.aws.log_lines import line_fields
from capacity_adjuster.policy.breaker import LAUNCH_PROCESS, Rearm, RecordMembers, Trip
from capacity_adjuster.policy.decision import (
    Outcome,
    Resume,
    Shrink,
    Wait,
    describe_decision,
    judge_denial,
)
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile.adapters import LOST_RACE, Adapters
from capacity_adjuster.reconcile.block_start import BlockStart
from capacity_adjuster.reconcile.candidate_change import CandidateChange
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import RESERVE_SECONDS, Observer
from capacity_adjuster.reconcile.shutdown import Shutdown
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.log_record import REASON
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.settings import AdjusterSettings

logger = logging.getLogger(__name__)
_DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"})


class Reconciliation:
    """
    One run from observation to action; `budget_message` is the id of a message with which AWS Budgets requests a stop.
    """

    def __init__(self, settings: AdjusterSettings, adapters: Adapters, budget_message: str = "") -> None:
        self._settings = settings
        self._adapters = adapters
        self._budget_message = budget_message
        self.observer = Observer(settings, adapters)
        self._shutdown = Shutdown(settings, adapters, self.observer)
        self._capacity_change = CapacityChange(adapters, self.observer)
        self._block = BlockStart(settings, adapters, self.observer, self._capacity_change)
        self._search = CandidateChange(settings, adapters, self.observer, self._capacity_change)
        self._has_lock = False

    def run(self) -> str:
        """
        Reconcile as far as possible in one invocation, and return the outcome for the log.

        Raises ClientError if AWS refuses a call, and OSError if the stack's URL refuses the signal; the next invocation
        resumes from there.
        """
        observer = self.observer
        try:
            why = observer.read_once()
            # A message of AWS Budgets arrives once: its stop is recorded first, and the request then yields to it.
            may_ask = observer.may_have_request and not self._budget_message
            if may_ask and (asked := self._capacity_change.run(observer.cluster.groups)):
                return asked
            if ended := self._shutdown.run(self._budget_message):
                return ended
            if moved := self._block.run() or self._search.run():
                return self._finish(moved)
            if why and self._adapters.clock.now() < observer.patience_until:
                return why
            if not self._acquire_lock():
                return "skipped: another invocation is running"
            return self._converge()
        except ClientError as error:
            if error.response["Error"]["Code"] in _DENIED_CODES and observer.state is None:
                now = self._adapters.clock.now()
                since = now if observer.cluster.workers else self._adapters.records.note_denial(now)
                decision = judge_denial(observer.cluster, str(error), settings=self._settings, now=now, since=since)
                if isinstance(decision, Outcome):
                    logger.warning("%s", self._write_verdict(decision, is_blind=error.operation_name == "GetItem"))
            raise
        finally:
            # Once a membership is published nothing is urgent, so the lock may expire by itself.
            if self._has_lock and not observer.is_published:
                self._adapters.records.release_lock()

    def _converge(self) -> str:
        while True:
            decision = self.observer.read_until_stable()
            logger.info("decided: %s", describe_decision(decision))
            match decision:
                case Wait():
                    return decision.why
                case Outcome():
                    return self._conclude(decision)
                case Resume():
                    is_done = self.observer.resume_shrink(decision.adjustment)
                case Shrink():
                    is_done = self._shrink(decision)
                case Trip():
                    is_done = self._trip(decision)
                case Rearm():
                    counted_from = math.ceil(self._adapters.clock.now())
                    is_done = self._adapters.records.write(decision.breaker.rearm(counted_from))
                case RecordMembers():
                    is_done = self._adapters.records.write(decision.breaker)
            if not is_done:
                return LOST_RACE

    def _conclude(self, verdict: Outcome) -> str:
        """Write a verdict, unless another candidate may do what the current one refused."""
        if verdict.refusal is not None and self._search.answers(verdict.refusal):
            return self._finish(self._search.leave(verdict.refusal))
        sealed = self._search.seal(verdict.state)
        return self._write_verdict(Outcome(sealed)) if sealed else LOST_RACE

    def _finish(self, moved: str | Outcome) -> str:
        return moved if isinstance(moved, str) else self._write_verdict(moved)

    def _acquire_lock(self) -> bool:
        """
        Acquire the lock of the deciding invocation: a cluster of N nodes starts N of them at about the same time.

        It only saves calls: compare-and-set protects the decision.
        """
        now = self._adapters.clock.now()
        until = now + self._settings.settle_seconds + RESERVE_SECONDS
        self._has_lock = self._adapters.records.acquire_lock(now, until)
        return self._has_lock

    def _shrink(self, decision: Shrink) -> bool:
        """Lower desired to what launched, unless that changes before the launches are suspended."""
        groups, records, observer = self._adapters.groups, self._adapters.records, self.observer
        opened = Adjustment(
            revision=1 + (observer.adjustment.revision if observer.adjustment else 0),
            group=decision.group,
            requested=decision.requested,
            before=decision.desired,
            target=len(decision.launched),
            reason=decision.reason,
            processes=decision.processes,
            lease_until=self._adapters.end_lease(),
        )
        if not records.write(opened):
            return False
        state, desired = observer.state, opened.before
        if observer.has_request() or self._search.has_moved():
            # What found no shrink sets desired at any time: the calls below would undo that.
            records.write(opened.end_at(desired))
            return False
        try:
            groups.suspend(opened.group, opened.processes)
            # For a master that publishes after this read, the group is as if the shrink had come first.
            is_same = observer.read_until_stable(own=opened.close()) == decision and not self._shutdown.is_under_way()
            if is_same and records.read_state() == state:
                groups.set_desired(opened.group, opened.target)
                desired = opened.target
        finally:
            groups.resume(opened.group, opened.processes)
        observer.adjustment = opened.end_at(desired)
        return records.write(observer.adjustment)

    def _trip(self, decision: Trip) -> bool:
        """
        Suspend the launches; the record comes first, so that the next invocation recovers from a crash in between.
        """
        records, breaker = self._adapters.records, replace(decision.breaker, lease_until=self._adapters.end_lease())
        if not records.write(breaker):
            return False
        self._adapters.groups.suspend(breaker.group, (LAUNCH_PROCESS,))
        logger.warning("%s", breaker.reason)
        return records.write(breaker.confirm())

    def _write_verdict(self, verdict: Outcome, *, is_blind: bool = False) -> str:
        records, state = self._adapters.records, verdict.state
        if state.phase is Phase.FAILED:
            # A master that publishes after this read has an impossible cluster: the stack's failure stays correct.
            # Without access to the record, signal the stack nevertheless; the conditional write overwrites nothing.
            if not is_blind and records.read_state() != self.observer.state:
                return LOST_RACE
            # The signal is safe to repeat, and the record ends the work: so the record comes second.
            logger.error("%s", state.reason, extra=line_fields(state.generation, {REASON: state.reason}))
            self._adapters.signal_failure(str(state.reason))
        if not records.write_state(state):
            return LOST_RACE
        if state.phase is Phase.FAILED:
            self._adapters.send_event(
                ClusterEvent(
                    kind=EventKind.FAILED,
                    cluster=state.cluster,
                    generation=state.generation,
                    nodes=0,
                    reason=state.reason,
                )
            )
        if state.phase is Phase.LAUNCHED:
            self._adapters.notify_master(ClusterNotification(state.cluster, state.generation))
        return f"verdict {state.phase.value}: {len(state.expected)} of {state.requested} nodes {state.reason}".rstrip()
