"""Membership of the pods of a job: Kubernetes replaces one at a time, which takes the place of its predecessor."""

import logging
from collections.abc import Mapping

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.membership import Member
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.kubernetes.pod import read_index
from deeplearning_member.membership_service import MembershipService
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)


class SupersededError(Exception):
    """Another pod has the index of this one."""


class PodService(MembershipService):
    """Membership of one pod."""

    def __init__(self, node: Node, folder: ClusterFolder, member: Member, variables: Mapping[str, str]) -> None:
        """Bind the pod, and forget the announcements of the predecessors that it replaces."""
        super().__init__(node, folder, member, variables)
        self._index = read_index(member.instance_id)
        self._former = {name for name in folder.read_announcements() if read_index(name) == self._index}
        for name in self._former:
            folder.forget(name)

    def follow(self) -> ClusterState | None:
        """
        Follow the membership once, and return it; None, which is logged, when that fails.

        Raises:
            SupersededError: A newer pod has this one's index.
        """
        try:
            announced = {name for name in self._folder.read_announcements() if read_index(name) == self._index}
            if newer := announced - self._former - {self._member.instance_id}:
                raise SupersededError(f"{', '.join(sorted(newer))} has taken the place of this pod")
            return self.follow_membership()
        except (OSError, ValueError, StageFailure, ProgramError) as error:  # ContractError is a ValueError.
            LOG.warning("could not follow the pods; retrying: %s", error)
            return None

    def withdraw(self) -> None:
        """Leave the membership."""
        self._folder.forget(self._member.instance_id)

    def is_needed(self) -> bool:
        """Return whether ranks may still run here: the master is there, and its membership has this pod."""
        state = self._folder.read_membership()
        if state is None or not state.has_member(self._member.instance_id):
            return False
        return state.members[0].instance_id in self._folder.read_announcements()

    def _find_others(self) -> list[Member]:
        """Return the newest pod of each other index, by index."""
        self._look()
        announced = self._folder.read_announcements()
        for name in [name for name in self._seen if name not in announced]:
            LOG.info("%s leaves", name)
            del self._seen[name]
        # Of two pods of one index, the one that announced itself later is the newer.
        by_index = {read_index(name): announcement.member for name, (announcement, _) in self._seen.items()}
        by_index.pop(self._index, None)
        return [by_index[index] for index in sorted(by_index)]
