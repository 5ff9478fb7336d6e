"""One run of a cluster: deploy, wait, examine the nodes, train."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.errors import PromiseError, RehearsalError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.fleet import Fleet
from cdk_rehearsal.run.progress import report_line
from cdk_rehearsal.run.run import check_sessions
from cdk_rehearsal.run.timeline import Event, Span, Timeline
from deeplearning_contract.cluster_state import ClusterState, get_request
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_contract.names import AGENT_LOG, SETTINGS_FILE, NodeRole, find_role
from deeplearning_contract.settings import NodeSettings
from deeplearning_rehearsal.checks.contract_check import check_nodes, read_membership
from deeplearning_rehearsal.checks.failure_alarm import FAILING_JOB, AlarmSubscriber
from deeplearning_rehearsal.checks.node_log import await_node_log
from deeplearning_rehearsal.checks.provision_watch import ProvisionProgress
from deeplearning_rehearsal.checks.results import CountReport
from deeplearning_rehearsal.checks.training import (
    COUNTING_JOB,
    LAUNCHER,
    list_sources,
    make_training_report,
    read_job,
    read_result,
    read_submission,
    upload_job,
)
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.platforms.registry import CLUSTER_PLATFORMS, find_platform
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.report.environment_report import EnvironmentReport, read_environment
from deeplearning_rehearsal.report.paid_seconds import TRAINING, read_node, reckon
from deeplearning_rehearsal.software.downloads import prepare_digits
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from deeplearning_rehearsal.template import apply_overrides

ALARM_LANE = "alarm topic"
"""Lane of what the subscriber of the alarm topic gets."""
BUILD_SECONDS = 1200.0
"""Limit for the build of an environment, on a machine that shares its cores with the nodes."""


@dataclass(frozen=True)
class ClusterRun:
    """The parts of one rehearsal."""

    options: RehearsalOptions
    stack: AssemblyStack
    timeline: Timeline
    lab: Lab
    fleet: Fleet
    aws: EmbeddedAws
    key_pairs: Mapping[str, str]
    kept: KeptEnvironments
    give_up: float

    @property
    def last_moment(self) -> float:
        """Moment when a job is given up: a first rehearsal compiles Horovod before, while `deeplearning run` waits."""
        return self.give_up + (BUILD_SECONDS if self.kept.wanted is not None else 0.0)

    def gather(self) -> Evidence:
        """Deploy the stack, wait for its end, and examine the result."""
        options, stack = self.options, self.stack
        template = stack.template
        platform = find_platform(template)
        if options.nodes is not None:
            platform.require_nodes(template, options.nodes)
        with self.timeline.phase("deploy"):
            workers = None if options.nodes is None else options.nodes - 1
            change = partial(apply_overrides, workers=workers, gpus=options.gpus_per_node)
            for need in stack.needs:
                self.aws.deploy(need)
                if self.aws.wait(self.give_up - time.monotonic()).status != "CREATE_COMPLETE":
                    break
            else:
                self.aws.deploy(stack, change_template=change)
        with self.timeline.phase("form"):
            outcome = self.aws.wait(self.give_up - time.monotonic())
        evidence = Evidence(
            stack=self.aws.stack_name,
            overrides={**self.aws.overrides, **{f"key pair {name}": "assumed to exist" for name in self.key_pairs}},
            requested=options.nodes or platform.count_nodes(template),
            outcome=outcome,
            calls=self.aws.calls(until=self.fleet.signalled_at),
            formation_seconds=self.fleet.formation_seconds(),
        )
        if evidence.has_formed:
            try:
                self.examine(evidence)
            except RehearsalError as error:
                evidence.problems.append(str(error))
            evidence.environment = self.find_environment()
        evidence.paid = self.reckon_paid(evidence)
        evidence.denials = self.aws.authorizer.record.denials()
        return evidence

    def reckon_paid(self, evidence: Evidence) -> Mapping[str, float]:
        """Return cause -> seconds of all nodes."""
        now, at = self.timeline.now(), self.timeline.at
        events: dict[str, list[Event]] = defaultdict(list)
        for event in self.timeline.events:
            events[event.lane].append(event)
        nodes = [
            read_node(at(bill.since), min(at(bill.until), now), at(bill.died), events[self.name_lane(name)])
            for name, bill in self.fleet.billed.items()
        ]
        return reckon(nodes, self.list_job_spans(evidence))

    def name_lane(self, instance_id: str) -> str:
        """Return the track of the timeline that says when a node could join, and was a member."""
        return self.fleet.lane(instance_id)

    def list_job_spans(self, _evidence: Evidence) -> Sequence[Span]:
        """Return what the job did, each span with its cause."""
        return [Span(TRAINING, span.start, span.seconds) for span in self.timeline.spans if span.name == "train"]

    def examine(self, evidence: Evidence) -> None:
        """Look at the cluster that formed: its state, its nodes and its training; an error keeps what was found."""
        self.check(evidence)
        if self.options.expect == "trained":
            self.train(evidence)
            self.fail_on_purpose(evidence)

    def check(self, evidence: Evidence) -> None:
        """Hold every node against the contract; RehearsalError when there is no master, or it has no membership."""
        master, lane = find_master(self.fleet), self.fleet.lane
        settings = self.read_settings()
        submission = read_submission(self.aws.place.client, settings.cluster)
        platform, client = CLUSTER_PLATFORMS[submission.platform], self.aws.place.client
        if platform.has_late_members:
            with self.timeline.phase("wait"):
                platform.await_members(client, submission, self.give_up - time.monotonic())
            if self.fleet.launched_at is not None:
                evidence.formation_seconds = time.monotonic() - self.fleet.launched_at
        if settings.state_table:
            database = self.aws.place.client("dynamodb")
            item = database.get_item(**get_request(settings.state_table, settings.cluster))["Item"]
            evidence.state = ClusterState.from_item(item)
        with self.timeline.phase("check"):
            evidence.membership = read_membership(self.lab, master.instance_id)
            evidence.nodes = check_nodes(
                self.lab,
                evidence.membership,
                settings.login_user,
                lambda instance_id, text: self.timeline.report(lane(instance_id), text),
            )
            if settings.log_group:
                logs, nodes = self.aws.place.client("logs"), [node.instance_id for node in evidence.nodes]
                evidence.log = await_node_log(logs, settings.log_group, nodes)
            self.check_logs(evidence, submission.platform.upper(), platform.find_logs(client, submission))
            # The master and the last worker: each role has rights of its own.
            ends = {evidence.membership.hosts[0][1], evidence.membership.hosts[-1][1]}
            check_sessions(self.aws.place.client("ssm"), ends)

    def check_logs(self, evidence: Evidence, name: str, logs: Mapping[str, bool]) -> None:
        """Hold the logs of a service itself against what it writes; what lacks is a problem."""
        evidence.problems += [
            f"{name} must write {uri}, it is not there" for uri, is_there in logs.items() if not is_there
        ]
        if logs:
            self.timeline.report(name, f"{sum(logs.values())} of {len(logs)} logs of {name} are there")

    def train(self, evidence: Evidence) -> None:
        """Run the example job; RehearsalError when it failed."""
        lane = self.fleet.lane(find_master(self.fleet).instance_id)
        with self.timeline.phase("train"):
            self.timeline.report(lane, "training starts")
            evidence.training = make_training_report(LAUNCHER, read_result(self.upload_and_run(read_job())))
            self.timeline.report(lane, f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")

    def count(self, evidence: Evidence) -> None:
        """Run the job that counts its ranks; RehearsalError when it failed."""
        with self.timeline.phase("count"):
            evidence.count = CountReport(**read_result(self.upload_and_run(COUNTING_JOB)))
            lane = self.fleet.lane(find_master(self.fleet).instance_id)
            self.timeline.report(lane, f"a job counts {evidence.count.ranks} ranks")

    def fail_on_purpose(self, evidence: Evidence) -> None:
        """Let a job fail, and hold what the subscriber of the alarm topic gets against what a person needs."""
        subscriber = AlarmSubscriber.subscribe(self.aws.place.client)
        with self.timeline.phase("fail a job"):
            try:
                self.run_failing_job()
            except PromiseError:
                text, problem = subscriber.await_failure()
            else:
                text, problem = "", f"job {FAILING_JOB.name} must fail, it succeeded"
            if problem:
                evidence.problems.append(problem)
            else:
                self.timeline.report(ALARM_LANE, text)

    def run_failing_job(self) -> None:
        """Run the failing job; PromiseError with its end."""
        self.run_job(FAILING_JOB)

    def upload_and_run(self, job: JobDefinition) -> str:
        """Upload the source of a job, and run it as `run_job` does."""
        files = list_sources(job, self.find_digits)
        return self.run_job(upload_job(self.aws.place.client, self.read_submission(), job, files))

    def run_job(self, job: JobDefinition) -> str:
        """Run a job on the master, and return its standard output; PromiseError when it fails."""
        client, submission = self.aws.place.client, self.read_submission()
        master, seconds = find_master(self.fleet).instance_id, self.last_moment - time.monotonic()
        platform = CLUSTER_PLATFORMS[submission.platform]
        return platform.run_job(self.lab, master, job, seconds, clients=client, submission=submission)

    def find_digits(self) -> Path:
        """Return the file that jobs train on, which was downloaded before the lab was opened."""
        return prepare_digits(self.options.cache, report_line)

    def find_environment(self) -> EnvironmentReport | None:
        """Return what jobs run in, as the master has it; None where nothing was declared, or no master runs."""
        try:
            if self.read_settings().needs.environment is None:
                return None
            return read_environment(self.lab.disk(find_master(self.fleet).instance_id), self.kept.brought)
        except RehearsalError:
            return None

    def read_submission(self) -> SubmissionSettings:
        """Return the submission document of the cluster; PromiseError without one."""
        return read_submission(self.aws.place.client, self.read_settings().cluster)

    def read_settings(self) -> NodeSettings:
        """Return the settings of the master."""
        return NodeSettings.from_json(self.lab.read_file(find_master(self.fleet).instance_id, SETTINGS_FILE).decode())


def make_fleet(lab: Lab, timeline: Timeline, prepare: Callable[[Machine], None], events_lane: str) -> Fleet:
    """Return the fleet of a cluster, the master first; what groups do is what the adjuster acts on."""
    return Fleet(
        lab,
        timeline,
        prepare,
        ProvisionProgress().describe,
        log_file=AGENT_LOG,
        name=_name_role,
        order=lambda machine: (not _is_master(machine), machine.address),
        events_lane=events_lane,
    )


def find_master(fleet: Fleet) -> Machine:
    """Return the master; PromiseError when none runs."""
    for machine in fleet.machines():
        if _is_master(machine):
            return machine
    raise PromiseError("no master is running")


def _is_master(machine: Machine) -> bool:
    return find_role(machine.tags) is NodeRole.MASTER


def _name_role(machine: Machine) -> str:
    role = find_role(machine.tags)
    return role.value if role else "node"
