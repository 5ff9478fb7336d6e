"""The options that `deeplearning plan` and `deeplearning run` have in common: what job is meant."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.plan.launch_plan import JobRequest
from deeplearning_node.provision_status import ENVIRONMENT_STEP

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_job_options(parser: argparse.ArgumentParser) -> None:
    """Add the options and the program to a subcommand."""
    parser.add_argument("--launcher", choices=tuple(LAUNCHERS), default="horovod", help="default: horovod")
    parser.add_argument(
        "--np", type=int, dest="ranks", metavar="N", help="ranks in all; default: every slot of every host"
    )
    parser.add_argument(
        "--slots", type=int, metavar="N", help="ranks a host; default: one a GPU, and one on a host without GPUs"
    )
    parser.add_argument("--elastic", action="store_true", help="go on when hosts are lost, replaced or added")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="a variable for the program; without a value, that of this shell; may be given again",
    )
    parser.add_argument(
        "--without-environment",
        action="store_true",
        help="run in the image's own software, whatever became of the declared environment",
    )
    parser.add_argument("--container", metavar="IMAGE", help="run ranks in it; default: the cluster's own, if any")
    parser.add_argument(
        "--name", metavar="JOB", help="default: the program file's stem; its checkpoints are found by it"
    )
    parser.add_argument("program", nargs="+", metavar="PROGRAM", help="behind --: the program and its arguments")
    parser.usage = f"{parser.prog} [OPTION...] -- PROGRAM [ARGUMENT...]"


def list_needless(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the steps of the provisioning that the job does without."""
    return (ENVIRONMENT_STEP,) if options.without_environment else ()


def read_variables(words: Sequence[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Return the variables that --env gives.

    Args:
        words: `NAME=VALUE` or `NAME`.
        inherited: Where the value of a name alone is found.

    Raises:
        RefusedError: A word is neither, or a name alone has no value.
    """
    variables = {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise RefusedError(f"--env must be NAME=VALUE, got {word!r}; names are letters, digits and _")
        if not is_given and name not in inherited:
            raise RefusedError(f"--env {name} must name a variable of this shell, got none; write --env {name}=VALUE")
        variables[name] = value if is_given else inherited[name]
    return variables


def make_request(
    options: argparse.Namespace,
    needs: JobNeeds,
    *,
    folder: str,
    ports: Mapping[str, tuple[int, ...]],
    variables: Mapping[str, str] | None = None,
    program: Sequence[str] | None = None,
) -> JobRequest:
    """
    Return what the options ask for.

    Args:
        options: Of `add_job_options`.
        needs: What jobs find on a node.
        folder: The run's folder.
        ports: Host name -> free ports.
        variables: The job's own, before those of --env, which win. Default: none.
        program: The program and its arguments, with checkpoints filled in. Default: that of the options.

    Raises:
        RefusedError: A variable is not well-formed.
    """
    environment = None if options.without_environment else needs.environment
    is_image = environment is not None and environment.kind == "container"
    image = options.container or (environment.image if environment is not None and is_image else "")
    has_folder = environment is not None and not is_image
    return JobRequest(
        launcher=options.launcher,
        program=tuple(options.program if program is None else program),
        ranks=options.ranks,
        slots=options.slots,
        elastic=options.elastic,
        environment={**(variables or {}), **read_variables(options.env, os.environ)},
        folder=folder,
        ports=ports,
        python=f"{ENVIRONMENT_DIRECTORY}/current/bin" if has_folder else "",
        container=image,
        directory=str(Path.cwd()),
    )
