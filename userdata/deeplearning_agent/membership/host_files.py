"""
Files that list the members: hosts, workers file, hostfile, discover_hosts and the membership itself.

Names by rank have no gaps, for loops over them, so a later generation may give one to another machine.
Horovod Elastic remembers failed hosts by name; it gets names that never change their machine.
"""

import json
from collections.abc import Iterable

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.membership import Member, named_members, training_members
from deeplearning_contract.names import (
    DISCOVER_HOSTS,
    HOSTFILE,
    MASTER_HOST,
    MEMBERSHIP_FILE,
    READY_HOSTS,
    RENDEZVOUS_PORT,
    WORKER_ADDRESSES_FILE,
    WORKERS_FILE,
)
from deeplearning_node.atomic_file import write_block, write_file
from deeplearning_node.node import Node

DISCOVER_SCRIPT = f"""#!/bin/sh
# For Horovod Elastic: prints host:slots of each node that can start a rank now.
exec cat {READY_HOSTS}
"""


def write_host_files(node: Node, state: ClusterState) -> None:
    """
    Write every file that names the members; the membership comes last, as the sign that the others are complete.

    Every value comes from a `Member`, which accepts only instance ids, addresses, counts and public keys.

    Effects: a block in /etc/hosts and the files below /opt/deeplearning.
    """
    members = training_members(state.members)
    named = [(name, member) for name, member in named_members(state.members) if member in members]
    write_block(node.path("/etc/hosts"), "\n".join(hosts_lines(state.members)))
    write_file(node.path(WORKERS_FILE), "".join(f"{name}\n" for name, _ in named))
    write_file(node.path(WORKER_ADDRESSES_FILE), "".join(f"{member.address}\n" for member in members))
    write_file(node.path(HOSTFILE), "".join(f"{name} slots={m.slots}\n" for name, m in named))
    write_file(node.path(DISCOVER_HOSTS), DISCOVER_SCRIPT, 0o755)
    if not node.is_master:  # The master writes its own, from acknowledgements.
        write_ready_hosts(node, members)
    write_file(node.path(MEMBERSHIP_FILE), membership_text(state))


def write_ready_hosts(node: Node, members: Iterable[Member]) -> None:
    """Write /opt/deeplearning/ready_hosts, which discover_hosts prints."""
    write_file(node.path(READY_HOSTS), "".join(f"{member.instance_id}:{member.slots}\n" for member in members))


def hosts_lines(members: tuple[Member, ...]) -> list[str]:
    """Return the lines of /etc/hosts: name by rank, the master's name for rank 0, and instance id."""
    return [
        " ".join(dict.fromkeys([member.address, name, *([MASTER_HOST] if rank == 0 else []), member.instance_id]))
        for rank, (name, member) in enumerate(named_members(members))
    ]


def membership_text(state: ClusterState) -> str:
    members = [{"host": name, **member.to_document()} for name, member in named_members(state.members)]
    meeting = next(iter(training_members(state.members)), state.members[0])
    rendezvous = f"{meeting.address}:{RENDEZVOUS_PORT}"
    document = {
        "cluster": state.cluster,
        "generation": state.generation,
        "members": members,
        "rendezvous": rendezvous,
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
