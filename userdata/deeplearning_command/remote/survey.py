"""A survey of what every host has, offers and runs."""

from collections.abc import Sequence

from deeplearning_command.remote.nodes import Remote
from deeplearning_contract.document import ContractError, read_record
from deeplearning_jobs.hosts.facts import HostFacts
from deeplearning_jobs.hosts.preflight import Preflight
from deeplearning_node.health.gpus import GPU_SECONDS

SURVEY_SECONDS = GPU_SECONDS + 25.0
"""More than a host takes whose driver hangs."""


def survey_hosts(remote: Remote, *, port_count: int = 0, wanted: Sequence[str] = (), search: str = "") -> Preflight:
    """
    Ask all hosts at once.

    Args:
        remote: The hosts.
        port_count: Free ports that each is to offer.
        wanted: Absolute paths and names of programs that each must have.
        search: Folders in which programs are looked for besides those of each host's own `PATH`.
    """
    question = ["node-facts", "--ports", str(port_count), "--search", search, "--", *wanted]
    answers, silent = {}, {}
    for host, document in remote.ask(remote.hosts, question, seconds=SURVEY_SECONDS).items():
        try:
            answers[host] = read_facts(document)
        except ContractError as error:  # noqa: PERF203 - each host counts
            silent[host] = str(error)
    return Preflight(
        generation=remote.membership.generation,
        expected={host: member.instance_id for host, member in remote.membership.members},
        answers=answers,
        silent=silent,
    )


def read_facts(document: object) -> HostFacts:
    """Read what `deeplearning node-facts` printed on a host; ContractError where it did not, with why."""
    if isinstance(document, str):
        raise ContractError(document)
    return read_record(HostFacts, document, "answer")
