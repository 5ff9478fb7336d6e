"""Meeting of the containers of a training job on the shared file system, which forms the cluster."""

import logging
import secrets
from collections.abc import Callable

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.membership.host_files import write_ready_hosts
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.jobs.training_job import MODEL_FOLDER
from deeplearning_contract.membership import Member
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.container import list_variables
from deeplearning_member.reachability import SSH_PORT, responds
from deeplearning_member.sagemaker.rounds import Round, RoundFile, refresh_folder
from deeplearning_member.signed_file import Signer
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.ssh import make_user_key

LOG = logging.getLogger(__name__)
POLL_SECONDS = 0.5
_VARIABLES = {"SM_MODEL_DIR": MODEL_FOLDER}
"""As in SageMaker's own images, the folder of the model."""
_REACH_SECONDS = 45.0
SEPARATED_REMEDY = (
    "let the security groups of the job admit each other on all ports, and the file system admit NFS from them; the "
    "log of each missing container says how far it came"
)


class StoppedError(Exception):
    """The job was stopped before it started."""


class Meeting:
    """Meeting of this container with the others of the job."""

    def __init__(
        self, node: Node, member: Member, hosts: tuple[str, ...], signer: Signer, is_stopped: Callable[[], bool]
    ) -> None:
        """
        Bind the node and its description; nothing is written yet.

        Args:
            node: This container.
            member: Its description.
            hosts: Names of all containers, by number.
            signer: Signatures of the job's members.
            is_stopped: Whether the job has been stopped.
        """
        self._node, self._member, self._hosts, self._is_stopped = node, member, hosts, is_stopped
        self._signer, self._rounds = signer, RoundFile(node, signer)
        self._round: Round | None = None
        self._folder: ClusterFolder | None = None
        self._installed = 0

    def form(self, deadline: Deadline) -> Round:
        """
        Meet the other containers, and install the membership; on the first one, wait until all have installed it.

        Raises:
            StageFailure: A container has not come until the deadline.
            StoppedError: The job is stopped meanwhile.
        """
        self.begin()
        while True:
            if (formed := self.take_turn()) is not None:
                if self._node.is_master:
                    self._require_responses(deadline.at_most(_REACH_SECONDS))
                LOG.info("the cluster has formed with %d containers", len(self._hosts))
                return formed
            if self._is_stopped():
                raise StoppedError
            if deadline.is_over:
                raise StageFailure(self.describe_missing(), SEPARATED_REMEDY)
            deadline.pause(POLL_SECONDS)

    def begin(self) -> None:
        """Begin a round, on the first container."""
        if self._node.is_master:
            self._rounds.write(Round(secrets.token_hex(8)))

    def take_turn(self) -> Round | None:
        """Do what the others wait for; return the round when this container waits for nothing more."""
        self._rounds.refresh(self._member.instance_id)
        found = self._rounds.read()
        if found is None:
            return None
        if self._round is None or found.id != self._round.id:  # Until now, that of the earlier containers was there.
            self._round, self._folder, self._installed = found, ClusterFolder(self._node, found.id, self._signer), 0
        folder = self._folder
        if folder is None:
            return None
        folder.announce(self._member, self._installed)
        refresh_folder(folder.path, self._member.instance_id)
        announced = folder.read_announcements()
        state = folder.read_membership()
        if state is None and self._node.is_master and all(host in announced for host in self._hosts):
            state = self._describe_cluster(tuple(announced[host].member for host in self._hosts))
            folder.write_membership(state)
        if state is None or self._member not in state.members:
            return None
        if not self._installed:
            install_membership(self._node, state, self._member, {**_VARIABLES, **list_variables()})
            self._installed = state.generation
            folder.announce(self._member, self._installed)
        if not self._node.is_master:
            return self._round
        if not all(host in announced and announced[host].has_installed(state) for host in self._hosts[1:]):
            return None
        write_ready_hosts(self._node, state.members)
        return self._round

    def _require_responses(self, deadline: Deadline) -> None:
        """Raise StageFailure unless every container responds; that they meet says only that all reach the files."""
        while silent := [host for host in self._hosts[1:] if not responds(host)]:
            if deadline.is_over or self._is_stopped():
                raise StageFailure(
                    f"{', '.join(silent)} must respond to {self._hosts[0]} on port {SSH_PORT}", SEPARATED_REMEDY
                )
            deadline.pause(POLL_SECONDS)

    def _describe_cluster(self, members: tuple[Member, ...]) -> ClusterState:
        return ClusterState(
            cluster=self._node.settings.cluster,
            revision=1,
            generation=1,
            phase=Phase.FORMED,
            requested=len(members),
            expected=tuple(member.instance_id for member in members),
            members=members,
            user_key=make_user_key(self._node),
            has_formed=True,
        )

    def describe_missing(self) -> str:
        """Return which containers have not come, or have not installed the membership."""
        announced = self._folder.read_announcements() if self._folder else {}
        missing = [host for host in self._hosts if host not in announced]
        if missing:
            count = len(self._hosts)
            return f"{count - len(missing)} of {count} containers have met; missing: {', '.join(missing)}"
        late = [host for host in self._hosts if not announced[host].generation]
        return f"all containers have met, but {', '.join(late)} could not install the membership"
