"""
Facts of a node that every user may read, for the command `deeplearning`.

The settings are root's alone, since they hold the master's signal URL; these facts hold no secret.
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
"""Below /run, which a reboot empties: a script that a loss of power cut off is started again."""
RUN_SCRIPT_STATUS = "run-script-status"
"""The file of this instance that says with what the script ended."""


@dataclass(frozen=True)
class NodeFacts:
    """One node, as its programs know it without its settings."""

    cluster: str
    role: str  # `master` or `worker`
    instance_id: str  # EC2 instance id
    login_user: str  # The account under which users log in
    mount_point: str  # Where the shared file system is mounted
    expected_gpu_count: int  # GPUs that the instance type has; 0 when it has none or it is not known
    region: str = ""  # AWS region
    needs: JobNeeds = NO_NEEDS  # What jobs find on the node beside its contract

    @classmethod
    def of(cls, node: Node) -> "NodeFacts":
        """Take the facts from the settings and the identity."""
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
        )

    def write(self, root: Path) -> None:
        """Write the facts to /opt/deeplearning/node.json, for everybody on the node."""
        write_file(root / FACTS_FILE.lstrip("/"), json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, root: Path) -> "NodeFacts":
        """Read the facts that the agent wrote; OSError before it has, ContractError for a malformed file."""
        text = (root / FACTS_FILE.lstrip("/")).read_text(encoding="utf-8")
        return parse_record(cls, text, "node facts")


@dataclass(frozen=True)
class InstalledMembership:
    """The membership as it is on this node's disk."""

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
        """Those that train, which the workers file lists."""
        trains = set(training_members(tuple(member for _, member in self.members)))
        return tuple((host, member) for host, member in self.members if member in trains)

    def find(self, instance_id: str) -> Member | None:
        """Return how an instance described itself when it joined; None when it is no member."""
        return next((member for _, member in self.members if member.instance_id == instance_id), None)


def installed_generation(node: Node) -> int:
    """
    Return the generation that this instance has installed; 0 when it has none.

    A file that an image brought along names other instances and counts as none.
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
        return True  # It is root's shell that waits for it, and it is there.
    except (OSError, ValueError):
        return False
    return not is_over
