"""
Folder of a cluster on the shared file system: an announcement of each node, and the membership.

It takes the place of the queues and the table of a cluster on EC2. Whoever may write to the shared file system may
change it: root in every container of SageMaker and pod of EKS, and the login user of EMR, who may become root. What the
members of a job did not sign is ignored, and so is what they signed before; on EMR nothing is signed.
"""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_agent.boot.mounts import is_mounted
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.membership import Member
from deeplearning_contract.names import shared_membership
from deeplearning_member.signed_file import UNSIGNED, Signer
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

    def __init__(self, node: Node, cluster_id: str, signer: Signer = UNSIGNED) -> None:
        """
        Bind the node; nothing is read yet.

        Args:
            node: The node.
            cluster_id: Id of its cluster: EMR's, that of the Job, or the round of a training job.
            signer: Signatures of the members. Default: files are not signed.
        """
        self._node, self._signer, self._cluster_id = node, signer, cluster_id
        self._mount_point = node.settings.file_system.mount_point
        self._membership = node.path(f"{self._mount_point}/{shared_membership(node.settings.cluster, cluster_id)}")
        self.path = self._membership.parent
        self._members = self.path / "members"
        self._refused: dict[Path, str] = {}
        self._latest: dict[str, Announcement] = {}
        self._left: set[str] = set()
        self._generation = 0

    def check(self) -> None:
        """Raise StageFailure unless the file system responds: a write to its mount point would hide this node."""
        if not is_mounted(self._node, self._mount_point):
            raise StageFailure(f"nothing that responds is mounted on {self._mount_point}", f"mount {self._mount_point}")

    def announce(self, member: Member, generation: int, activity: str = "") -> None:
        """Write or renew the announcement of this node."""
        uptime = round(self._node.clock.read(), 3)
        announcement = Announcement(member, generation, uptime, activity)
        path = self._members / f"{member.instance_id}.json"
        self._signer.write(path, self._name(path), json.dumps(asdict(announcement)))

    def read_announcements(self) -> dict[str, Announcement]:
        """Read the announcements, by instance id; a malformed, forged or repeated one is logged once and ignored."""
        found = {}
        for path in sorted(self._members.glob("*.json")):
            try:
                announcement = parse_record(Announcement, self._signer.read(path, self._name(path)), "announcement")
                if path.stem != announcement.member.instance_id:
                    raise ContractError(f"announcement must be of {path.stem}, got {announcement.member.instance_id}")
                announcement = self._take(announcement)
            except (OSError, ValueError) as error:  # ContractError is a ValueError, and so is text that is not UTF-8.
                self._refuse(path, error)
                continue
            found[path.stem] = announcement
        self._left |= self._latest.keys() - found.keys()
        return found

    def _take(self, announcement: Announcement) -> Announcement:
        """
        Return the newest announcement of a node, which one that was put back renews not; a node of EMR may boot again.

        Raises:
            ContractError: The node has left, and the announcement is from before.
        """
        name = announcement.member.instance_id
        known = self._latest.get(name) if self._signer.secret else None
        if known is not None and name in self._left and announcement.uptime <= known.uptime:
            raise ContractError(f"announcement must be a new one of {name}, which has left, got an earlier one")
        self._left.discard(name)
        if known is None or announcement.uptime >= known.uptime:
            self._latest[name] = announcement
        return self._latest[name]

    def forget(self, instance_id: str) -> None:
        """Remove the announcement of a lost node, which would count as new after a restart."""
        self._left.add(instance_id)
        (self._members / f"{instance_id}.json").unlink(missing_ok=True)

    def count_start(self, progress: str) -> int:
        """
        Count a start of the job, and return how many there were with this progress, with this one.

        Args:
            progress: Text that differs when the job has come further, such as the path of its newest checkpoint.
        """
        path = self.path / "starts.json"
        try:
            former = json.loads(self._signer.read(path, self._name(path)))
            count = int(former["count"]) if former["progress"] == progress else 0
        except (OSError, ValueError, TypeError, KeyError):  # The first start, or a file that is not ours.
            count = 0
        self._signer.write(path, self._name(path), json.dumps({"progress": progress, "count": count + 1}))
        return count + 1

    def read_membership(self) -> ClusterState | None:
        """Return the membership; None without one, or for one that the members did not write last, which is logged."""
        try:
            state = ClusterState.from_text(self._signer.read(self._membership, self._name(self._membership)))
            if self._signer.secret and state.generation < self._generation:
                raise ContractError(f"generation must be at least {self._generation}, got {state.generation} again")
        except FileNotFoundError:
            return None
        except ValueError as error:
            self._refuse(self._membership, error)
            return None
        self._generation = state.generation
        return state

    def write_membership(self, state: ClusterState) -> None:
        """Publish a membership."""
        self._signer.write(self._membership, self._name(self._membership), state.to_text())

    def _name(self, path: Path) -> str:
        return f"{self._cluster_id}/{path.relative_to(self.path)}"

    def _refuse(self, path: Path, error: Exception) -> None:
        if self._refused.get(path) != str(error):
            LOG.warning("ignored %s: %s", path, error)
        self._refused[path] = str(error)
