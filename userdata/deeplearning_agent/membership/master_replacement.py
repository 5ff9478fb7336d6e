"""The end of a master that cannot prepare itself, so that its group replaces it."""

import logging

from deeplearning_agent.telemetry.log_fields import LogFields
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.log_record import REASON
from deeplearning_node.aws_clients import AwsClients, AwsError
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
MOST_TRIES = 3
TRY_SECONDS = 900
"""How long a master tries at least: what passes, such as a file system that restarts, costs no instance."""


class MasterReplacement:
    """
    Counts the failures of a master in a cluster that has formed.

    Nobody else can replace the master: no node looks at it, and EC2 finds nothing wrong with the instance.
    """

    def __init__(self, node: Node, clients: AwsClients) -> None:
        """Begin with no failure."""
        self._node = node
        self._clients = clients
        self._tries = 0
        self._since = 0.0

    def record_failure(self, state: ClusterState | None, reason: str) -> None:
        """
        Count a failure of a formed cluster's master, and after several ask Auto Scaling to replace it. Raises nothing.

        Effects: a call to Auto Scaling at each failure after the third and after a quarter of an hour; an event.
        """
        if state is None or not state.has_formed:
            return
        now = self._node.clock.read()
        self._since = self._since if self._tries else now
        self._tries += 1
        if self._tries < MOST_TRIES or now - self._since < TRY_SECONDS:
            return
        words = f"the master {self._node.identity.instance_id} cannot prepare itself and is replaced: {reason}"
        event = ClusterEvent(EventKind.DEGRADED, state.cluster, state.generation, len(state.members), words)
        try:
            self._clients.autoscaling.set_instance_health(
                InstanceId=self._node.identity.instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        except AwsError as error:
            LOG.warning("Auto Scaling does not replace this master yet: %s", error)
        else:
            LOG.error("%s", words, extra=LogFields(details={REASON: words}, event=event, is_urgent=True).extra)
