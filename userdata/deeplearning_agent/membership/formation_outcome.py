"""Reports the end of the formation: a signal to CloudFormation, and the state record for everybody."""

import logging
from collections.abc import Callable
from typing import Any

from deeplearning_agent.coordination.stack_signal import StackSignal
from deeplearning_agent.coordination.state_store import StateStore
from deeplearning_agent.membership.master_replacement import MasterReplacement
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import Reason
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
WRITE_ATTEMPTS = 5
SIGNAL_ATTEMPTS = 3
"""Each of them is tried for two minutes; after that the stack has long been decided."""


class FormationOutcome:
    """The one outcome of a formation."""

    def __init__(
        self, node: Node, store: StateStore, call: Callable[[Callable[[], Any]], Any], replacement: MasterReplacement
    ) -> None:
        """Bind the stack and the state record; `call` retries a call of AWS for a while."""
        self._replacement = replacement
        self._node = node
        self._store = store
        self._call = call
        self._signals_left = SIGNAL_ATTEMPTS

    def report_success(self, state: ClusterState) -> None:
        """Signal that the cluster has formed; once, for the stack waits only while it is created."""
        signal = StackSignal(self._node)
        if signal.has_succeeded or self._signals_left == 0:
            return
        self._signals_left -= 1
        formed = f"{len(state.members)} of {state.requested} nodes formed generation {state.generation}"
        signal.send("SUCCESS", Reason.of(state).prefix(f"{formed}: ") if state.reason else Reason(formed))

    def report_decided_failure(self, state: ClusterState) -> None:
        """Signal a failure that the item already says; CloudFormation may have missed it."""
        self._signal_failure(Reason.of(state))

    def report_failure(self, reason: Reason) -> bool:
        """
        Signal the failure, and write it unless the cluster has formed; return whether it is final. Raises nothing.

        The signal comes first and waits for nothing. After a success of an earlier master CloudFormation ignores it. A
        master that goes on failing in a formed cluster asks for its own replacement.
        """
        if not StackSignal(self._node).has_succeeded:
            self._signal_failure(reason)
        try:
            return self._write_failure(reason)
        except Exception as error:  # noqa: BLE001 - CloudFormation has been told
            LOG.error("could not write the state item: %s", error)  # noqa: TRY400 - the cause is in the line
            return False

    def _signal_failure(self, reason: Reason) -> None:
        if self._signals_left and StackSignal(self._node).send("FAILURE", reason):
            self._signals_left = 0
        else:
            self._signals_left = max(0, self._signals_left - 1)

    def _write_failure(self, reason: Reason) -> bool:
        """Write it over whatever was written meanwhile, but not over a decision; return whether it is one."""
        for _ in range(WRITE_ATTEMPTS):
            state = self._call(self._store.read)
            self._replacement.record_failure(state, str(reason))
            if state is not None and is_decided(state):
                return state.phase is Phase.FAILED
            absent = ClusterState(self._node.settings.cluster, 1, 0, Phase.FAILED, 0, ())
            failed = (state.advance(Phase.FAILED) if state else absent).explain(reason)
            if self._call(lambda item=failed: self._store.write(item)):  # type: ignore[misc]
                return True
        return False


def is_decided(state: ClusterState | None) -> bool:
    """Return whether nothing that happens now fails the cluster as a whole."""
    return state is not None and (state.has_formed or state.phase in (Phase.FORMED, Phase.FAILED))
