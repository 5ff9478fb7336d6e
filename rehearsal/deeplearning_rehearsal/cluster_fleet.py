"""The nodes of a cluster among the machines of a rehearsal: their log, their roles, and the master."""

from collections.abc import Callable

from cdk_rehearsal.errors import PromiseError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.fleet import Fleet
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.names import AGENT_LOG, ROLE_TAG, NodeRole
from deeplearning_rehearsal.checks.provision_watch import ProvisionProgress


def make_fleet(lab: Lab, timeline: Timeline, prepare: Callable[[Machine], None]) -> Fleet:
    """Return the fleet of a cluster, the master first; what groups do is what the adjuster acts on."""
    return Fleet(
        lab,
        timeline,
        prepare,
        ProvisionProgress().describe,
        log_file=AGENT_LOG,
        name=lambda machine: machine.tags.get(ROLE_TAG, "node"),
        order=lambda machine: (not _is_master(machine), machine.address),
        events_lane="adjuster",
    )


def find_master(fleet: Fleet) -> Machine:
    """
    Return the master.

    Raises:
        PromiseError: None runs.
    """
    for machine in fleet.machines():
        if _is_master(machine):
            return machine
    raise PromiseError("no master is running")


def _is_master(machine: Machine) -> bool:
    return machine.tags.get(ROLE_TAG) == NodeRole.MASTER.value
