"""
Outcome of a formation: reported to CloudFormation and in the state record; a master that keeps failing is replaced.
"""

import http.client
import logging
import urllib.error
from collections.abc import Callable
from typing import Any, Literal

from deeplearning_agent.coordination.state_store import StateStore
from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.log_record import REASON
from deeplearning_contract.reason import Reason
from deeplearning_contract.web import send_signal, signal_body
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, AwsError
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
WRITE_ATTEMPTS = 5
SIGNAL_ATTEMPTS = 3
"""Each attempt is retried for two minutes; after all of them the stack has long ended its wait."""
SIGNAL_SECONDS = 120
FORBIDDEN = 403
"""Status of a presigned URL that has expired: the stack ended its wait long ago."""
SUCCESS_FILE = "success-signalled"
MOST_TRIES = 3
TRY_SECONDS = 900
"""Least time for which a master retries: a temporary fault, such as a file system's restart, costs no instance."""


class FormationOutcome:
    """Outcome of a formation."""

    def __init__(
        self, node: Node, clients: AwsClients, store: StateStore, call: Callable[[Callable[[], Any]], Any]
    ) -> None:
        """Bind the stack and the state record; `call` retries a call to AWS for a limited time."""
        self._node = node
        self._clients = clients
        self._store = store
        self._call = call
        self._signals_left = SIGNAL_ATTEMPTS
        self._failures = 0
        self._failing_since = 0.0

    def report_success(self, state: ClusterState) -> None:
        """Signal that the cluster has formed; once, since the stack waits only during its creation."""
        formed = f"{len(state.members)} of {state.requested} nodes formed generation {state.generation}"
        if not self._node.instance_file(SUCCESS_FILE).exists():
            self._signal("SUCCESS", state.reason.prefix(f"{formed}: ") if state.reason else Reason(formed))

    def report_decided_failure(self, state: ClusterState) -> None:
        """Signal a failure that the state record already contains; CloudFormation may have missed it."""
        self._signal("FAILURE", state.reason)

    def report_failure(self, reason: Reason) -> bool:
        """
        Signal the failure, and write it unless the cluster has formed; return whether it is final. Raises nothing.

        The signal comes first. After a success of an earlier master CloudFormation ignores it. A master that keeps
        failing in a formed cluster requests its own replacement.
        """
        if not self._node.instance_file(SUCCESS_FILE).exists():
            self._signal("FAILURE", reason)
        try:
            return self._write_failure(reason)
        except Exception as error:  # noqa: BLE001 - CloudFormation has the signal
            LOG.error("could not write the state item: %s", error)  # noqa: TRY400 - the cause is in the line
            return False

    def _signal(self, status: Literal["SUCCESS", "FAILURE"], reason: Reason) -> None:
        if self._signals_left:
            self._signals_left -= 1
            if signal_stack(self._node, status, reason):
                self._signals_left = 0

    def _write_failure(self, reason: Reason) -> bool:
        """Write the failure over any other state but a decided one; return whether the state is decided."""
        for _ in range(WRITE_ATTEMPTS):
            state = self._call(self._store.read)
            if state is not None and state.has_formed:
                self._replace_failing_master(state, reason)
            if state is not None and is_decided(state):
                return state.phase is Phase.FAILED
            absent = ClusterState(self._node.settings.cluster, 1, 0, Phase.FAILED, 0, (), reason)
            failed = state.advance(Phase.FAILED, reason=reason) if state else absent
            if self._call(lambda item=failed: self._store.write(item)):  # type: ignore[misc]
                return True
        return False

    def _replace_failing_master(self, state: ClusterState, reason: Reason) -> None:
        """
        Count a failure of a formed cluster's master; request its replacement after several. Raises nothing.

        Nothing else replaces the master: no node monitors it, and EC2 sees a healthy instance.

        Effects: a call to Auto Scaling at each failure after the third and after a quarter of an hour; an event.
        """
        now = self._node.clock.read()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        if self._failures < MOST_TRIES or now - self._failing_since < TRY_SECONDS:
            return
        own = self._node.identity.instance_id
        failing = reason.prefix(f"the master {own} cannot prepare itself and is replaced: ")
        event = ClusterEvent(
            kind=EventKind.DEGRADED,
            cluster=state.cluster,
            generation=state.generation,
            nodes=len(state.members),
            reason=failing,
        )
        try:
            self._clients.autoscaling.set_instance_health(
                InstanceId=own, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        except AwsError as error:
            LOG.warning("Auto Scaling refused to replace this master; retrying: %s", error)
        else:
            LOG.error("%s", failing, extra=LogFields(details={REASON: failing}, event=event, is_urgent=True).extra)


def signal_stack(node: Node, status: Literal["SUCCESS", "FAILURE"], reason: Reason) -> bool:
    """
    Signal CloudFormation, retrying for two minutes, and return whether it received the signal.

    Effects: one PUT; a file that records a success, since a reboot must not signal again.
    """
    settings = node.settings
    for _ in node.limit(SIGNAL_SECONDS).attempts():
        try:
            send_signal(settings.signal_url, signal_body(settings.cluster, status, str(reason)))
        except urllib.error.HTTPError as error:  # noqa: PERF203 - waiting dwarfs it
            LOG.warning("CloudFormation refused %s: %s", status, error)
            if error.code == FORBIDDEN:
                return False
        except (OSError, ValueError, http.client.HTTPException) as error:
            LOG.warning("could not signal %s: %s", status, error)
        else:
            LOG.info("sent the signal %s: %s", status, reason)
            break
    else:
        return False
    if status == "SUCCESS":
        try:
            write_file(node.instance_file(SUCCESS_FILE), f"{reason}\n")
        except OSError as error:
            # CloudFormation has the signal; a full disk must not undo a formed cluster. A reboot signals again, to no
            # effect.
            LOG.warning("%s", error)
    return True


def is_decided(state: ClusterState | None) -> bool:
    """Return whether the cluster has formed or failed, so that no later failure of a node fails it as a whole."""
    return state is not None and (state.has_formed or state.phase in (Phase.FORMED, Phase.FAILED))
