"""Asks every host what a job that is about to start must know of it."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_contract.document import ContractError
from deeplearning_jobs.hosts.facts import HostFacts
from deeplearning_jobs.hosts.preflight import Preflight
from deeplearning_jobs.runs.job_folder import find_program_file
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.health.gpus import GPU_SECONDS

SURVEY_SECONDS = GPU_SECONDS + 25.0
"""More than a host takes whose driver hangs."""
PORT_COUNT = 48
"""More than any launcher takes on a host with 16 GPUs."""


def survey_hosts(
    remote: Remote, *, port_count: int = PORT_COUNT, wanted: Sequence[str] = (), search: str = ""
) -> Preflight:
    """
    Ask all hosts at once.

    Args:
        remote: The way to them.
        port_count: How many free ports each is to offer.
        wanted: Absolute paths and names of programs that each must have.
        search: Folders in which programs are looked for besides those of each host's own `PATH`.
    """
    words = ["--ports", str(port_count), "--search", search, "--", *wanted]
    question = shlex.join([COMMAND_FILE, "node-facts", *words])
    answers, silent = {}, {}
    for result in remote.run_all(remote.hosts, question, seconds=SURVEY_SECONDS):
        try:
            answers[result.host] = read_answer(result)
        except ContractError as error:  # noqa: PERF203 - each host counts
            silent[result.host] = str(error)
    return Preflight(
        generation=remote.membership.generation,
        expected={host: member.instance_id for host, member in remote.membership.members},
        answers=answers,
        silent=silent,
    )


def read_answer(result: HostResult) -> HostFacts:
    """
    Read what a host printed.

    Raises:
        ContractError: It did not answer, or not what was asked.
    """
    if result.status != 0:
        said = clean(result.cause) or last_line(result.output) or f"the question ended with status {result.status}"
        raise ContractError(said)
    return HostFacts.from_output(result.output)


def list_wanted(program: Sequence[str], folder: Path, *, is_contained: bool) -> list[str]:
    """
    Say what each host must have so that a program can run there.

    Args:
        program: The program and its arguments.
        folder: Where the user stands.
        is_contained: Whether it runs in a container, which alone knows what is there.
    """
    if is_contained:
        return []
    wanted = [program[0]] if "/" not in program[0] else []
    file = find_program_file(tuple(program))
    return [*wanted, str(folder / file)] if file else wanted
