"""Texts of decisions in the log: one sentence each, and no program's text."""

import pytest

from capacity_adjuster.policy.decision import (
    Shrink,
    Verdict,
    Wait,
    describe_decision,
)
from deeplearning_contract.cluster_state import ClusterState, Phase


def verdict(phase, reason=""):
    return Verdict(ClusterState("c", 1, 1, phase, 4, ("i-1", "i-2"), reason=reason))


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Wait("the groups do not exist yet"), "wait: the groups do not exist yet"),
        (verdict(Phase.LAUNCHED), "launched, generation 1, 2 of 4 nodes"),
        (verdict(Phase.FAILED, "no capacity"), "failed, generation 1, 2 of 4 nodes: no capacity"),
        (Shrink("workers", 1, ("i-2",), 3, "no capacity", ()), "shrink from 3 to 1 workers: no capacity"),
    ],
)
def test_a_decision_is_described_in_words(decision, said):
    assert describe_decision(decision) == said
