"""Evictions: unhealthy members, and the reasons."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from deeplearning_contract.membership import Member
from deeplearning_node.health.cluster_check import INSPECTION_SECONDS, SSH, ClusterCheck, NodeCheck
from deeplearning_node.health.gpus import ECC, GPU
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import AGENT, CLOCK
from deeplearning_node.health.storage import DISK, FILE_SYSTEM
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
FAULTS = (AGENT, CLOCK, DISK, FILE_SYSTEM, GPU, ECC, NETWORK, SSH)
"""What makes a node leave; a membership that is behind does not, its owner sees to that."""
TRIED_BY_MASTER = frozenset({FILE_SYSTEM, SSH})
"""What the master tries on itself in the same way: if that fails too, it is nobody's fault."""


def find_unhealthy(node: Node, members: Sequence[Member]) -> dict[str, str]:
    """
    Check every member, the master itself too, over SSH: a check that fails on the master too blames no other node.

    Takes two and a half minutes at most. Raises nothing: a check that fails finds nobody unhealthy.

    Returns the reason to evict each unhealthy member, by instance id; never the master. A fault that most nodes have at
    the same time is the cluster's, and evicts nobody.
    """
    try:
        check = ClusterCheck(node.login_user(), node.programs, is_root=True)
        own_id = node.identity.instance_id
        causes = find_causes(check.run(members, node.limit(INSPECTION_SECONDS)), own_id)
        return find_fewer_gpus([member for member in members if member.instance_id != own_id]) | causes
    except Exception:
        LOG.exception("the inspection of %d nodes failed", len(members))
        return {}


def find_causes(answers: Iterable[NodeCheck], own_id: str) -> dict[str, str]:
    """Return the faults that count against single nodes, by instance id; `own_id` is the master's."""
    asked = [answer for answer in answers if answer.verdict != "not asked"]
    faults = {answer.member.instance_id: {fault.name: fault for fault in answer.faults} for answer in asked}
    own = faults.get(own_id, {})
    causes: dict[str, list[str]] = {}
    for name in FAULTS:
        bearers = {instance_id: found[name] for instance_id, found in faults.items() if name in found}
        if not bearers:
            continue
        if is_of_one_node(name, len(bearers), len(asked)) and not (name in own and name in TRIED_BY_MASTER):
            for instance_id, fault in bearers.items():
                causes.setdefault(instance_id, []).append(str(fault))
        else:
            example = next(iter(bearers.values()))
            LOG.warning("%d of %d nodes have a fault that makes nobody leave, %s", len(bearers), len(asked), example)
    if own_id in causes:
        LOG.warning("the master is unfit itself, %s", "; ".join(causes.pop(own_id)))
    return {instance_id: "; ".join(found) for instance_id, found in causes.items()}


def find_fewer_gpus(workers: Sequence[Member]) -> dict[str, str]:
    """Find workers that joined with fewer GPUs than most others; `workers` are all members but the master."""
    counts = Counter(worker.gpu_count for worker in workers)
    usual, holders = counts.most_common(1)[0] if counts else (0, 0)
    if 2 * holders <= len(workers):
        return {}
    return {
        worker.instance_id: f"{GPU}: it joined with {worker.gpu_count} GPUs, most workers have {usual}"
        for worker in workers
        if worker.gpu_count < usual
    }


def is_of_one_node(name: str, bearers: int, nodes: int) -> bool:
    """
    Return whether a fault that so many of all nodes have is theirs, rather than the cluster's.

    Of two clocks that differ, nobody knows which one is wrong: that takes a third.
    """
    return 2 * bearers < nodes if name == CLOCK else 2 * bearers <= nodes
