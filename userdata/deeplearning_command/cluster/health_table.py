"""What `deeplearning health` prints: a plain table for people, JSON for programs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from deeplearning_command.terminal.text_table import align
from deeplearning_node.health.cluster_check import Answer
from deeplearning_node.health.findings import Finding
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import MEMBERSHIP

COLUMNS = ("HOST", "INSTANCE", "VERDICT", "NETWORK", "WHAT IS WRONG", "REMEDY")
UNKNOWN = "-"


def note_generation(answer: Answer, generation: int) -> Answer:
    """Add to a node's findings that its membership is not the master's; it may just be about to install it."""
    if answer.verdict in {"no answer", "not asked"} or answer.generation in {0, generation}:
        return answer
    detail = f"generation {answer.generation} is installed, the master has {generation}"
    behind = Finding.fault(MEMBERSHIP, detail, "wait a minute; then read the agent's log on the node")
    others = tuple(finding for finding in answer.findings if finding.name != MEMBERSHIP)
    return replace(answer, findings=(*others, behind), verdict="unfit")


def draw_table(cluster: str, generation: int, hosts: Sequence[str], answers: Sequence[Answer]) -> str:
    """Return a line a node, a further one for each further fault, and a last one that adds up."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for host, answer in zip(hosts, answers, strict=True):
        head: tuple[str, ...] = (host, answer.member.instance_id, answer.verdict, name_provider(answer))
        if not answer.faults:
            rows.append((*head, "", ""))
        for fault in answer.faults:
            rows.append((*head, f"{fault.name}: {fault.detail}", fault.remedy))
            head = ("", "", "", "")
    healthy = sum(answer.verdict == "healthy" for answer in answers)
    total = f"{healthy} of {len(answers)} nodes of {cluster} are healthy (generation {generation})"
    return "\n".join([*align(rows), "", total, ""])


def name_provider(answer: Answer) -> str:
    """Return by what a node's traffic goes, `efa` or `tcp`; a dash where it did not say."""
    found = (finding.detail.partition(":")[0] for finding in answer.findings if finding.name == NETWORK)
    return next(found, UNKNOWN)


def describe_answers(cluster: str, generation: int, hosts: Sequence[str], answers: Sequence[Answer]) -> str:
    """Return the same as a JSON object, with what is right as well."""
    nodes = [
        {
            "host": host,
            "instance_id": answer.member.instance_id,
            "address": answer.member.address,
            "verdict": answer.verdict,
            "generation": answer.generation,
            "findings": [asdict(finding) for finding in answer.findings],
        }
        for host, answer in zip(hosts, answers, strict=True)
    ]
    document = {
        "cluster": cluster,
        "generation": generation,
        "healthy": sum(answer.verdict == "healthy" for answer in answers),
        "nodes": nodes,
    }
    return json.dumps(document, indent=2) + "\n"
