"""Job in the options of `deeplearning plan` and `deeplearning run`."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.remote.survey import survey_hosts
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_jobs.hosts.preflight import Preflight
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.checkpoints import fill_arguments, find_newest
from deeplearning_jobs.plan.job import RESUME_VARIABLE
from deeplearning_jobs.plan.launch_plan import JobRequest
from deeplearning_jobs.runs.job_folder import JobFolder, JobsFolder, find_program_file, name_job
from deeplearning_node.provision_status import ENVIRONMENT_STEP

PORT_COUNT = 48
"""More than any launcher needs on a host with 16 GPUs."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options and the program to a command."""
    add = parser.add_argument
    add("--launcher", choices=tuple(LAUNCHERS), default="horovod", help="default: horovod")
    add("--np", type=int, dest="ranks", metavar="N", help="ranks in all; default: every slot of every host")
    add("--slots", type=int, metavar="N", help="ranks a host; default: one a GPU, and one on a host without GPUs")
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
    add("--container", metavar="IMAGE", help="run ranks in it; default: the cluster's own, if any")
    add("--name", metavar="JOB", help="name of the job and its checkpoints; default: the program file's stem")
    add("program", nargs="+", metavar="PROGRAM", help="after --: the program and its arguments")
    parser.usage = f"{parser.prog} [OPTION...] -- PROGRAM [ARGUMENT...]"


def list_needless(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the steps of the provisioning that the job does not need."""
    return (ENVIRONMENT_STEP,) if options.without_environment else ()


def read_variables(words: Sequence[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `NAME=VALUE` and, with inherited values, `NAME`; RefusedError for other words."""
    variables = {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise RefusedError(f"--env must be NAME=VALUE, got {word!r}; names are letters, digits and _")
        if not is_given and name not in inherited:
            raise RefusedError(f"--env {name} must name a variable of this shell, got none; write --env {name}=VALUE")
        variables[name] = value if is_given else inherited[name]
    return variables


def draft_job(options: argparse.Namespace, context: Context) -> tuple[JobFolder, str, JobRequest]:
    """Return the job's folder, the checkpoint that it resumes from (empty for none), and the request without ports."""
    program = tuple(options.program)
    job = JobsFolder(context.jobs_path).job(options.name or name_job(program))
    newest = "" if options.fresh else find_newest(job.checkpoints, options.checkpoint_pattern)
    program = fill_arguments(program, options.resume_args, newest)
    return job, newest, make_request(options, context.facts.needs, program, {RESUME_VARIABLE: newest})


def make_request(
    options: argparse.Namespace, needs: JobNeeds, program: Sequence[str], variables: Mapping[str, str]
) -> JobRequest:
    """Return the request for a program with the job's variables, overridden by those of --env; without ports."""
    environment = None if options.without_environment else needs.environment
    is_image = environment is not None and environment.kind == "container"
    image = options.container or (environment.image if environment is not None and is_image else "")
    has_folder = environment is not None and not is_image
    return JobRequest(
        launcher=options.launcher,
        program=tuple(program),
        ranks=options.ranks,
        slots=options.slots,
        elastic=options.elastic,
        environment={**variables, **read_variables(options.env, os.environ)},
        folder="",
        ports={},
        python=f"{ENVIRONMENT_DIRECTORY}/current/bin" if has_folder else "",
        container=image,
        directory=str(Path.cwd()),
        members=options.members,
    )


def count_offered_ports(request: JobRequest) -> int:
    """Return the number of free ports that each host must offer."""
    return max(PORT_COUNT, LAUNCHERS[request.launcher].ports(request.slots or 0))


def survey_job(options: argparse.Namespace, request: JobRequest, remote: Remote) -> Preflight:
    """Collect every host's facts, free ports, and the programs and files that the job needs there."""
    program, wanted = options.program, []
    if not request.container:  # The programs and files of a container are only in it.
        wanted = [program[0]] if "/" not in program[0] else []
        if file := find_program_file(tuple(program)):
            wanted.append(str(Path.cwd() / file))
    search = ":".join(filter(None, [request.python, os.environ.get("PATH", "")]))
    return survey_hosts(remote, port_count=count_offered_ports(request), wanted=wanted, search=search)
