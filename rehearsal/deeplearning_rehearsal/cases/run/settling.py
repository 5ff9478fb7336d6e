"""Whether a cluster has come to rest: all have the last membership, and nobody does anything any more."""

import json
import time

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.fleet import Fleet
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.names import MEMBERSHIP_FILE

_QUIET_SECONDS = 6.0
"""So long no agent has logged anything when all is done; they look for news more often than that."""


def is_settled(state: ClusterState | None, fleet: Fleet, nodes: int) -> bool:
    """
    Tell whether a cluster has so many nodes, and each of them its generation.

    Args:
        state: The state item; None while there is none.
        fleet: The machines.
        nodes: How many there must be, master included.
    """
    if state is None or state.phase.value != "formed" or len(state.members) != nodes:
        return False
    running = {machine.instance_id for machine in fleet.machines()}
    members = [member.instance_id for member in state.members]
    if not running.issuperset(members) or time.monotonic() - fleet.spoke_at <= _QUIET_SECONDS:
        return False
    return all(_read_generation(fleet, member) == state.generation for member in members)


def _read_generation(fleet: Fleet, instance_id: str) -> int:
    try:
        path = fleet.disk(instance_id) / MEMBERSHIP_FILE.lstrip("/")
        return int(json.loads(path.read_text(encoding="utf-8"))["generation"])
    except (OSError, ValueError, KeyError, RehearsalError):
        return 0  # it has none yet, or was powered off just now
