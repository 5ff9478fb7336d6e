"""State record in DynamoDB: read consistently, written by compare-and-set, each transition reported by the master."""

import logging
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase, get_request, part_requests, put_requests
from deeplearning_contract.log_record import REASON, SECONDS, STEP
from deeplearning_contract.metrics import FORMATION_SECONDS, GENERATION, NODES_FORMED, NODES_LOST, Metric
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.aws_errors import error_code
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
LOST_RACE_CODE = "ConditionalCheckFailedException"


class StateStore:
    """State record of one cluster."""

    def __init__(self, clients: AwsClients, table: str, cluster: str) -> None:
        self._clients = clients
        self._table = table
        self._cluster = cluster

    def read(self) -> ClusterState | None:
        """Read the state record; None before the first write. ContractError for an invalid one."""
        item = self._get(get_request(self._table, self._cluster))
        if not item:
            return None
        return ClusterState.from_item(item, [self._get(request) for request in part_requests(self._table, item)])

    def write(self, state: ClusterState) -> bool:
        """
        Write the next revision; return False when another writer was faster: the caller then reads and decides again.

        A write whose response was lost is repeated; when the table contains that revision already, it counts as
        written.
        """
        *parts, last = put_requests(self._table, state)
        for request in parts:
            self._clients.dynamodb.put_item(**request)
        try:
            self._clients.dynamodb.put_item(**last, ReturnValuesOnConditionCheckFailure="ALL_OLD")
        except ClientError as error:
            if error_code(error) == LOST_RACE_CODE:
                return bool(error.response.get("Item") == last["Item"])
            raise
        return True

    def _get(self, request: dict[str, Any]) -> dict[str, Any]:
        item: dict[str, Any] = self._clients.dynamodb.get_item(**request).get("Item", {})
        return item


class ReportingStore(StateStore):
    """
    State record of one cluster, as its master uses it.

    Only a write that won the compare-and-set is reported, so two masters never report the same transition.
    """

    def __init__(self, node: Node, clients: AwsClients) -> None:
        """Start to measure the time of the formation."""
        super().__init__(clients, node.settings.state_table, node.settings.cluster)
        self._node = node
        self._known: ClusterState | None = None
        self._began = self._marked = node.clock.read()

    def read(self) -> ClusterState | None:
        """Read the item, as `StateStore`."""
        self._known = super().read()
        return self._known

    def write(self, state: ClusterState) -> bool:
        """Write the next revision, as `StateStore`, and report the transition."""
        before = self._known
        is_written = super().write(state)
        if is_written:
            self._known = state
            self._report_transition(before, state)
        return is_written

    def measure(self) -> dict[Metric, float]:
        """
        Return the size and generation of the cluster; empty until it has formed, and when another node is its master.
        """
        state = self._known
        if state is None or state.phase is not Phase.FORMED or state.master != self._node.identity.instance_id:
            return {}
        return {NODES_FORMED: len(state.members), GENERATION: state.generation}

    def begin_phases(self) -> None:
        """Start the first phase of the formation, in which the node is prepared."""
        self._marked = self._node.clock.read()

    def mark(self, phase: str) -> None:
        """Report the duration of the phase of the first formation that ends now."""
        now = self._node.clock.read()
        seconds, self._marked = now - self._marked, now
        if self._known is None or not self._known.has_formed:
            report_phase(phase, seconds)

    def _report_transition(self, before: ClusterState | None, state: ClusterState) -> None:
        lost = find_lost(before, state)
        if lost:
            details = {REASON: Reason("; ".join(f"{name}: {why}" for name, why in lost.items()))}
            self._note(f"lost {len(lost)} members", state, {NODES_LOST: len(lost)}, details)
        if state.phase is Phase.PUBLISHED and not state.has_formed and before and before.phase is Phase.LAUNCHED:
            self.mark("publish")
        has_formed_now = state.phase is Phase.FORMED and (before is None or before.phase is not Phase.FORMED)
        if has_formed_now and not (before and before.has_formed):
            report_phase("ready", self._node.clock.read() - self._marked)
            report_phase("formed", self._node.clock.read() - self._began)
        for event in find_events(before, state, lost):
            metrics = self.measure() if has_formed_now else {}
            self._note(event.kind.value, state, metrics, {REASON: event.reason} if event.reason else {}, event)

    def _note(
        self,
        words: str,
        state: ClusterState,
        metrics: Mapping[Metric, float],
        details: Mapping[str, Reason],
        event: ClusterEvent | None = None,
    ) -> None:
        fields = LogFields(
            details=details,
            metrics=metrics,
            event=event,
            generation=state.generation,
            is_urgent=True,
            is_local=False,
        )
        LOG.info("%s in generation %d", words, state.generation, extra=fields.extra)


def find_lost(before: ClusterState | None, state: ClusterState) -> dict[str, Reason]:
    """Return the members that `state` no longer has, with the reasons of their departure."""
    reasons = {departure.instance_id: departure.reason for departure in state.departed}
    gone = [] if before is None or state.phase is Phase.FAILED else before.members
    return {
        member.instance_id: reasons.get(member.instance_id, NO_REASON)
        for member in gone
        if not state.has_member(member.instance_id)
    }


def find_events(before: ClusterState | None, state: ClusterState, lost: Mapping[str, Reason]) -> list[ClusterEvent]:
    """Find the events of a write of the state record; `before` is None for the first, `lost` the members that left."""

    def event(kind: EventKind, reason: Reason = state.reason) -> ClusterEvent:
        return ClusterEvent(
            kind=kind, cluster=state.cluster, generation=state.generation, nodes=len(state.members), reason=reason
        )

    was = before.phase if before else None
    if state.phase is Phase.FAILED:
        return [] if was is Phase.FAILED else [event(EventKind.FAILED)]
    found = []
    if state.phase is Phase.FORMED and was is not Phase.FORMED:
        found.append(event(EventKind.FORMED))
        if len(state.members) < state.requested:
            found.append(event(EventKind.DEGRADED))
    elif state.has_formed and lost:
        found.append(event(EventKind.DEGRADED, Reason("; ".join(f"lost {name}: {why}" for name, why in lost.items()))))
    if state.run_ended and not (before and before.run_ended):
        found.append(event(EventKind.FINISHED, Reason("the run script ended with status 0")))
    return found


def report_phase(phase: str, seconds: float) -> None:
    """Ship the duration of a phase of the formation; the log on the node has its steps."""
    details = {STEP: phase, SECONDS: round(seconds, 3)}
    fields = LogFields(details=details, metrics={FORMATION_SECONDS: seconds}, phase=phase, is_local=False)
    LOG.info("%s: %.1f s", phase, seconds, extra=fields.extra)
