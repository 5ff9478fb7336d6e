"""The master's duty: collect the workers, publish the roster, see it acknowledged, tell CloudFormation."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from deeplearning_agent.aws_clients import AwsFailure
from deeplearning_agent.boot import prepare_node, run_stage
from deeplearning_agent.collector import PEEK_SECONDS, Collector
from deeplearning_agent.deadline import Deadline, setup_deadline
from deeplearning_agent.duty import READ_SECONDS, Duty
from deeplearning_agent.failure import ReportedFailure, StageFailure
from deeplearning_agent.node import STARTED_FILE
from deeplearning_agent.node_environment import contract_variables
from deeplearning_agent.queues import DoorbellQueue
from deeplearning_agent.signals import StackSignal
from deeplearning_agent.ssh_identity import make_user_key
from deeplearning_agent.user_scripts import fetch_run_script, start_run_script
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.errors import ContractError

if TYPE_CHECKING:
    import subprocess

LOG = logging.getLogger(__name__)
WRITE_ATTEMPTS = 5
DECIDED = (Phase.FORMED, Phase.FAILED)


class Master(Duty):
    """Runs on the one master."""

    user_key = ""
    rung_generation = 0
    training: "subprocess.Popen[bytes] | None" = None

    def perform(self) -> None:
        """Prepare the node, then converge on the item at each ring and once a minute."""
        node = self.node
        self.deadline = setup_deadline(node.clock, node.path(STARTED_FILE), node.settings.setup_seconds)
        limit = self.preparation_deadline()
        self.member = prepare_node(node, self.clients, limit)
        self.user_key = run_stage(node.clock, "make the user key", lambda: make_user_key(node))
        run_stage(node.clock, "fetch the run script", lambda: fetch_run_script(node, self.clients, limit))
        self.signal = StackSignal(node)
        self.collector = Collector(node, self.clients, self.poll_seconds)
        while True:
            self.follow()

    def follow(self) -> None:
        """
        Read the item, do what it asks, and wait for news unless it must be read again at once.

        Raises:
            StageFailure: The cluster cannot form.
        """
        state = None
        try:
            state = self.call(self.store.read)
            if not self.converge(state):
                return
            generation = state.generation if state else -1
            self.call(lambda: self.doorbells.wait(generation, self.patience(state)))
            self.peek(state)
        except (AwsFailure, ContractError) as error:
            if not is_decided(state) and self.deadline.is_over:
                raise
            LOG.warning("cannot follow the cluster, will try again: %s", error)
            self.patience(state).pause(READ_SECONDS)

    def converge(self, state: ClusterState | None) -> bool:
        """
        Do what the item asks of the master, from whatever phase it finds.

        Returns:
            False when the item must be read again at once.

        Raises:
            StageFailure: The cluster cannot form.
        """
        if state is None:
            self.check_deadline("the capacity adjuster has not said what launched; read its log")
        elif state.phase is Phase.FAILED:
            self.signal.send("FAILURE", state.reason)
        elif state.phase is Phase.FORMED:
            self.serve(state)
        elif self.node.identity.instance_id not in state.expected:
            self.check_deadline(f"the capacity adjuster does not count {self.node} among {state.expected}")
        elif state.phase is Phase.LAUNCHED:
            self.publish(state)
            return False
        else:
            self.form(state)
            return False
        return True

    def publish(self, state: ClusterState) -> None:
        """
        Collect a description of every worker and write the roster: master first, workers as expected.

        Raises:
            StageFailure: A worker failed, did not join in time, or has the address of another.
        """
        roster = self.collector.roster
        if not self.collect(state, lambda worker: roster.member(worker) is not None):
            return
        found = [self.member, *map(roster.member, self.workers(state))]
        members = tuple(member for member in found if member is not None)
        if len({member.address for member in members}) < len(members):
            addresses = ", ".join(f"{member.instance_id} {member.address}" for member in members)
            raise StageFailure(f"two members have one address: {addresses}", "", stage="publish the roster")
        following = state.advance(
            Phase.PUBLISHED, generation=max(1, state.generation), members=members, user_key=self.user_key
        )
        if self.call(lambda: self.store.write(following)):
            LOG.info("published generation %d with %d members", following.generation, len(members))

    def form(self, state: ClusterState) -> None:
        """
        Ring the workers, wait for their acknowledgements and write that the cluster has formed.

        Raises:
            StageFailure: A worker failed or did not acknowledge in time.
        """
        settings, roster = self.node.settings, self.collector.roster
        if self.workers(state) and self.rung_generation != state.generation:
            bell = DoorbellQueue(self.clients, settings.worker_queue_url, settings.cluster, is_shared=True)
            self.call(lambda: bell.ring(state.generation))
            self.rung_generation = state.generation
        self.install(state)
        if self.collect(state, lambda worker: roster.is_ready(worker, state.generation)):
            self.call(lambda: self.store.write(state.advance(Phase.FORMED)))

    def serve(self, state: ClusterState) -> None:
        """
        Be the master of a formed cluster: signal once, start the user's run script once, look after it.

        Raises:
            StageFailure: The membership could not be installed.
        """
        if self.install(state) and self.member:
            formed = f"{len(state.members)} of {state.requested} nodes formed generation {state.generation}"
            self.signal.send("SUCCESS", f"{formed}: {state.reason}" if state.reason else formed)
            variables = contract_variables(self.node, len(state.members), self.member.gpu_count)
            self.training = self.training or run_stage(
                self.node.clock, "start the run script", lambda: start_run_script(self.node, variables)
            )
        if self.training and self.training.poll() is not None:
            LOG.info("the run script ended with status %d", self.training.returncode)
            self.training = None

    def collect(self, state: ClusterState, has_reported: Callable[[str], bool]) -> bool:
        """
        Collect reports for up to a minute, after which the item is to be read again.

        Returns:
            Whether all workers have reported.

        Raises:
            StageFailure: The set-up time is over, or a worker failed.
        """
        workers = self.workers(state)
        if self.collector.collect(workers, has_reported, self.deadline.at_most(READ_SECONDS), state.expected):
            return True
        if self.deadline.is_over:
            raise self.collector.time_out(workers, has_reported, self.node.settings.setup_seconds)
        return False

    def peek(self, state: ClusterState | None) -> None:
        """
        Look at reports that nobody waits for yet: a worker's failure ends the set-up at once.

        Raises:
            ReportedFailure: A worker failed before the cluster formed.
        """
        try:
            self.collector.take(state.expected if state else (), self.node.limit(PEEK_SECONDS))
        except ReportedFailure as failure:
            if not is_decided(state):
                raise
            LOG.warning("a worker failed after the cluster was decided: %s", failure)

    def workers(self, state: ClusterState) -> tuple[str, ...]:
        """Return the expected instances but this one, in order."""
        return tuple(expected for expected in state.expected if expected != self.node.identity.instance_id)

    def patience(self, state: ClusterState | None) -> Deadline:
        """Return until when to wait for news: a minute, or less when the set-up time ends before."""
        return self.node.limit(READ_SECONDS) if is_decided(state) else self.deadline.at_most(READ_SECONDS)

    def check_deadline(self, cause: str) -> None:
        """
        Do nothing while there is set-up time left.

        Raises:
            StageFailure: It is over.
        """
        if self.deadline.is_over:
            seconds = self.node.settings.setup_seconds
            raise StageFailure(f"the set-up time of {seconds} s is over: {cause}", "", stage="form the cluster")

    def report_failure(self, failure: StageFailure) -> None:
        """Tell CloudFormation and write the item, unless it was told of a success: nothing undoes that."""
        reason = failure.reason(str(self.node))
        try:
            state = self.call(self.store.read)
        except Exception as error:  # noqa: BLE001 - the signal must go out whatever the item is
            LOG.error("could not read the state item: %s", error)  # noqa: TRY400 - the cause is in the line
            state = None
        signal = StackSignal(self.node)
        if signal.has_succeeded and state and state.phase is Phase.FORMED:
            return
        signal.send("FAILURE", reason)
        try:
            self.write_failure(reason)
        except Exception as error:  # noqa: BLE001 - CloudFormation has been told
            LOG.error("could not write the state item: %s", error)  # noqa: TRY400 - the cause is in the line

    def write_failure(self, reason: str) -> None:
        """
        Write that the cluster failed, over whatever was written meanwhile, but not over a decision.

        Raises:
            AwsFailure: The item could not be written.
        """
        for _ in range(WRITE_ATTEMPTS):
            state = self.call(self.store.read)
            if is_decided(state):
                return
            absent = ClusterState(self.node.settings.cluster, 1, 0, Phase.FAILED, 0, (), reason)
            failed = state.advance(Phase.FAILED, reason=reason) if state else absent
            if self.call(lambda item=failed: self.store.write(item)):  # type: ignore[misc]
                return


def is_decided(state: ClusterState | None) -> bool:
    """Tell whether nothing is left to wait for."""
    return state is not None and state.phase in DECIDED
