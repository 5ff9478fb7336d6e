"""
Cases that strike a training cluster ten times each, for the figures of recovery.

A round begins when the full size has trained again, so each fault meets a whole cluster.
"""

import time
from collections.abc import Callable

from deeplearning_contract.names import NodeRole
from deeplearning_rehearsal.cases.case import Elastic, case
from deeplearning_rehearsal.cases.case_node import CaseNode
from deeplearning_rehearsal.cases.cluster_case import ClusterCase

ROUNDS = 10
RANKS = 4
EPOCHS = 220
"""More than ten rounds last: a silent worker is replaced after about 220 batches, of which an epoch has 12."""
FOUND_DEAD_SECONDS = 5
CUT_SECONDS = NOTICE_SECONDS = 20


def strike_often(run: ClusterCase, strike: Callable[[CaseNode], None], role: NodeRole = NodeRole.WORKER) -> None:
    """Strike the node of a role that was launched last, once the full size has committed twice since the last fault."""
    since = 0.0
    for number in range(ROUNDS):
        run.wait_for(f"round {number + 1} of {ROUNDS}", lambda since=since: count_commits(run, since) >= 2)
        strike(CaseNode(run, role))
        since = time.time()
    run.wait_for("the full size after the last round", lambda: count_commits(run, since) >= 2)
    run.finish()


def count_commits(run: ClusterCase, since: float) -> int:
    """Return how often the full size has committed since a moment of the wall clock."""
    steps = run.situation.job.steps()
    return sum(step.event == "commit" and step.size == RANKS and step.time > since for step in steps)


def measures(title: str, epochs: int = EPOCHS) -> Callable[..., object]:
    """Make a case of such a function."""
    return case(title, workers=RANKS - 1, min_capacity=1, job=Elastic(epochs), minutes=30, alone=True)


@measures("A worker is killed ten times", epochs=150)
def killed_worker(run):
    strike_often(run, lambda node: node.power_off(found_dead_after=FOUND_DEAD_SECONDS))


@measures("A worker falls silent ten times")
def silent_worker(run):
    strike_often(run, lambda node: node.silence())


@measures("The master is lost ten times", epochs=60)
def lost_master(run):
    strike_often(run, lambda node: node.power_off(found_dead_after=FOUND_DEAD_SECONDS), NodeRole.MASTER)


@measures("The network of a worker is cut for a while ten times")
def cut_network(run):
    def cut(node: CaseNode) -> None:
        name = node.instance_id
        node.silence()
        run.later(CUT_SECONDS, lambda: run.lab.node(name).link.set_up(up=True))

    strike_often(run, cut)


@measures("EC2 takes a worker back ten times")
def spot_notice(run):
    def take_back(node: CaseNode) -> None:
        name = node.instance_id
        node.announce_interruption(NOTICE_SECONDS)
        # Training goes on at full size until then.
        run.wait_for("EC2 takes it back", lambda: name not in {each.instance_id for each in run.machines})

    strike_often(run, take_back)
