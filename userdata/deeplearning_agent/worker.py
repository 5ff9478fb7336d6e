"""A worker's duty: join, install what the master publishes, acknowledge it, and go on following."""

import logging

from deeplearning_agent.aws_clients import AwsFailure
from deeplearning_agent.boot import prepare_node
from deeplearning_agent.duty import READ_SECONDS, Duty
from deeplearning_agent.failure import StageFailure
from deeplearning_agent.queues import send_report
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.errors import ContractError
from deeplearning_contract.messages import NodeReport, ReportStage

LOG = logging.getLogger(__name__)


class Worker(Duty):
    """Runs on every node but the master."""

    joined_generation = 0
    """The generation that the worker last asked to be in."""
    seen_generation = -1
    """Rings up to this generation bring no news."""

    def perform(self) -> None:
        """Prepare the node, then converge on the item at each ring and once a minute."""
        self.member = prepare_node(self.node, self.clients, self.preparation_deadline())
        while True:
            try:
                self.converge(self.call(self.store.read))
                self.call(lambda: self.doorbells.wait(self.seen_generation, self.node.limit(READ_SECONDS)))
            except (AwsFailure, ContractError) as error:  # noqa: PERF203 - waiting dwarfs it
                LOG.warning("cannot follow the cluster, will try again: %s", error)
                self.node.clock.wait(READ_SECONDS)

    def converge(self, state: ClusterState | None) -> None:
        """
        Do what the item asks of this node, whatever it was when the node last looked.

        Raises:
            StageFailure: The membership could not be installed.
            AwsFailure: A report could not be sent.
        """
        self.seen_generation = state.generation if state and state.phase is not Phase.LAUNCHED else -1
        if state is None or state.phase is Phase.LAUNCHED:
            self.join(state.generation if state else 1)
        elif state.phase in (Phase.PUBLISHED, Phase.FORMED):
            if self.node.identity.instance_id not in {member.instance_id for member in state.members}:
                self.join(state.generation + 1)
            elif self.installed != state.generation and self.install(state) and state.phase is Phase.PUBLISHED:
                self.report(ReportStage.READY, generation=state.generation)

    def join(self, generation: int) -> None:
        """Ask once to be in a generation."""
        if max(1, generation) > self.joined_generation:
            self.report(ReportStage.JOINED)
            self.joined_generation = max(1, generation)

    def report(self, stage: ReportStage, *, generation: int = 0, reason: str = "") -> None:
        """Send a report to the master."""
        report = NodeReport(
            cluster=self.node.settings.cluster,
            instance_id=self.node.identity.instance_id,
            stage=stage,
            generation=generation,
            member=self.member if stage is ReportStage.JOINED else None,
            reason=reason,
        )
        self.call(lambda: send_report(self.clients, self.node.settings.report_queue_url, report))
        LOG.info("reported %s", stage.value)

    def report_failure(self, failure: StageFailure) -> None:
        """Send the reason to the master, who tells CloudFormation."""
        try:
            self.report(ReportStage.FAILED, reason=failure.reason(str(self.node)))
        except StageFailure as error:
            LOG.error("could not report the failure: %s", error)  # noqa: TRY400 - the cause is in the line
