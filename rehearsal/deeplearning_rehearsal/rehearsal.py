"""The recipe of a rehearsal; runs in the first process of the lab's namespaces."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cache
from typing import Any, NoReturn

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.access.authorizer import write_rights
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, no_usual_order
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.key_pairs import assume_key_pairs
from cdk_rehearsal.lab import Lab, open_lab
from cdk_rehearsal.lab.lab import ENDPOINT, PORT, ROUTER
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET
from cdk_rehearsal.printing import report_error
from cdk_rehearsal.referees.order import find_usual_order
from cdk_rehearsal.report.dashboard_page import read_dashboard
from cdk_rehearsal.report.report import list_ending, name_following, name_path, render_text
from cdk_rehearsal.report.stand_ins import AWS_STAND_INS
from cdk_rehearsal.run.enclosure import end_enclosure
from cdk_rehearsal.run.fleet import Fleet
from cdk_rehearsal.run.lab_record import LabRecord, read_network
from cdk_rehearsal.run.memory import MemoryWatch
from cdk_rehearsal.run.progress import keep_progress, report_line, show_progress
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_contract.metrics import GPU_UTILIZATION
from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.loader import find_case
from deeplearning_rehearsal.cases.run.case_run import CaseRun
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.cases.run.job_case_run import JobCaseRun
from deeplearning_rehearsal.cases.run.pod_case_run import PodCaseRun
from deeplearning_rehearsal.cases.run.synthesis import prepare_machines
from deeplearning_rehearsal.checks.training import list_sources, read_job, upload_job
from deeplearning_rehearsal.cluster_run import ClusterRun, make_fleet
from deeplearning_rehearsal.containers import prepare_images
from deeplearning_rehearsal.job_hosts import JobHosts, open_hosts
from deeplearning_rehearsal.job_run import JobRun
from deeplearning_rehearsal.kubernetes_jobs import KubernetesJobs
from deeplearning_rehearsal.options import RehearsalOptions
from deeplearning_rehearsal.platforms.eks import find_job_submitter, has_administrator
from deeplearning_rehearsal.platforms.platform import Clients
from deeplearning_rehearsal.platforms.registry import find_platform
from deeplearning_rehearsal.platforms.sagemaker import find_submitter
from deeplearning_rehearsal.pod_run import PodRun
from deeplearning_rehearsal.report.assessment import judge
from deeplearning_rehearsal.report.outside_view import describe_outside
from deeplearning_rehearsal.report.report import Document, list_text
from deeplearning_rehearsal.report.report_page import render_page
from deeplearning_rehearsal.software.downloads import prepare_digits
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from deeplearning_rehearsal.software.node_software import NodeSoftware, prepare_software
from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
from deeplearning_rehearsal.template import find_environment, override_environment, read_cluster
from deeplearning_rehearsal.training_jobs import TrainingJobs

_UNREAL_METRICS = {GPU_UTILIZATION.name: "the nodes have no GPU, and the stand-in shows the load of their processor"}


def carry_out(argument: str, lab_pid: int) -> int:
    """Rehearse with options of JSON, report, and end this process; return the status when that is not possible."""
    options = RehearsalOptions.from_json(argument)
    try:
        rehearse(options, Timeline(), lab_pid)
    except RehearsalError as error:
        return report_error(error, as_json=options.json)


def rehearse(options: RehearsalOptions, timeline: Timeline, lab_pid: int) -> NoReturn:
    """
    Deploy, boot, form, check, train and report; the lab stays for as long as the user wants to keep it.

    Ends this process with status 0, or 1 when something was not as promised, which the report says.

    Args:
        options: The command line's options.
        timeline: Timeline of all that happens.
        lab_pid: This process's id outside its namespaces, where the user is.

    Raises:
        RehearsalError: The rehearsal itself could not be carried out.
    """
    case = None if options.case is None else find_case(options.case)
    keep_progress(timeline, options.folder)
    stack = read_cluster(options.assembly, options.stack)
    software = prepare_software(stack, options.cache, lambda line: timeline.report("rehearsal", line))
    platform = find_platform(stack.template)
    images = prepare_images(stack, software.base, options.cache, lambda line: timeline.report("image", line))
    with _open_lab(options, software) as lab, MemoryWatch(options.work) as memory:
        kept = _open_kept(options, case, stack)
        lab.installed = kept.install() if case is not None and case.environment == "image" else ()
        hosts = open_hosts(platform, lab, stack, images, report=timeline.report, options=options)
        copy_program = prepare_machines(case, lab, lambda: prepare_digits(options.cache, report_line))
        fleet = make_fleet(lab, timeline, _prepare(copy_program, kept, lab), platform.events_lane)
        key_pairs = assume_key_pairs(stack.deployment)
        sound = _make_cloud_options(options, key_pairs, software)
        cloud = sound if case is None else add_faults(sound, case, kept)
        aws_parts = EmbeddedAws(
            address=ROUTER,
            port=PORT,
            machines=fleet,
            containers=hosts.containers,
            clusters=hosts.clusters,
            observer=fleet.observe,
            options=cloud,
        )
        with aws_parts as aws, fleet:
            fleet.on_end = aws.fail_instance
            give_up = time.monotonic() + options.minutes * 60
            if options.keep:
                _record(options, stack, lab_pid)
            cluster = ClusterRun(options, stack, timeline, lab, fleet, aws, key_pairs, kept, give_up)
            run = _choose_run(cluster, case, hosts, stack.template)
            with show_progress(timeline, verbose=options.verbose):
                evidence = run.gather()
            status = describe_outside(aws)
            stand_ins = (*lab.stand_ins, *hosts.stand_ins, *AWS_STAND_INS)
            report = judge(options.expect, evidence, timeline, stand_ins, memory.peak_mib, seed=options.seed)
            if report["verdict"] != "pass":
                aws.require_soundness()
            else:
                kept.keep([root for machine in fleet.launched() for root in lab.file_system_roots(machine)])
            _publish(report, options, status, read_dashboard(aws, _UNREAL_METRICS))
            write_rights(aws.authorizer, case.name if case else "", evidence.outcome.resources, options.folder)
            if options.keep:
                _keep(lab, fleet, lab_pid, options)
            end_enclosure(0 if report["verdict"] == "pass" else 1)


def _open_lab(options: RehearsalOptions, software: NodeSoftware) -> AbstractContextManager[Lab]:
    return open_lab(
        options.work,
        software.base,
        software.layers,
        index=software.index,
        gpus_per_node=options.gpus_per_node,
        has_lustre_client=options.lustre_client,
    )


def _choose_run(parts: ClusterRun, case: Case | None, hosts: JobHosts, template: Mapping[str, Any]) -> ClusterRun:
    """
    Return the run of a cluster or of training jobs, with the faults of a case.

    Training jobs are submitted as a role of the stack that may submit them; the operator does where there is none.
    """
    if hosts.containers is None and hosts.pods is None:
        return parts if case is None else CaseRun(**vars(parts), case=case)

    submitter = find_submitter(template) or find_job_submitter(template)

    def operate(service: str) -> Any:
        return parts.aws.place.client(service)  # There is a place only when the stack is deployed.

    @cache
    def sign_in() -> Clients:
        return parts.aws.sign_in(submitter) if submitter else operate

    def client(service: str) -> Any:
        return sign_in()(service)

    def make_job(submission: SubmissionSettings) -> JobDefinition:
        job = case.definition if case else read_job()
        return upload_job(client, submission, job, list_sources(job, parts.find_digits))

    if hosts.pods is not None and hosts.clusters is not None:
        hosts.pods.aws = parts.aws
        pods = KubernetesJobs(
            client,
            operate,
            hosts.pods,
            hosts.clusters,
            make_job,
            has_submitter=bool(submitter),
            has_administrator=has_administrator(template),
        )
        return PodRun(**vars(parts), jobs=pods) if case is None else _make_pod_case(parts, case, pods, submitter)
    assert hosts.containers is not None
    containers = hosts.containers
    containers.find_place = lambda: parts.aws.place
    jobs = TrainingJobs(client, operate, parts.lab, containers, make_job, parts.aws.interrupt_training)
    return JobRun(**vars(parts), jobs=jobs) if case is None else JobCaseRun(**vars(parts), case=case, jobs=jobs)


def _make_pod_case(parts: ClusterRun, case: Case, pods: KubernetesJobs, submitter: str) -> PodCaseRun:
    submitted = SubmittedJobs(
        jobs=pods,
        aws=parts.aws,
        lab=parts.lab,
        definition=case.definition,
        folder=parts.options.work / "job",
        find_digits=parts.find_digits,
        submitter=submitter,
        report=parts.timeline.report,
    )
    return PodCaseRun(**vars(parts), case=case, submitted=submitted)


def _open_kept(options: RehearsalOptions, case: Case | None, stack: AssemblyStack) -> KeptEnvironments:
    changed = deepcopy(dict(stack.template))
    override_environment(changed)
    wanted = find_environment(changed)
    is_fresh = case is not None and case.environment == "absent"
    return KeptEnvironments(options.cache, wanted, report_line, is_fresh=is_fresh)


def _prepare(first: Callable[[Machine], None] | None, kept: KeptEnvironments, lab: Lab) -> Callable[[Machine], None]:
    """Return what is done before a machine boots."""

    def prepare(machine: Machine) -> None:
        kept.put(lab.file_system_roots(machine))
        if first is not None:
            first(machine)

    return prepare


def _make_cloud_options(
    options: RehearsalOptions, key_pairs: Mapping[str, str], software: NodeSoftware
) -> CloudOptions:
    """Return the options of an embedded AWS without a fault."""
    return make_cloud_options(
        key_pairs=key_pairs,
        seed=options.seed,
        find_usual_order=find_usual_order if options.referees else no_usual_order,
        policies=options.read_policies(),
        node_modules=software.node_modules,
    )


def _record(options: RehearsalOptions, stack: AssemblyStack, lab_pid: int) -> None:
    """Write where the lab is, for commands that look at it while it forms and while it is kept."""
    record = LabRecord(lab_pid, read_network(), ENDPOINT, stack.region, stack.name, OPERATOR_KEY, OPERATOR_SECRET)
    record.write(options.out)


def _publish(report: Document, options: RehearsalOptions, status: str, dashboard: str) -> None:
    document = json.dumps(report, indent=2) + "\n"
    files = {"report.json": document, "report.txt": render_text(list_text(report)) + "\n", "status.txt": f"{status}\n"}
    files |= {"dashboard.html": dashboard} if dashboard else {}
    files["report.html"] = render_page(report, dashboard="dashboard.html" if dashboard else "")
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (options.folder / name).write_text(content, encoding="utf-8")
    if report["verdict"] == "fail" or report["stack"]["status"] != "CREATE_COMPLETE":
        sys.stderr.write(f"what `deeplearning-cdk status` says of it:\n{status}\n")
        sys.stderr.flush()
    if options.json:
        sys.stdout.write(document)
    (sys.stderr if options.json else sys.stdout).write(_end(report, options) + "\n")
    sys.stdout.flush()


def _end(report: Document, options: RehearsalOptions) -> str:
    """Return the last lines of a rehearsal: its verdict, where the report is, and what to do next."""
    following = ""
    if options.case is None and options.expect != "failed" and not options.keep:
        patterns = [options.stack] if options.stack else []
        has_passed = report["verdict"] == "pass"
        following = name_following(options.assembly, patterns, has_passed=has_passed, seed=options.seed)
    path = f"{name_path(options.folder / 'report.html')} (also .json and .txt)"
    return render_text(list_ending(list_text(report), path, following))


def _keep(lab: Lab, fleet: Fleet, lab_pid: int, options: RehearsalOptions) -> None:
    """Keep the cluster running until it is interrupted, and say how to get in."""
    interrupted = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: interrupted.set())
    machines = fleet.machines()
    for machine in machines:
        inner = f"nsenter {' '.join(lab.node(machine.instance_id).entry())} -- su --login {machine.login_user}"
        name = fleet.lane(machine.instance_id)
        sys.stderr.write(f"enter {name:<10} nsenter --target {lab_pid} --all -- {inner}\n")
    command, others = ("status", "logs and ssh") if machines else ("jobs", "submit, logs --job and stop")
    sys.stderr.write(f"look       deeplearning-cdk {command} --rehearsal {options.out} (also {others})\n")
    sys.stderr.write("the cluster keeps running; Ctrl-C ends it\n")
    sys.stderr.flush()
    interrupted.wait()
