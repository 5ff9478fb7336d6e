"""`deeplearning hosts`: who is in the cluster, and who answers."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deeplearning_command.remote.nodes import HostResult, Remote, read_facts
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_command.terminal.text_table import align
from deeplearning_contract.document import ContractError, field, parse_object
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_node.health.cluster_check import COMMAND_FILE
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

ALL_ANSWER, SOME_SILENT = 0, 1
ANSWER_SECONDS = 20
YES, NOT_ASKED = "yes", "not asked"
COLUMNS = ("HOST", "ROLE", "INSTANCE", "ADDRESS", "GPUS", "GENERATION", "ANSWERS")
DESCRIPTION = """
List the nodes of the cluster, master first: name, role, instance id, address, GPUs, the generation of the membership
that each has installed, and whether it answers over SSH. Only the master can ask; on a worker nobody is asked.
"""
EPILOG = "exit status: 0 all nodes answer or none was asked, 1 some do not, 2 the cluster has not formed"


@dataclass(frozen=True)
class HostLine:
    """One node, as it is printed; generation 0 when it is not known."""

    host: str
    role: str
    instance_id: str
    address: str
    gpus: int
    generation: int
    answers: str


def add_hosts(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser(
        "hosts", help="list the nodes and say who answers", description=DESCRIPTION, epilog=EPILOG
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--addresses", action="store_true", help="print only the addresses, a line each, and ask nobody")
    form.add_argument("--self", action="store_true", dest="is_self", help="print this node only, as a line of JSON")
    parser.set_defaults(run=run_hosts)


def run_hosts(options: argparse.Namespace, root: Path, programs: Programs) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: The cluster has not formed.
    """
    facts, membership = read_facts(root), _read_membership(root)
    if options.is_self:
        sys.stdout.write(f"{_describe_self(facts, membership)}\n")
    elif options.addresses:
        sys.stdout.write("".join(f"{member.address}\n" for _, member in membership.members))
    else:
        lines = _ask(root, programs, facts, membership)
        describe = _describe_all if options.json else _draw_table
        sys.stdout.write(describe(facts.cluster, membership.generation, lines))
        return SOME_SILENT if any(line.answers not in {YES, NOT_ASKED} for line in lines) else ALL_ANSWER
    return ALL_ANSWER


def _read_membership(root: Path) -> InstalledMembership:
    try:
        return InstalledMembership.read(root)
    except (OSError, ValueError) as error:
        raise RefusedError(f"the cluster has not formed yet, read the agent's log: {error}") from error


def _ask(root: Path, programs: Programs, facts: NodeFacts, membership: InstalledMembership) -> list[HostLine]:
    if facts.role != NodeRole.MASTER.value:
        return [_line(rank, host, member, 0, NOT_ASKED) for rank, (host, member) in enumerate(membership.members)]
    remote = Remote.open(root, programs)
    results = remote.run_all(remote.hosts, f"{COMMAND_FILE} hosts --self", seconds=ANSWER_SECONDS)
    members = remote.membership.members
    return [
        _line(rank, host, member, *_judge(member, result))
        for rank, ((host, member), result) in enumerate(zip(members, results, strict=True))
    ]


def _line(rank: int, host: str, member: Member, generation: int, answers: str) -> HostLine:
    role = NodeRole.WORKER if rank else NodeRole.MASTER
    return HostLine(host, role.value, member.instance_id, member.address, member.gpu_count, generation, answers)


def _describe_self(facts: NodeFacts, membership: InstalledMembership) -> str:
    return json.dumps({"instance_id": facts.instance_id, "generation": membership.generation})


def _judge(member: Member, result: HostResult) -> tuple[int, str]:
    """Return the generation that a node has installed, and `yes` or why it has not answered."""
    if result.status is None:
        return 0, result.cause
    lines = result.output.splitlines() or [""]
    try:
        answer = parse_object(lines[-1], "its answer")
        generation, instance_id = (
            field(answer, "generation", int, "answer"),
            field(answer, "instance_id", str, "answer"),
        )
    except ContractError:
        return 0, lines[-1] or f"its command ended with status {result.status}"
    return (generation, YES) if instance_id == member.instance_id else (0, f"{instance_id} is there instead")


def _draw_table(cluster: str, generation: int, lines: Sequence[HostLine]) -> str:
    rows = [COLUMNS, *(tuple(str(value) for value in asdict(line).values()) for line in lines)]
    total = f"{len(lines)} nodes of {cluster}, generation {generation}"
    asked = [line for line in lines if line.answers != NOT_ASKED]
    if asked:
        total += f"; {sum(line.answers == YES for line in asked)} answer"
    return "\n".join([*align(rows), "", total, ""])


def _describe_all(cluster: str, generation: int, lines: Sequence[HostLine]) -> str:
    document = {"cluster": cluster, "generation": generation, "hosts": [asdict(line) for line in lines]}
    return json.dumps(document, indent=2) + "\n"
