"""Worker role: joins, installs each published membership, acknowledges it, and follows the next."""

import logging
from typing import NoReturn

from deeplearning_agent.boot.steps import prepare_node
from deeplearning_agent.coordination.queues import send_report
from deeplearning_agent.role import READ_SECONDS, Role
from deeplearning_agent.workload.interruption_notice import write_notice
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import ContractError
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsFailure
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node_facts import installed_generation

LOG = logging.getLogger(__name__)
REPEAT_SECONDS = {ReportStage.JOINED: 50, ReportStage.READY: 15}
"""Time after which a report without effect is sent again; it doubles with each report.

A new master waits a minute for acknowledgements, and the old one may have received the first.
"""
INSIST_SECONDS = 50
"""Just below the minute after which a master evicts a newcomer without an acknowledgement."""
NOTICE_SECONDS = 20
"""Interval of polls for EC2's notice, which comes two minutes before the interruption of a spot instance."""
ADMISSION_SECONDS = 5
"""Interval at which a newcomer of a formed cluster reads the state record, for its first minute."""


class Worker(Role):
    """Role of every node except the master."""

    seen_generation = -1
    """Notifications up to this generation are ignored."""
    is_acknowledged = False
    """True after this run of the agent has acknowledged a generation."""
    last_report: tuple[ReportStage, int] | None = None
    """Stage and generation of the last report."""
    repeat: Deadline | None = None
    repeat_seconds = 0
    is_hurried = False
    """True while the master waits for this worker's acknowledgement."""
    insistence: Deadline | None = None
    """Until this time, a newcomer of a formed cluster repeats its acknowledgement."""
    noticed = ""
    admission: Deadline | None = None
    """Until this time, the worker often checks whether it was admitted."""

    def run_role(self) -> NoReturn:
        """Prepare the node, then reconcile the state record at each notification and once a minute."""
        self.member = prepare_node(self.node, self.clients, self.begin_setup())
        while True:
            try:
                self.watch_notices()
                self.converge(self.call(self.store.read))
                self.listen()
            except (AwsFailure, ContractError) as error:  # noqa: PERF203 - waiting dwarfs it
                LOG.warning("could not read the cluster state; retrying: %s", error)
                self.node.clock.wait(READ_SECONDS)

    def converge(self, state: ClusterState | None) -> None:
        """Reconcile this node with the state record. Idempotent in every phase."""
        self.seen_generation = state.generation if state and state.phase is not Phase.LAUNCHED else -1
        is_joining = False
        self.is_hurried = False
        if state is None or state.phase is Phase.LAUNCHED:
            self.join(state.generation if state else 1)
        elif state.phase in (Phase.PUBLISHED, Phase.FORMED):
            if not state.has_member(self.node.identity.instance_id):
                is_joining = True
                self.forget_acknowledgement()
                self.join(state.generation + 1)
            else:
                self.take_membership(state)
        if not is_joining:
            self.admission = None
        elif self.admission is None:
            self.admission = self.node.limit(READ_SECONDS)
        self.publish_notice((state.notice if state else "") or self.noticed)

    def take_membership(self, state: ClusterState) -> None:
        """Install a membership that names this node, and acknowledge it unless that was done before."""
        sent_file = self.node.instance_file("acknowledged")
        # An agent can die between installing and reporting: only the file proves that the report was sent.
        was_sent = sent_file.exists() and installed_generation(self.node) == state.generation
        self.is_acknowledged = self.is_acknowledged or was_sent
        is_wanted = state.phase is Phase.PUBLISHED
        if not is_wanted and not self.is_acknowledged:  # Only continued membership proves that the master received it.
            self.insistence = self.node.limit(INSIST_SECONDS)
        is_wanted = is_wanted or not (self.insistence is None or self.insistence.is_over)
        self.is_hurried = is_wanted
        if self.install(state) and is_wanted:
            self.report_until_news(ReportStage.READY, state.generation)
            write_file(sent_file, "")
            self.is_acknowledged = True

    def forget_acknowledgement(self) -> None:
        """Acknowledge again when this node becomes a member again: the master has forgotten the acknowledgement."""
        self.node.instance_file("acknowledged").unlink(missing_ok=True)
        self.is_acknowledged = False

    def join(self, generation: int) -> None:
        """Ask to join a generation, unless EC2 is about to interrupt this instance."""
        if not self.noticed:
            self.report_until_news(ReportStage.JOINED, generation)

    def listen(self) -> None:
        """Wait for a notification, for a minute at most, and poll EC2's interruption notices meanwhile."""
        is_waiting = self.admission is not None and not self.admission.is_over
        seconds = REPEAT_SECONDS[ReportStage.READY] if self.is_hurried else READ_SECONDS
        until = self.node.limit(ADMISSION_SECONDS if is_waiting else seconds)
        while not until.is_over:
            self.watch_notices()
            listened = until.at_most(NOTICE_SECONDS)
            if self.call(lambda limit=listened: self.notifications.wait(self.seen_generation, limit)):  # type: ignore[misc]
                return

    def watch_notices(self) -> None:
        """Report once that EC2 interrupts this instance, and write /opt/deeplearning/notice for the training."""
        notice = self.spot_notices.read()
        if notice and notice != self.noticed:
            write_notice(self.node, notice)
            self.report(ReportStage.LEAVING, reason=Reason(notice))
            self.noticed = notice

    def report_until_news(self, stage: ReportStage, generation: int) -> None:
        """Report, and repeat the report while the state record still requires it."""
        if (stage, generation) != self.last_report:
            self.last_report, self.repeat_seconds = (stage, generation), REPEAT_SECONDS[stage]
        elif self.repeat is None or not self.repeat.is_over:
            return
        self.report(stage, generation=generation if stage is ReportStage.READY else 0)
        self.repeat = self.node.limit(self.repeat_seconds)
        self.repeat_seconds *= 2

    def report(self, stage: ReportStage, *, generation: int = 0, reason: Reason = NO_REASON) -> None:
        """Send a report to the master; a file counts reports over restarts."""
        report = NodeReport(
            cluster=self.node.settings.cluster,
            instance_id=self.node.identity.instance_id,
            stage=stage,
            generation=generation,
            member=self.member if stage is ReportStage.JOINED else None,
            sequence=self.count_report(),
            reason=reason,
        )
        self.call(lambda: send_report(self.clients, self.node.settings.report_queue_url, report))
        LOG.info("reported %s", stage.value)

    def count_report(self) -> int:
        """Return the number of the next report, used only once even over restarts; 0 when the disk is full."""
        path = self.node.instance_file("reports-sent")
        try:
            number = int(path.read_text()) + 1
        except (OSError, ValueError):
            number = 1
        try:
            write_file(path, f"{number}\n")
        except OSError as error:
            LOG.warning("could not count the report: %s", error)
            return 0
        return number

    def report_failure(self, failure: StageFailure) -> bool:
        """Send the reason to the master, which signals CloudFormation or requests this node's replacement."""
        try:
            self.report(ReportStage.FAILED, reason=failure.reason(str(self.node)))
        except StageFailure as error:
            LOG.error("could not report the failure: %s", error)  # noqa: TRY400 - the cause is in the line
        return True
