"""Common part of both roles: preparation, the state record, and failures."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.coordination.queues import POLL_SECONDS, NotificationQueue
from deeplearning_agent.coordination.state_store import StateStore
from deeplearning_agent.telemetry.log_excerpts import failure_fields, log_tail
from deeplearning_agent.workload.interruption_notice import SpotNotices, clear_notice, write_notice
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.names import BOOTSTRAP_LOG
from deeplearning_node.aws_clients import AwsClients, call_for
from deeplearning_node.deadline import Deadline, setup_deadline
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.node import STARTED_FILE, Node
from deeplearning_node.node_facts import installed_generation

if TYPE_CHECKING:
    from deeplearning_contract.membership import Member

T = TypeVar("T")
LOG = logging.getLogger(__name__)
READ_SECONDS = 60
"""Interval at which the state record is read even without a notification."""
AWS_SECONDS = 300
"""Time for which a call to AWS is retried before it counts as failed."""
IDLE_SECONDS = 3600


class Role(ABC):
    """Role of one node."""

    deadline: Deadline
    """End of the set-up time."""

    def __init__(self, node: Node, clients: AwsClients, poll_seconds: int = POLL_SECONDS) -> None:
        """Bind the node to its cluster; nothing is called yet. Tests shorten the long poll."""
        settings = node.settings
        self.node = node
        self.clients = clients
        self.poll_seconds = poll_seconds
        self.store: StateStore = StateStore(clients, settings.state_table, settings.cluster)
        self.notifications = NotificationQueue(
            clients,
            settings.master_queue_url if node.is_master else settings.worker_queue_url,
            settings.cluster,
            is_shared=not node.is_master,
            poll_seconds=poll_seconds,
        )
        self.spot_notices = SpotNotices()
        self.member: Member | None = None
        self.installed = 0
        self.notice = ""

    def run(self) -> NoReturn:
        """
        Run the role; never returns, so that the service restarts only after a crash.

        After a final failure the agent only reports it again once an hour; a restart of the service, or of the node,
        tries again.
        """
        while True:
            try:
                self.run_role()
            except Exception as error:  # the reason of any failure must be reported
                failure = describe_failure(error, "run the agent")
                log_tail(self.node, BOOTSTRAP_LOG)
                reason = failure.reason(str(self.node))
                LOG.exception("%s", reason, extra=failure_fields(failure.stage, reason).extra)
                is_final = self.report_failure(failure)
            self.node.clock.wait(READ_SECONDS)
            while is_final:
                self.node.clock.wait(IDLE_SECONDS)
                self.report_failure(failure)  # The first receiver may have died since.

    @abstractmethod
    def run_role(self) -> NoReturn:
        """Prepare the node, then follow the cluster's state record; never returns."""

    @abstractmethod
    def report_failure(self, failure: StageFailure) -> bool:
        """Report the failure, raise nothing, and return whether it is final."""

    def begin_setup(self) -> Deadline:
        """
        Set `deadline`, the end of the set-up time, from /run/deeplearning/agent-started; return that of the
        preparation.

        An agent that starts later, such as after a crash on the third day, gets the whole time again to prepare the
        node.
        """
        seconds = self.node.settings.setup_seconds
        self.deadline = setup_deadline(self.node.clock, self.node.path(STARTED_FILE), seconds)
        return self.node.limit(seconds) if self.deadline.is_over else self.deadline

    def call(self, action: Callable[[], T]) -> T:
        """Call AWS, retrying for five minutes; AwsFailure when it refuses or does not respond."""
        return call_for(self.node.clock, AWS_SECONDS, action)

    def publish_notice(self, notice: str) -> None:
        """Write or remove /opt/deeplearning/notice, which warns the training that capacity ends soon."""
        if notice:
            write_notice(self.node, notice)
        elif self.notice:
            clear_notice(self.node)
        self.notice = notice

    def install(self, state: ClusterState) -> bool:
        """Install a membership unless a higher one is installed; return whether the node now has this generation."""
        if self.member is None or self.installed == state.generation:
            return self.member is not None
        if state.generation < max(self.installed, installed_generation(self.node)):
            LOG.warning("ignored generation %d: a higher one is installed", state.generation)
            return False
        install_membership(self.node, state, self.member)
        self.installed = state.generation
        return True
