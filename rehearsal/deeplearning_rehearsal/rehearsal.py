"""The recipe of a rehearsal; runs in the first process of the lab's namespaces."""

import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from deeplearning_contract.cluster_state import ClusterState, get_request
from deeplearning_contract.names import SETTINGS_FILE
from deeplearning_contract.settings import NodeSettings
from deeplearning_rehearsal.account import assume_key_pairs
from deeplearning_rehearsal.assessment import Evidence, judge
from deeplearning_rehearsal.capacity import count_requested, require_worker_minimum
from deeplearning_rehearsal.contract_check import check_nodes, read_roster
from deeplearning_rehearsal.embedded_aws import CloudOptions, EmbeddedAws
from deeplearning_rehearsal.embedded_aws.assembly import read_stack
from deeplearning_rehearsal.errors import RehearsalError
from deeplearning_rehearsal.fleet import Fleet
from deeplearning_rehearsal.lab import Lab, prepare_base_root
from deeplearning_rehearsal.memory import MemoryWatch
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.progress import show_progress
from deeplearning_rehearsal.report import Report, render_text, write_report
from deeplearning_rehearsal.report_page import render_page
from deeplearning_rehearsal.stand_ins import AWS_STAND_INS
from deeplearning_rehearsal.timeline import Timeline
from deeplearning_rehearsal.training import train

ROUTER = "100.64.0.1"
"""Where nodes reach the embedded AWS: an address of the range that no VPC may have (RFC 6598)."""

PORT = 4566
_UNAVAILABLE = 2


def carry_out(argument: str, lab_pid: int) -> int:
    """
    Rehearse, report, and return the exit status.

    Args:
        argument: The options as JSON.
        lab_pid: This process's id outside its namespaces, where the user is.
    """
    options = RehearsalOptions.from_json(argument)
    try:
        report = rehearse(options, Timeline(), lab_pid)
    except RehearsalError as error:
        sys.stderr.write(f"deeplearning-cdk: {error}\n")
        return _UNAVAILABLE
    return 0 if report.verdict == "pass" else 1


def rehearse(options: RehearsalOptions, timeline: Timeline, lab_pid: int) -> Report:
    """
    Deploy, boot, form, check, train and report; the lab stays for as long as the user wants to keep it.

    Args:
        options: What to do.
        timeline: Told everything that happens.
        lab_pid: This process's id outside its namespaces.

    Returns:
        The report; something that was not as promised is in its verdict.

    Raises:
        RehearsalError: The rehearsal itself could not be carried out.
    """
    with _open_lab(options, timeline) as lab, MemoryWatch() as memory:
        fleet = Fleet(lab, timeline)
        key_pairs = assume_key_pairs(read_stack(options.assembly, options.stack).template)
        cloud = CloudOptions(key_pairs=key_pairs)
        with (
            EmbeddedAws(address=ROUTER, port=PORT, machines=fleet, observer=fleet.observe, options=cloud) as aws,
            fleet,
        ):
            run = _Run(options, timeline, lab, fleet, aws, key_pairs, time.monotonic() + options.minutes * 60)
            with show_progress(timeline):
                evidence = run.gather()
            report = judge(options.expect, evidence, timeline, (*lab.stand_ins, *AWS_STAND_INS), memory.peak_mib)
            _publish(report, options)
            if options.keep:
                _keep(lab, fleet, lab_pid)
    return report


def _publish(report: Report, options: RehearsalOptions) -> None:
    write_report(report, options.out, render_page(report))
    sys.stdout.write((json.dumps(report.to_document(), indent=2) if options.json else render_text(report)) + "\n")
    sys.stdout.flush()
    sys.stderr.write(f"report     {options.out / 'report.html'} (also .json and .txt)\n")


def _keep(lab: Lab, fleet: Fleet, lab_pid: int) -> None:
    """Keep the cluster running until it is interrupted, and say how to get in."""
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: interrupted.set())
    for machine in fleet.machines():
        inner = f"nsenter {lab.entry(machine.instance_id)} -- su --login {machine.login_user}"
        name = fleet.lane(machine.instance_id)
        sys.stderr.write(f"enter {name:<10} nsenter --target {lab_pid} --all -- {inner}\n")
    sys.stderr.write("the cluster keeps running; Ctrl-C ends it\n")
    sys.stderr.flush()
    interrupted.wait()


@contextmanager
def _open_lab(options: RehearsalOptions, timeline: Timeline) -> Iterator[Lab]:
    base_root = prepare_base_root(options.base_cache, lambda line: timeline.tell("rehearsal", line))
    lab = Lab(
        base_root=base_root,
        work=options.work,
        endpoint_url=f"http://{ROUTER}:{PORT}",
        gateway=ROUTER,
        gpus_per_node=options.gpus_per_node,
    )
    with lab:
        # The lab's folder is in memory and in this mount namespace only: not even SIGKILL leaves a temporary file.
        temporary = options.work / "tmp"
        temporary.mkdir()
        tempfile.tempdir = str(temporary)
        yield lab


@dataclass(frozen=True)
class _Run:
    """The parts of one rehearsal."""

    options: RehearsalOptions
    timeline: Timeline
    lab: Lab
    fleet: Fleet
    aws: EmbeddedAws
    key_pairs: Mapping[str, str]
    give_up: float

    def gather(self) -> Evidence:
        """Deploy the stack, wait for its end, and look at what has become of it."""
        options = self.options
        template = read_stack(options.assembly, options.stack).template
        require_worker_minimum(template, options.nodes)
        with self.timeline.phase("deploy"):
            workers = None if options.nodes is None else options.nodes - 1
            self.aws.deploy(options.assembly, options.stack, worker_desired_capacity=workers)
        with self.timeline.phase("form"):
            outcome = self.aws.wait(self.give_up - time.monotonic())
        evidence = Evidence(
            stack=self.aws.stack_name,
            overrides={**self.aws.overrides, **{f"key pair {name}": "assumed to exist" for name in self.key_pairs}},
            requested=options.nodes or count_requested(template),
            outcome=outcome,
            calls=self.aws.calls(until=self.fleet.signalled_at),
            formation_seconds=self.fleet.formation_seconds(),
        )
        if evidence.has_formed:
            try:
                self._examine(evidence)
            except RehearsalError as error:
                evidence.problems.append(str(error))
        return evidence

    def _examine(self, evidence: Evidence) -> None:
        master, lane = self.fleet.master(), self.fleet.lane
        settings = NodeSettings.from_json(self.lab.read_file(master.instance_id, SETTINGS_FILE).decode())
        database = self.aws.place.client("dynamodb")
        item = database.get_item(**get_request(settings.state_table, settings.cluster))["Item"]
        evidence.state = ClusterState.from_item(item)
        with self.timeline.phase("check"):
            evidence.roster = read_roster(self.lab, master.instance_id)
            evidence.nodes = check_nodes(
                self.lab,
                evidence.roster,
                settings.login_user,
                lambda instance_id, text: self.timeline.tell(lane(instance_id), text),
            )
        if self.options.expect == "trained":
            self._train(evidence, settings.login_user)

    def _train(self, evidence: Evidence, login_user: str) -> None:
        master = self.fleet.master().instance_id
        lane = self.fleet.lane(master)
        with self.timeline.phase("train"):
            self.timeline.tell(lane, "training starts")
            evidence.training = train(self.lab, master, login_user, self.give_up - time.monotonic())
            self.timeline.tell(lane, f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")
