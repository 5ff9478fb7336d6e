"""
Facts of a node that every user may read, for the command `deeplearning`.

Only root may read the settings, which contain the master's signal URL; these facts contain no secret.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_contract.document import field, parse_object, parse_record
from deeplearning_contract.membership import Member, training_members
from deeplearning_contract.names import MEMBERSHIP_FILE
from deeplearning_contract.setting_parts import NO_NEEDS, JobNeeds
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import INSTANCES_DIRECTORY, Node

FACTS_FILE = "/opt/deeplearning/node.json"
COMMAND_FILE = "/usr/local/bin/deeplearning"
RUN_SCRIPT_STARTED = "/run/deeplearning/run-script-started"
"""Below /run, which a reboot empties: a script that a loss of power ended is started again."""
RUN_SCRIPT_STATUS = "run-script-status"
"""File of this instance with the exit status of the script."""


@dataclass(frozen=True)
class NodeFacts:
    """Public facts of one node."""

    cluster: str
    role: str  # `master` or `worker`
    instance_id: str  # EC2 instance id
    login_user: str  # Account of the users
    mount_point: str  # Mount point of the shared file system
    expected_gpu_count: int  # GPUs of the instance type; 0 for none or an unknown type
    region: str = ""  # AWS region
    needs: JobNeeds = NO_NEEDS  # Requirements of jobs in addition to the contract
    event_cluster: str = ""  # Cluster whose events users of the node may send; empty for none

    @classmethod
    def of(cls, node: Node) -> "NodeFacts":
        """Return the facts of a node from its settings and identity."""
        settings = node.settings
        return cls(
            cluster=settings.cluster,
            role=settings.role.value,
            instance_id=node.identity.instance_id,
            login_user=settings.login_user,
            mount_point=settings.file_system.mount_point,
            expected_gpu_count=settings.expected_gpu_count,
            region=settings.region,
            needs=settings.needs,
            event_cluster=settings.cluster if settings.state_table else "",
        )

    def write(self, root: Path) -> None:
        """Write the facts to /opt/deeplearning/node.json, for all users of the node."""
        write_file(root / FACTS_FILE.lstrip("/"), json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, root: Path) -> "NodeFacts":
        """Read the facts; OSError before the agent has written them, ContractError for a malformed file."""
        text = (root / FACTS_FILE.lstrip("/")).read_text(encoding="utf-8")
        return parse_record(cls, text, "node facts")


@dataclass(frozen=True)
class InstalledMembership:
    """Membership on this node's disk."""

    generation: int = 0  # Its number; 0 when none is installed
    members: tuple[tuple[str, Member], ...] = ()  # Host name and description of each node, master first
    cluster: str = ""  # Name of the cluster

    @classmethod
    def read(cls, root: Path) -> "InstalledMembership":
        """Read the membership document; OSError without one, ContractError for a malformed one."""
        document = parse_object((root / MEMBERSHIP_FILE.lstrip("/")).read_text(encoding="utf-8"), "membership")
        members = field(document, "members", list, "membership")
        return cls(
            cluster=field(document, "cluster", str, "membership"),
            generation=field(document, "generation", int, "membership"),
            members=tuple((field(each, "host", str, "member"), Member.from_document(each)) for each in members),
        )

    @property
    def hosts(self) -> tuple[tuple[str, Member], ...]:
        """Hosts that train, as in the workers file."""
        trains = set(training_members(tuple(member for _, member in self.members)))
        return tuple((host, member) for host, member in self.members if member in trains)

    def find(self, instance_id: str) -> Member | None:
        """Return the member with an instance id; None when there is none."""
        return next((member for _, member in self.members if member.instance_id == instance_id), None)


def installed_generation(node: Node) -> int:
    """
    Return the generation that this instance has installed; 0 for none.

    A file from the image names other instances and counts as none.
    """
    try:
        membership = InstalledMembership.read(node.root)
    except (OSError, ValueError):  # ContractError is a ValueError, and so is text that is not UTF-8.
        return 0
    is_ours = membership.cluster == node.settings.cluster and membership.find(node.identity.instance_id)
    return membership.generation if is_ours else 0


def find_running_script(root: Path, instance_id: str) -> bool:
    """Return whether the run script runs on this node."""
    status = root / INSTANCES_DIRECTORY.lstrip("/") / instance_id / RUN_SCRIPT_STATUS
    try:
        group = int((root / RUN_SCRIPT_STARTED.lstrip("/")).read_text(encoding="ascii"))
        is_over = status.exists()
        os.killpg(group, 0)
    except PermissionError:
        return True  # The process is root's shell, which waits for the script.
    except (OSError, ValueError):
        return False
    return not is_over
