"""Asks Auto Scaling to replace workers that are of no use any more."""

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from deeplearning_agent.aws_clients import AwsClients, AwsError
from deeplearning_agent.node import Node
from deeplearning_agent.roster import Roster

if TYPE_CHECKING:
    from deeplearning_agent.deadline import Deadline
    from deeplearning_agent.keeper import Findings

LOG = logging.getLogger(__name__)
SILENT_SECONDS = 60
"""How long a worker may be silent before it is replaced: a short loss of the network costs no instance."""


class Replacements:
    """What was ordered, and what is to be."""

    def __init__(self, node: Node, clients: AwsClients, roster: Roster) -> None:
        """Bind what it acts on; nothing is called yet."""
        self._node = node
        self._clients = clients
        self._roster = roster
        self._due: dict[str, Deadline] = {}
        self._ordered: set[str] = set()

    def has_ordered(self, instance_id: str) -> bool:
        """Tell whether a worker is being replaced, so that it is not admitted again."""
        return instance_id in self._ordered

    def order(self, left: Iterable[str], found: "Findings") -> None:
        """
        Note who is to be replaced: at once who failed, later who is silent, and not at all whom EC2 takes away.

        Nobody is, on account of silence, while no worker answers: then the fault may be the master's.
        """
        for instance_id in left:
            if instance_id in found.unfit:
                self._due[instance_id] = self._node.limit(0)
            elif instance_id in found.silent and found.has_answer and not self._roster.is_leaving(instance_id):
                self._due[instance_id] = self._node.limit(SILENT_SECONDS)
        for instance_id in self._roster.failed():
            if instance_id not in self._ordered:
                self._due[instance_id] = self._node.limit(0)

    def carry_out(self, kept: Collection[str]) -> None:
        """
        Order what is due.

        Args:
            kept: Members; one that came back is not replaced.

        Effects: a call to Auto Scaling for each that is due. A refusal is logged only: a group that has not got the
            instance any more has replaced it already.
        """
        for instance_id, limit in list(self._due.items()):
            if instance_id in kept:
                del self._due[instance_id]
            elif limit.is_over:
                del self._due[instance_id]
                self._replace(instance_id)

    def _replace(self, instance_id: str) -> None:
        self._ordered.add(instance_id)
        try:
            self._clients.autoscaling.set_instance_health(
                InstanceId=instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            )
        except AwsError as error:
            LOG.warning("Auto Scaling will not replace %s: %s", instance_id, error)
        else:
            LOG.info("asked Auto Scaling to replace %s", instance_id)
