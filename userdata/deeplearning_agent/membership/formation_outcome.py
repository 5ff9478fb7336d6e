"""Reports the outcome of a formation to CloudFormation and in the state record, and replaces a master that fails on."""

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
from deeplearning_contract.stack_signal import send_signal, signal_body
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, AwsError
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
WRITE_ATTEMPTS = 5
SIGNAL_ATTEMPTS = 3
"""Each of them is retried for two minutes; after that the stack has long been decided."""
SIGNAL_SECONDS = 120
FORBIDDEN = 403
"""The presigned URL has expired: the stack was decided long ago."""
SUCCESS_FILE = "success-signalled"
MOST_TRIES = 3
TRY_SECONDS = 900
"""How long a master tries at least: what passes, such as a file system that restarts, costs no instance."""


class FormationOutcome:
    """The one outcome of a formation."""

    def __init__(
        self, node: Node, clients: AwsClients, store: StateStore, call: Callable[[Callable[[], Any]], Any]
    ) -> None:
        """Bind the stack and the state record; `call` retries a call of AWS for a while."""
        self._node = node
        self._clients = clients
        self._store = store
        self._call = call
        self._signals_left = SIGNAL_ATTEMPTS
        self._failures = 0
        self._failing_since = 0.0

    def report_success(self, state: ClusterState) -> None:
        """Signal that the cluster has formed; once, for the stack waits only while it is created."""
        formed = f"{len(state.members)} of {state.requested} nodes formed generation {state.generation}"
        if not self._node.instance_file(SUCCESS_FILE).exists():
            self._signal("SUCCESS", Reason.of(state).prefix(f"{formed}: ") if state.reason else Reason(formed))

    def report_decided_failure(self, state: ClusterState) -> None:
        """Signal a failure that the item already says; CloudFormation may have missed it."""
        self._signal("FAILURE", Reason.of(state))

    def report_failure(self, reason: Reason) -> bool:
        """
        Signal the failure, and write it unless the cluster has formed; return whether it is final. Raises nothing.

        The signal comes first and waits for nothing. After a success of an earlier master CloudFormation ignores it. A
        master that goes on failing in a formed cluster asks for its own replacement.
        """
        if not self._node.instance_file(SUCCESS_FILE).exists():
            self._signal("FAILURE", reason)
        try:
            return self._write_failure(reason)
        except Exception as error:  # noqa: BLE001 - CloudFormation has been told
            LOG.error("could not write the state item: %s", error)  # noqa: TRY400 - the cause is in the line
            return False

    def _signal(self, status: Literal["SUCCESS", "FAILURE"], reason: Reason) -> None:
        if self._signals_left:
            self._signals_left -= 1
            if signal_stack(self._node, status, reason):
                self._signals_left = 0

    def _write_failure(self, reason: Reason) -> bool:
        """Write it over whatever was written meanwhile, but not over a decision; return whether it is one."""
        for _ in range(WRITE_ATTEMPTS):
            state = self._call(self._store.read)
            if state is not None and state.has_formed:
                self._replace_failing_master(state, reason)
            if state is not None and is_decided(state):
                return state.phase is Phase.FAILED
            absent = ClusterState(self._node.settings.cluster, 1, 0, Phase.FAILED, 0, ())
            failed = (state.advance(Phase.FAILED) if state else absent).explain(reason)
            if self._call(lambda item=failed: self._store.write(item)):  # type: ignore[misc]
                return True
        return False

    def _replace_failing_master(self, state: ClusterState, reason: Reason) -> None:
        """
        Count a failure of a formed cluster's master, and after several ask Auto Scaling to replace it. Raises nothing.

        Nobody else can replace the master: no node looks at it, and EC2 finds nothing wrong with the instance.

        Effects: a call to Auto Scaling at each failure after the third and after a quarter of an hour; an event.
        """
        now = self._node.clock.read()
        self._failing_since = self._failing_since if self._failures else now
        self._failures += 1
        if self._failures < MOST_TRIES or now - self._failing_since < TRY_SECONDS:
            return
        own = self._node.identity.instance_id
        words = f"the master {own} cannot prepare itself and is replaced: {reason}"
        event = ClusterEvent(EventKind.DEGRADED, state.cluster, state.generation, len(state.members), words)
        try:
            self._clients.autoscaling.set_instance_health(
                InstanceId=own, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        except AwsError as error:
            LOG.warning("Auto Scaling does not replace this master yet: %s", error)
        else:
            LOG.error("%s", words, extra=LogFields(details={REASON: words}, event=event, is_urgent=True).extra)


def signal_stack(node: Node, status: Literal["SUCCESS", "FAILURE"], reason: Reason) -> bool:
    """
    Signal CloudFormation, retrying for two minutes, and return whether it has the signal.

    Effects: one PUT; a file that records a success, since a reboot must not signal again.
    """
    settings = node.settings
    for _ in node.limit(SIGNAL_SECONDS).attempts():
        try:
            send_signal(settings.signal_url, signal_body(settings.cluster, status, str(reason)))
        except urllib.error.HTTPError as error:  # noqa: PERF203 - waiting dwarfs it
            LOG.warning("CloudFormation did not take %s: %s", status, error)
            if error.code == FORBIDDEN:
                return False
        except (OSError, ValueError, http.client.HTTPException) as error:
            LOG.warning("could not signal %s: %s", status, error)
        else:
            LOG.info("signalled %s: %s", status, reason)
            break
    else:
        return False
    if status == "SUCCESS":
        try:
            write_file(node.instance_file(SUCCESS_FILE), f"{reason}\n")
        except OSError as error:
            # CloudFormation knows; a full disk must not undo a formed cluster. A reboot signals again, to no effect.
            LOG.warning("%s", error)
    return True


def is_decided(state: ClusterState | None) -> bool:
    """Return whether nothing that happens now fails the cluster as a whole."""
    return state is not None and (state.has_formed or state.phase in (Phase.FORMED, Phase.FAILED))
