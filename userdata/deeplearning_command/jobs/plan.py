"""`deeplearning plan`: command lines, files and places of a job for `deeplearning run`, with reasons."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from deeplearning_command.context import Context
from deeplearning_command.jobs.options import (
    add_job_options,
    count_offered_ports,
    draft_job,
    list_needless,
    read_job,
    survey_job,
)
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_jobs.hosts.preflight import describe_tcp, describe_unready
from deeplearning_jobs.hosts.probe import find_interface
from deeplearning_jobs.plan.launch_plan import Host, JobRequest, LaunchPlan, PlanError
from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.plan.topology import list_hosts, list_places
from deeplearning_jobs.planner import make_plan

FIRST_EXAMPLE_PORT = 20000
RUN_ONLY = ("--wait", "--no-wait", "--detach", "--end-cluster", "--yes")
RUN_ONLY_NUMBERS = ("--retries", "--max-seconds")
"""Options of `run` without effect on the plan, accepted so that a user can replace `run` by `plan`."""
DESCRIPTION = """
Print the plan of `deeplearning run` with the same options: the command lines, the files they need, the place of each
rank with its GPU and network cards, and the reason for each part. On the master every host is probed first, as in
`run`; elsewhere, or with --offline, the plan uses the files of this node. Nothing is started or written.
"""


@dataclass(frozen=True)
class PlanContext:
    """Hosts for a plan."""

    hosts: list[Host]  # In the membership's order
    ports: Mapping[str, tuple[int, ...]]  # Host name -> ports that it offers, or examples
    notes: list[str]  # Facts that the hosts did not report themselves
    faults: list[str]  # Reasons why `run` would refuse the job now


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run`, and those of only the plan."""
    add_job_options(parser)
    parser.add_argument("--fresh", action="store_true", help="ignore existing checkpoints")
    parser.add_argument("--resume-args", default="", metavar="WORDS", help="as for run")
    parser.add_argument("--checkpoint-pattern", default="", metavar="GLOB", help="as for run")
    for option in RUN_ONLY:
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    for option in RUN_ONLY_NUMBERS:
        parser.add_argument(option, type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--offline", action="store_true", help="probe no host")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a page")


def run(options: argparse.Namespace, context: Context) -> int:
    """Print the plan; RefusedError for a job that cannot be planned."""
    return plan_job(read_job(options), context, is_offline=options.offline, as_json=options.json)


def plan_job(job: JobDefinition, context: Context, *, is_offline: bool = False, as_json: bool) -> int:
    """Print the plan of a job, and return 0, or 1 if it would be refused now; RefusedError for one without a plan."""
    installed = list_installed(context)
    try:
        folder, _, request = draft_job(job, context)
        situation = find_situation(job, context, request, installed, is_offline=is_offline)
        request = replace(request, folder=str(folder.next_run().path), ports=situation.ports)
        plan = make_plan(situation.hosts, request)
    except PlanError as error:
        raise RefusedError(str(error)) from error
    sys.stdout.write(describe_plan(plan, situation) if as_json else render_plan(plan))
    for line in describe_tcp(plan.hosts):
        sys.stderr.write(f"warning: {line}\n")
    for note in situation.notes:
        sys.stderr.write(f"note: {note}\n")
    for fault in situation.faults:
        sys.stderr.write(f"run would refuse this: {fault}\n")
    return 1 if situation.faults else 0


def list_installed(context: Context) -> list[Host]:
    """Return the hosts of the installed membership; RefusedError on a node that is no member."""
    membership, facts = context.membership, context.facts
    own = membership.find(facts.instance_id)
    if own is None:
        raise RefusedError(f"this node must be a member, got {facts.instance_id}; log in to one that is")
    return list_hosts(membership.members, facts.needs.hardware, find_interface(context.programs, own.address))


def find_situation(
    job: JobDefinition, context: Context, request: JobRequest, installed: list[Host], *, is_offline: bool
) -> PlanContext:
    """Return the hosts as they report themselves, or from the installed membership for those that do not."""
    examples = tuple(range(FIRST_EXAMPLE_PORT, FIRST_EXAMPLE_PORT + count_offered_ports(job)))
    ports = {host.name: examples for host in installed}
    if is_offline:
        return PlanContext(installed, ports, [describe_guess("--offline")], [])
    try:
        remote = context.remote
    except RefusedError as error:
        return PlanContext(installed, ports, [describe_guess(str(error))], [])
    preflight = survey_job(job, request, remote)
    answered = {host.name: host for host in preflight.plan_hosts()}
    notes = [describe_guess(f"{host} does not respond") for host in preflight.expected if host not in answered]
    unready = preflight.find_unready(list_needless(job, context.facts.needs))
    faults = preflight.find_faults(is_elastic=job.elastic) + describe_unready(unready)
    hosts = [answered.get(host.name, host) for host in installed]
    offered = {host: answer.ports for host, answer in preflight.answers.items()}
    return PlanContext(hosts, {**ports, **offered}, notes, faults)


def describe_guess(cause: str) -> str:
    """Return the note, with its cause, that parts of a plan come from the installed membership."""
    return f"GPUs, EFA and interfaces are from this node's files, and ports are examples: {cause}"


def describe_plan(plan: LaunchPlan, situation: PlanContext) -> str:
    """Return the plan as JSON, with the place of each rank."""
    places = [asdict(place) for place in list_places(plan)]
    further = {"places": places, "notes": situation.notes, "faults": situation.faults}
    return json.dumps({**asdict(plan), **further}, indent=2) + "\n"
