"""Survey of the hosts: the master asks each for its facts before a job starts."""

from collections.abc import Sequence
from functools import partial

from deeplearning_command.remote.nodes import Remote
from deeplearning_contract.document import read_record
from deeplearning_jobs.hosts.preflight import HostFacts, Preflight
from deeplearning_node.health.gpus import GPU_SECONDS

SURVEY_SECONDS = GPU_SECONDS + 25.0
"""Longer than the facts take on a host whose driver hangs."""
read_facts = partial(read_record, HostFacts, what="answer")


def survey_hosts(remote: Remote, *, port_count: int = 0, wanted: Sequence[str] = (), search: str = "") -> Preflight:
    """Collect every host's facts, free ports, and `wanted` paths and programs, searched also in `search`."""
    question = ["node-facts", "--ports", str(port_count), "--search", search, "--", *wanted]
    found = remote.ask(question, read_facts, seconds=SURVEY_SECONDS)
    return Preflight(
        generation=remote.membership.generation,
        expected={host: member.instance_id for host, member in remote.membership.members},
        answers={host: answer for host, answer in found.items() if not isinstance(answer, str)},
        silent={host: cause for host, cause in found.items() if isinstance(cause, str)},
    )
