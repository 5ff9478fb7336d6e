"""Master controller: waits for the workers, publishes the membership, then reconciles it with what is alive."""

import logging
from typing import NoReturn

from deeplearning_agent.boot.steps import prepare_node, run_stage
from deeplearning_agent.coordination.queues import POLL_SECONDS
from deeplearning_agent.coordination.state_store import ReportingStore
from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.formation_outcome import FormationOutcome, is_decided
from deeplearning_agent.membership.member_monitor import MemberMonitor
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.report_collector import PEEK_SECONDS, ReportCollector
from deeplearning_agent.membership.transitions import Change, explain, follow_up, publish, take_over
from deeplearning_agent.role import READ_SECONDS, Role
from deeplearning_agent.workload.services import IdleService
from deeplearning_agent.workload.user_scripts import RunScript, fetch_run_script
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import ContractError
from deeplearning_contract.messages import ClusterNotification
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, AwsFailure
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.ssh import make_user_key

LOG = logging.getLogger(__name__)
SERVE_SECONDS = 10
"""Interval at which the master of a formed cluster reads the state record, to notice its replacement soon."""
ROUND_SECONDS = 2
"""Length of a round in which the master of a formed cluster receives reports and probes the members."""
FORM_SECONDS = 10
"""Time for which the master receives acknowledgements before it probes the members."""
TAKE_OVER_SECONDS = 60
"""Time for which a new master of a formed cluster waits for acknowledgements."""


class MasterEpoch:
    """
    First generation with this instance as the master, kept on its disk.

    Auto Scaling can run two masters for a while: one that it has given up, and its replacement. The newer one takes
    over. The older one reads that it was replaced, in its own generation or a later one, and stands by.
    """

    def __init__(self, node: Node) -> None:
        self._file = node.instance_file("master-since")

    def record(self, generation: int) -> None:
        """
        Record that this instance is about to become the master in a generation.

        Call it before the write of the state record: an agent that dies between both may then try again.
        """
        write_file(self._file, f"{generation}\n")

    def is_superseded(self, state: ClusterState) -> bool:
        """Return whether the master that the state record names, another instance, has followed this one."""
        try:
            claimed = int(self._file.read_text())
        except (OSError, ValueError):
            return False
        return state.generation >= claimed


class Master(Role):
    """Role of the master; one instance at a time has it."""

    store: ReportingStore

    user_key = ""
    monitor: MemberMonitor | None = None
    """Monitor of the workers. Default: a probe over the network."""

    def __init__(self, node: Node, clients: AwsClients, poll_seconds: int = POLL_SECONDS) -> None:
        super().__init__(node, clients, poll_seconds)
        self.store = ReportingStore(node, clients)
        self.outcome = FormationOutcome(node, clients, self.store, self.call)
        self.notified: tuple[int, bool] | None = None
        """Generation of the last notification to the workers, and whether it had only launched."""

    def run_role(self) -> NoReturn:
        """Prepare the node, then reconcile the state record at each notification and once a minute."""
        node, limit = self.node, self.begin_setup()
        self.member = prepare_node(node, self.clients, limit)
        self.user_key = run_stage(node.clock, "make the user key", lambda: make_user_key(node))
        run_stage(node.clock, "fetch the run script", lambda: fetch_run_script(node, self.clients, limit))
        self.store.begin_phases()
        self.run_script, self.idle_service = RunScript(node), IdleService(node)
        self.epoch = MasterEpoch(node)
        self.collector = ReportCollector(node, self.clients, self.poll_seconds)
        reports = self.collector.reports
        self.formation = Formation(node, self.collector, self.deadline)
        self.controller = MembershipController(
            node, reports, self.monitor or MemberMonitor(node), Replacements(node, self.clients, reports)
        )
        self.acknowledge_by: dict[int, Deadline] = {}
        while True:
            self.follow()

    def follow(self) -> None:
        """Read the state record, reconcile it, and wait for a change unless it must be read again at once."""
        state = None
        try:
            state = self.call(self.store.read)
            if not self.converge(state):
                return
            generation = state.generation if state else -1
            self.call(lambda: self.notifications.wait(generation, self.poll_deadline(state)))
            if not is_decided(state):  # Later reports are for another master, or for none.
                self.collector.receive(self.node.limit(PEEK_SECONDS))
        except (StageFailure, ContractError) as error:
            is_denied = isinstance(error, AwsFailure) and error.is_denied
            may_pass = isinstance(error, AwsFailure | ContractError) and not is_denied and not self.deadline.is_over
            if not is_decided(state) and not may_pass:
                raise
            LOG.warning("could not read the cluster state; retrying: %s", error)
            self.poll_deadline(state).pause(FORM_SECONDS if is_decided(state) else READ_SECONDS)

    def converge(self, state: ClusterState | None) -> bool:
        """
        Reconcile the cluster's state record. Idempotent in every phase.

        Returns False when the record must be read again at once. StageFailure means that the cluster cannot form.
        """
        own = self.node.identity.instance_id
        if state is None:
            self.formation.check_deadline(
                "no report from the capacity adjuster; see its log group" + self.collector.reports.describe_failures()
            )
        elif state.phase is Phase.FAILED:
            self.outcome.report_decided_failure(state)
        elif state.phase is Phase.LAUNCHED:
            if own in state.expected:
                self.publish(state)
                return False
            self.formation.check_deadline(f"the capacity adjuster does not count {self.node} among {state.expected}")
        elif state.master == own:
            (self.maintain if state.phase is Phase.FORMED else self.form)(state)
            return False
        else:
            return self.take_over_or_stand_by(state)
        return True

    def publish(self, state: ClusterState) -> None:
        """Collect a report of every worker and write the membership: master first, workers as expected."""
        own = self.node.identity.instance_id
        workers = tuple(name for name in state.expected if name != own)
        if state.generation > 1:  # The workers' reports may have gone to a master that died.
            self.notify_workers(state)
        lost = self.formation.collect_joined(state, workers, self.deadline.at_most(READ_SECONDS))
        if lost is None:
            return
        self.store.mark("join")
        found = [self.member, *(self.collector.reports.member(name) for name in workers if name not in lost)]
        members = tuple(member for member in found if member is not None)
        # A worker that joined and is not expected may have died since; a live one joins again when it reads the
        # members.
        self.collector.reports.forget_others(state.expected)
        following = publish(state, members, lost, self.user_key)
        self.epoch.record(following.generation)
        if self.call(lambda: self.store.write(following)):
            LOG.info("published generation %d with %d members", following.generation, len(members))

    def notify_workers(self, state: ClusterState) -> None:
        """
        Notify the workers of a generation, once when it has launched and once when it is published.

        The first notification requests reports; only a new master sends it.
        """
        news = (state.generation, state.phase is Phase.LAUNCHED)
        if self.notified != news and len(state.members or state.expected) > 1:
            url, body = (
                self.node.settings.worker_queue_url,
                ClusterNotification(state.cluster, state.generation).to_body(),
            )
            self.call(lambda: self.clients.sqs.send_message(QueueUrl=url, MessageBody=body))
        self.notified = news

    def form(self, state: ClusterState) -> None:
        """Notify the workers, wait for their acknowledgements and record the cluster as formed."""
        self.notify_workers(state)
        self.install(state)
        limit = self.node.limit(TAKE_OVER_SECONDS) if state.has_formed else self.formation.ready_by
        limit = self.acknowledge_by.setdefault(state.generation, limit)
        change = self.formation.collect_ready(state, limit, limit.at_most(FORM_SECONDS), self.controller.look)
        if change:
            self.write_next(state, change)
        elif change is not None:
            self.call(lambda: self.store.write(state.advance(Phase.FORMED, has_formed=True)))

    def maintain(self, state: ClusterState) -> None:
        """Maintain a formed cluster for `SERVE_SECONDS`, or until its membership changes."""
        self.notify_workers(state)
        if self.install(state) and self.member:
            self.outcome.report_success(state)
            self.controller.write_ready_hosts(state)  # A run script reads it at once.
            if self.run_script.is_due and not state.run_ended:
                members, own = state.members, self.member
                run_stage(self.node.clock, "start the run script", lambda: self.run_script.start(members, own))
            self.idle_service.ensure()
        self.publish_notice(state.notice or self.spot_notices.read())
        until = self.node.limit(SERVE_SECONDS)
        while not until.is_over:
            if self.run_script.has_ended_well and not state.run_ended:
                self.call(lambda: self.store.write(state.advance(Phase.FORMED, run_ended=True)))
                return
            change = self.controller.plan_change(state)
            if change:
                self.write_next(state, change)
                return
            self.listen()

    def listen(self) -> None:
        """Receive reports for one round; a failure of AWS must not keep the master from probing the members."""
        end, count = self.node.limit(ROUND_SECONDS), 0
        try:
            count = self.collector.receive(end)
        except AwsFailure as error:
            LOG.warning("could not read reports; retrying: %s", error)
        if count == 0:
            end.pause(ROUND_SECONDS)

    def write_next(self, state: ClusterState, change: Change) -> None:
        following = follow_up(state, change)
        if not state.has_formed and len(following.members) < state.requested:
            following = explain(following, change.left)
        if self.call(lambda: self.store.write(following)):
            self.controller.forget_departed(change)
            LOG.info("generation %d has %d members", following.generation, len(following.members))

    def take_over_or_stand_by(self, state: ClusterState) -> bool:
        """
        Take over from a master that this instance replaces; stand by when this instance was itself replaced.

        Two instances can follow one master; when the current one is silent for minutes, the other takes over. Returns
        False when the record must be read again at once.
        """
        if self.member is None or (
            self.epoch.is_superseded(state) and not self.controller.is_vacant(state, self.member)
        ):
            LOG.warning("%s is the master since generation %d or before", state.master, state.generation)
            self.run_script.stop()
            self.idle_service.stop()
            return True
        following = take_over(state, self.member, self.user_key)
        if not self.formation.has_enough(following):
            joined = self.controller.look_for_newcomers(state, self.member)
            following = take_over(state, self.member, self.user_key, joined)
        if not self.formation.has_enough(following):
            self.formation.check_deadline(
                f"the master {state.master} and too many workers of generation {state.generation} are gone"
            )
            return True
        # Reports from an earlier time as the master are stale; live nodes that are no members join again.
        self.collector.reports.forget_others([member.instance_id for member in following.members])
        self.epoch.record(following.generation)
        if self.call(lambda: self.store.write(following)):
            LOG.warning("took over from %s in generation %d", state.master, following.generation)
        return False

    def poll_deadline(self, state: ClusterState | None) -> Deadline:
        """Return the deadline of the next wait: a minute, or the end of the set-up time if that is sooner."""
        return self.node.limit(READ_SECONDS) if is_decided(state) else self.deadline.at_most(READ_SECONDS)

    def report_failure(self, failure: StageFailure) -> bool:
        """Signal CloudFormation and write the failure to the state record; the master of a formed cluster retries."""
        return self.outcome.report_failure(failure.reason(str(self.node)))
