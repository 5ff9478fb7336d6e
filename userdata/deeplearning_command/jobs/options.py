"""Job in the options of `deeplearning plan` and `deeplearning run`, and its request to the planner."""

import argparse
import os
from dataclasses import fields, replace
from pathlib import Path

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.document import ContractError
from deeplearning_contract.jobs.job_definition import JobDefinition, read_variables
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_jobs.hosts.preflight import Preflight
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.checkpoints import fill_arguments, find_newest
from deeplearning_jobs.plan.job import RESUME_VARIABLE
from deeplearning_jobs.plan.launch_plan import JobRequest
from deeplearning_jobs.planner import find_launcher
from deeplearning_jobs.runs.job_folder import JobFolder, JobNameError, JobsFolder, find_program_file, name_job
from deeplearning_node.provision_status import ENVIRONMENT_STEP, data_step

PORT_COUNT = 48
"""More than any launcher needs on a host with 16 GPUs."""
_OPTIONS = {"program": "program", "gpus_per_member": "--slots", "ranks": "--np"}
"""Name in a definition -> name that a user writes, where it is not the option of that name."""


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options and the program to a command."""
    add = parser.add_argument
    add("--launcher", choices=tuple(LAUNCHERS), default="horovod", help="default: horovod")
    add("--np", type=int, dest="ranks", metavar="N", help="ranks in all; default: every slot of every host")
    add(
        "--slots",
        type=int,
        dest="gpus_per_member",
        metavar="N",
        help="ranks a host; default: one a GPU, and one on a host without GPUs",
    )
    add("--members", type=int, metavar="N", help="hosts in all, the master first; default: every host")
    add("--elastic", action="store_true", help="continue when hosts are lost, replaced or added")
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the program; without a value, that of this shell; may be given again",
    )
    add(
        "--without-environment",
        action="store_true",
        help="run in the image's own software, without the declared environment",
    )
    add("--container", default="", metavar="IMAGE", help="run ranks in it; default: the cluster's own, if any")
    add("--name", metavar="JOB", help="name of the job and its checkpoints; default: the program file's stem")
    add("program", nargs="+", metavar="PROGRAM", help="after --: the program and its arguments")
    parser.usage = f"{parser.prog} [OPTION...] -- PROGRAM [ARGUMENT...]"


def read_job(options: argparse.Namespace) -> JobDefinition:
    """Return the job in the options of a command; RefusedError for one that cannot work."""
    given = {each.name: vars(options)[each.name] for each in fields(JobDefinition) if each.name in options}
    program = tuple(options.program)
    try:
        own = {"name": options.name or name_job(program), "program": program}
        return JobDefinition(**{**given, **own, "env": read_variables(options.env, os.environ)})
    except JobNameError as error:
        raise RefusedError(str(error)) from error
    except ContractError as error:
        name, _, rule = str(error).partition(" ")
        raise RefusedError(f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))} {rule}") from error


def list_needless(job: JobDefinition, needs: JobNeeds) -> tuple[str, ...]:
    """Return the steps of the provisioning that the job does not need."""
    others = [data_step(source.name) for source in needs.data if job.data and source.name not in job.data]
    return (*others, *([ENVIRONMENT_STEP] if job.without_environment else []))


def draft_job(job: JobDefinition, context: Context) -> tuple[JobFolder, str, JobRequest]:
    """Return the job's folder, the checkpoint that it resumes from (empty for none), and the request without ports."""
    folder = JobsFolder(context.jobs_path).job(job.name)
    newest = "" if job.fresh else find_newest(folder.checkpoints, job.checkpoint_pattern)
    program = fill_arguments(job.program, job.resume_args, newest)
    following = replace(job, program=program, env={RESUME_VARIABLE: newest, **job.env})
    return folder, newest, make_request(following, context.facts.needs)


def make_request(job: JobDefinition, needs: JobNeeds) -> JobRequest:
    """Return the request for a job on a cluster with these needs, without folder and ports."""
    environment = None if job.without_environment else needs.environment
    is_image = environment is not None and environment.kind == "container"
    image = job.container or (environment.image if environment is not None and is_image else "")
    has_folder = environment is not None and not is_image
    return JobRequest(
        definition=replace(job, container=image),
        folder="",
        ports={},
        python=f"{ENVIRONMENT_DIRECTORY}/current/bin" if has_folder else "",
        directory=str(Path.cwd()),
    )


def count_offered_ports(job: JobDefinition) -> int:
    """Return the number of free ports that each host must offer; PlanError for an unknown launcher."""
    return max(PORT_COUNT, find_launcher(job.launcher).ports(job.gpus_per_member or 0))


def survey_job(job: JobDefinition, request: JobRequest, remote: Remote) -> Preflight:
    """Collect every host's facts, free ports, and the programs and files that the job needs there."""
    wanted = []
    if not request.definition.container:  # The programs and files of a container are only in it.
        wanted = [job.program[0]] if "/" not in job.program[0] else []
        if file := find_program_file(job.program):
            wanted.append(str(Path.cwd() / file))
    search = ":".join(filter(None, [request.python, os.environ.get("PATH", "")]))
    return survey_hosts(remote, port_count=count_offered_ports(job), wanted=wanted, search=search)
