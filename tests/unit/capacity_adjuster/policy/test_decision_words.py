"""Texts of decisions in the log: one sentence each, and no program's text."""

from dataclasses import replace

import pytest

from capacity_adjuster.policy.breaker import Breaker, Rearm, RecordMembers, Trip
from capacity_adjuster.policy.decision import (
    Outcome,
    Resume,
    Shrink,
    Wait,
    describe_decision,
)
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import NO_REASON, Reason

BREAKER = Breaker(1, "workers", ("i-1", "i-2"))


def verdict(phase, reason=NO_REASON):
    return Outcome(ClusterState("c", 1, 1, phase, 4, ("i-1", "i-2"), reason=reason))


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Wait("the groups do not exist yet"), "wait: the groups do not exist yet"),
        (verdict(Phase.LAUNCHED), "launched, generation 1, 2 of 4 nodes"),
        (verdict(Phase.FAILED, Reason("no capacity")), "failed, generation 1, 2 of 4 nodes: no capacity"),
        (
            Shrink("workers", 1, ("i-2",), 3, Reason("full", "wait"), ()),
            "shrink from 3 to 1 workers: full; wait",
        ),
        (Resume(None), "resume the processes that an interrupted shrink had suspended"),
        (Trip(replace(BREAKER, reason=Reason("three died")), ("i-1",)), "suspend the launches of workers: three died"),
        (Rearm(BREAKER), "count the losses of workers from zero, since its launches were resumed"),
        (RecordMembers(BREAKER), "record 2 members of workers"),
    ],
)
def test_a_decision_is_described_in_words(decision, said):
    assert describe_decision(decision) == said
