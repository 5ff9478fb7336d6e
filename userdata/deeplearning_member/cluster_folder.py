"""
Folder of a cluster on the shared file system: an announcement of each node, and the membership.

It takes the place of the queues and the table of a cluster on EC2. Whoever may write to the shared file system may
change it: the login user, who is root in every container of SageMaker and may become root on every node of EMR.
"""

import json
import logging
from dataclasses import asdict, dataclass

from deeplearning_agent.boot.mounts import is_mounted
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.membership import Member
from deeplearning_contract.names import shared_membership
from deeplearning_node.atomic_file import write_file
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Announcement:
    """Announcement of a node, which it renews while it runs."""

    member: Member  # The node
    generation: int  # Membership that the node has installed; 0 for none
    uptime: float  # Seconds since the node's boot, which distinguish each renewal
    activity: str = ""  # Activity of the node, which keeps a cluster on EMR from ending as idle; empty for none

    def has_installed(self, state: ClusterState) -> bool:
        """Return whether the node has installed a membership."""
        return self.generation == state.generation


class ClusterFolder:
    """Folder `.deeplearning/<cluster>/<id>` on the shared file system."""

    def __init__(self, node: Node, cluster_id: str) -> None:
        """Bind the node, and the id of its cluster: EMR's, or the round of a training job; nothing is read yet."""
        self._node = node
        self._mount_point = node.settings.file_system.mount_point
        self._membership = node.path(f"{self._mount_point}/{shared_membership(node.settings.cluster, cluster_id)}")
        self.path = self._membership.parent
        self._members = self.path / "members"
        self._refused: dict[str, str] = {}

    def check(self) -> None:
        """Raise StageFailure unless the file system responds: a write to its mount point would hide this node."""
        if not is_mounted(self._node, self._mount_point):
            raise StageFailure(f"nothing that responds is mounted on {self._mount_point}", f"mount {self._mount_point}")

    def announce(self, member: Member, generation: int, activity: str = "") -> None:
        """Write or renew the announcement of this node."""
        uptime = round(self._node.clock.read(), 3)
        announcement = Announcement(member, generation, uptime, activity)
        write_file(self._members / f"{member.instance_id}.json", json.dumps(asdict(announcement)) + "\n")

    def read_announcements(self) -> dict[str, Announcement]:
        """Read the announcements, by instance id; a malformed one is logged once and ignored."""
        found = {}
        for path in sorted(self._members.glob("*.json")):
            try:
                announcement = parse_record(Announcement, path.read_text(encoding="utf-8"), "announcement")
                if path.stem != announcement.member.instance_id:
                    raise ContractError(f"announcement must be of {path.stem}, got {announcement.member.instance_id}")
            except (OSError, ValueError) as error:  # ContractError is a ValueError, and so is text that is not UTF-8.
                if self._refused.get(path.stem) != str(error):
                    LOG.warning("ignored %s: %s", path, error)
                self._refused[path.stem] = str(error)
                continue
            found[path.stem] = announcement
        return found

    def forget(self, instance_id: str) -> None:
        """Remove the announcement of a lost node, which would count as new after a restart."""
        (self._members / f"{instance_id}.json").unlink(missing_ok=True)

    def count_start(self, progress: str) -> int:
        """
        Count a start of the job, and return how many there were with this progress, with this one.

        Args:
            progress: Text that differs when the job has come further, such as the path of its newest checkpoint.
        """
        path = self.path / "starts.json"
        try:
            former = json.loads(path.read_text(encoding="utf-8"))
            count = int(former["count"]) if former["progress"] == progress else 0
        except (OSError, ValueError, TypeError, KeyError):  # The first start, or a file that is not ours.
            count = 0
        write_file(path, json.dumps({"progress": progress, "count": count + 1}) + "\n")
        return count + 1

    def read_membership(self) -> ClusterState | None:
        """Return the membership; None without one, or for a malformed one, which the primary node replaces."""
        try:
            return ClusterState.from_text(self._membership.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            LOG.warning("ignored %s: %s", self._membership, error)
            return None

    def write_membership(self, state: ClusterState) -> None:
        """Publish a membership."""
        write_file(self._membership, state.to_text() + "\n")
