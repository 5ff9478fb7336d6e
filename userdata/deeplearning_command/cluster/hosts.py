"""`deeplearning hosts`: nodes of the cluster, and whether they respond."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning_command.context import Context
from deeplearning_command.terminal import draw_table, print_line
from deeplearning_contract.document import field
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole

ANSWER_SECONDS = 20
YES, NOT_ASKED = "yes", "not asked"
COLUMNS = ("HOST", "ROLE", "INSTANCE", "ADDRESS", "GPUS", "GENERATION", "ANSWERS")
DESCRIPTION = """
List the nodes of the cluster, master first: name, role, instance id, address, GPUs, the installed generation of the
membership, and whether the node responds over SSH. Only the master checks the nodes; on a worker none is checked.
"""


@dataclass(frozen=True)
class HostLine:
    """Line of one node; generation 0 when unknown."""

    host: str
    role: str
    instance_id: str
    address: str
    gpus: int
    generation: int
    answers: str


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the output formats."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of a table")
    form.add_argument("--addresses", action="store_true", help="print only the addresses, one a line; check no node")
    form.add_argument("--self", action="store_true", dest="is_self", help="print only this node, as a line of JSON")


def run(options: argparse.Namespace, context: Context) -> int:
    """List this node, the addresses, or all nodes with their responses."""
    facts, membership = context.facts, context.membership
    if options.is_self:
        print_line(json.dumps({"instance_id": facts.instance_id, "generation": membership.generation}))
        return 0
    if options.addresses:
        sys.stdout.write("".join(f"{member.address}\n" for _, member in membership.members))
        return 0
    lines = list_hosts(context)
    head = {"cluster": facts.cluster, "generation": membership.generation}
    if options.json:
        print_line(json.dumps({**head, "hosts": [asdict(line) for line in lines]}, indent=2))
    else:
        rows = [COLUMNS, *(tuple(str(value) for value in asdict(line).values()) for line in lines)]
        asked = [line for line in lines if line.answers != NOT_ASKED]
        answers = f"; {sum(line.answers == YES for line in asked)} respond" if asked else ""
        total = f"{len(lines)} nodes of {facts.cluster}, generation {membership.generation}{answers}"
        sys.stdout.write(draw_table(rows, total))
    return 0 if all(line.answers in {YES, NOT_ASKED} for line in lines) else 1


def list_hosts(context: Context) -> list[HostLine]:
    """Check every node, on the master, and return a line for each."""
    is_master = context.facts.role == NodeRole.MASTER.value
    membership = context.remote.membership if is_master else context.membership
    found = context.remote.ask(["hosts", "--self"], read_answer, seconds=ANSWER_SECONDS) if is_master else {}
    lines = []
    for rank, (host, member) in enumerate(membership.members):
        generation, answers = judge(member, found[host]) if is_master else (0, NOT_ASKED)
        role = (NodeRole.WORKER if rank else NodeRole.MASTER).value
        lines.append(HostLine(host, role, member.instance_id, member.address, member.gpu_count, generation, answers))
    return lines


def read_answer(document: dict[str, Any]) -> tuple[str, int]:
    """Return the instance id and the installed generation that a node printed."""
    return field(document, "instance_id", str, "answer"), field(document, "generation", int, "answer")


def judge(member: Member, answer: tuple[str, int] | str) -> tuple[int, str]:
    """Return the installed generation of a node, and `yes` or the reason for no response."""
    if isinstance(answer, str):
        return 0, answer
    instance_id, generation = answer
    return (generation, YES) if instance_id == member.instance_id else (0, f"{instance_id} has its address")
