"""`deeplearning plan`: what `deeplearning run` would run, where each rank would be, and why; it starts nothing."""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.jobs.options import add_job_options, list_needless, make_request
from deeplearning_command.remote.nodes import Remote, read_facts
from deeplearning_command.remote.survey import PORT_COUNT, list_wanted, survey_hosts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.names import JOBS_FOLDER
from deeplearning_jobs.hosts.preflight import describe_tcp, describe_unready
from deeplearning_jobs.hosts.probe import find_interface
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.checkpoints import fill_arguments, find_newest
from deeplearning_jobs.plan.job import RESUME_VARIABLE
from deeplearning_jobs.plan.launch_plan import Host, LaunchPlan, PlanError
from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.plan.topology import list_hosts, list_places
from deeplearning_jobs.planner import make_plan
from deeplearning_jobs.runs.job_folder import JobNameError, JobsFolder, name_job
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

PLANNED, WOULD_BE_REFUSED = 0, 1
FIRST_EXAMPLE_PORT = 20000
RUN_ONLY = ("--wait", "--no-wait", "--detach", "--end-cluster", "--yes")
"""Options of `run` that change nothing of what runs; so the word `run` of a command line can become `plan`."""
DESCRIPTION = """
Print what `deeplearning run` with the same options would run: the command lines, the files they need, where each rank
would be with its GPU and network cards, and why each part is there. On the master every host is asked first, as `run`
does; elsewhere, or with --offline, the plan is made from what this node has installed. Nothing is started or written.
"""
EPILOG = "exit status: 0 planned, 1 planned, but run would refuse it now, 2 it cannot be planned"


@dataclass(frozen=True)
class Situation:
    """
    What a plan is made from.

    Attributes:
        hosts: In the membership's order.
        ports: Host name -> ports that it offers, or examples.
        notes: What of it is not as the hosts themselves said.
        faults: Why `run` would refuse the job now.
    """

    hosts: list[Host]
    ports: Mapping[str, tuple[int, ...]]
    notes: list[str]
    faults: list[str]


def add_plan(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "plan", help="show what a job would run, and why", description=DESCRIPTION, epilog=EPILOG
    )
    add_job_options(parser)
    parser.add_argument("--fresh", action="store_true", help="as if there were no checkpoint")
    parser.add_argument("--resume-args", default="", metavar="WORDS", help="as for run")
    parser.add_argument("--checkpoint-pattern", default="", metavar="GLOB", help="as for run")
    for option in RUN_ONLY:
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--offline", action="store_true", help="ask no host")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a page")
    parser.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The job cannot be planned.
    """
    facts = read_facts(root)
    try:
        membership = InstalledMembership.read(root)
    except (OSError, ValueError) as error:  # ContractError is a ValueError.
        raise RefusedError(f"the cluster has not formed yet, read the agent's log: {error}") from error
    situation = look_around(options, root, programs, facts, membership)
    try:
        plan = plan_job(options, root, facts, situation)
    except (PlanError, JobNameError) as error:
        raise RefusedError(str(error)) from error
    sys.stdout.write(describe_plan(plan, situation) if options.json else render_plan(plan))
    for line in describe_tcp(plan.hosts):
        sys.stderr.write(f"warning: {line}\n")
    for note in situation.notes:
        sys.stderr.write(f"note: {note}\n")
    for fault in situation.faults:
        sys.stderr.write(f"run would refuse this: {fault}\n")
    return WOULD_BE_REFUSED if situation.faults else PLANNED


def look_around(
    options: argparse.Namespace, root: Path, programs: Programs, facts: NodeFacts, membership: InstalledMembership
) -> Situation:
    """
    Return what the hosts say of themselves, and for those that do not, what this node has installed of them.

    Raises:
        RefusedError: This node is no member, and so knows no network interface of the cluster.
    """
    own = membership.find(facts.instance_id)
    if own is None:
        raise RefusedError(f"this node must be a member, got {facts.instance_id}; log in to one that is")
    installed = list_hosts(membership.members, facts.needs.hardware, find_interface(programs, own.address))
    count = max(PORT_COUNT, LAUNCHERS[options.launcher].ports(options.slots or 0))
    ports = {host.name: tuple(range(FIRST_EXAMPLE_PORT, FIRST_EXAMPLE_PORT + count)) for host in installed}
    if options.offline:
        return Situation(installed, ports, [describe_guess("--offline")], [])
    try:
        remote = Remote.open(root, programs)
    except RefusedError as error:
        return Situation(installed, ports, [describe_guess(str(error))], [])
    request = make_request(options, facts.needs, folder="", ports={})
    wanted = list_wanted(request.program, Path.cwd(), is_contained=bool(request.container))
    search = ":".join(filter(None, [request.python, os.environ.get("PATH", "")]))
    preflight = survey_hosts(remote, port_count=count, wanted=wanted, search=search)
    answered = {host.name: host for host in preflight.plan_hosts()}
    notes = [describe_guess(f"{host} does not answer") for host in preflight.expected if host not in answered]
    unready = preflight.find_unready(list_needless(options))
    faults = preflight.find_faults(is_elastic=options.elastic) + describe_unready(unready)
    hosts = [answered.get(host.name, host) for host in installed]
    offered = {host: answer.ports for host, answer in preflight.answers.items()}
    return Situation(hosts, {**ports, **offered}, notes, faults)


def describe_guess(cause: str) -> str:
    """Say what a plan has taken from the installed membership, and why."""
    return f"GPUs, EFA and interfaces are as this node has them installed, and ports are examples: {cause}"


def plan_job(options: argparse.Namespace, root: Path, facts: NodeFacts, situation: Situation) -> LaunchPlan:
    """
    Plan the run that would come next.

    Raises:
        RefusedError: A variable is not well-formed.
        PlanError: What was asked for cannot be planned.
        JobNameError: The job needs a name.
    """
    program = tuple(options.program)
    jobs = JobsFolder(root / facts.mount_point.lstrip("/") / JOBS_FOLDER)
    job = jobs.job(options.name or name_job(program))
    newest = "" if options.fresh else find_newest(job.checkpoints, options.checkpoint_pattern)
    request = make_request(
        options,
        facts.needs,
        folder=str(job.next_run().path),
        ports=situation.ports,
        variables={RESUME_VARIABLE: newest},
        program=fill_arguments(program, options.resume_args, newest),
    )
    return make_plan(situation.hosts, request)


def describe_plan(plan: LaunchPlan, situation: Situation) -> str:
    """Return the plan as JSON, with where each rank would be."""
    places = [asdict(place) for place in list_places(plan)]
    further = {"places": places, "notes": situation.notes, "faults": situation.faults}
    return json.dumps({**asdict(plan), **further}, indent=2) + "\n"
