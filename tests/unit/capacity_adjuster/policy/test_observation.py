"""The groups of a role as one, and when what is seen needs no decision."""

from dataclasses import replace

import pytest
from test_decision import FAILED, MASTER, NOW, SHORT, WORKERS, launch, nodes

from capacity_adjuster.policy.observation import ClusterObservation, is_spare, is_standing, needs_decision
from deeplearning_contract.cluster_state import ClusterState, Phase

LAUNCHED = ClusterState("training", 1, 1, Phase.LAUNCHED, 4, (*MASTER.launched, *WORKERS.launched))
HELD = frozenset({"Launch"})


@pytest.mark.parametrize(
    ("master", "workers", "state", "stands"),
    [
        (MASTER, WORKERS, LAUNCHED, True),
        (MASTER, WORKERS, None, False),
        (MASTER, replace(WORKERS, suspended=HELD), LAUNCHED, False),
        (MASTER, replace(WORKERS, desired=4), LAUNCHED, False),
        (MASTER, replace(WORKERS, instances=nodes(3, first=7)), LAUNCHED, False),
        (MASTER, replace(WORKERS, instances=nodes(3, "Pending")), LAUNCHED, False),
        (MASTER, WORKERS, replace(LAUNCHED, phase=Phase.FORMED), False),
        (MASTER, WORKERS, replace(LAUNCHED, phase=Phase.FAILED), True),
    ],
    ids=["same", "none", "suspended", "more wanted", "others", "pending", "formed", "failed"],
)
def test_a_verdict_stands_while_the_groups_have_what_it_names(master, workers, state, stands):
    assert is_standing(ClusterObservation((master, workers)), state) is stands


def test_a_verdict_on_a_group_that_is_settled_stands_while_the_other_launches():
    """Nothing is decided before the other group is settled too."""
    alone = replace(LAUNCHED, expected=MASTER.launched)
    assert is_standing(ClusterObservation((MASTER, replace(WORKERS, instances=nodes(1, "Pending")))), alone)


def test_a_suspension_needs_a_decision_though_every_group_launches():
    groups = tuple(replace(group, instances=nodes(1, "Pending")) for group in (MASTER, WORKERS))
    assert not needs_decision(groups)
    assert needs_decision((groups[0], replace(groups[1], suspended=HELD)))


def test_the_groups_of_a_role_are_the_sum_of_its_candidates():
    first = replace(WORKERS, min_size=1, desired=1, instances=nodes(1), activities=(launch(0),), created=NOW - 900)
    second = replace(WORKERS, name="w2", candidate="1", min_size=2, desired=4, max_size=7, activities=(FAILED,))
    assert ClusterObservation((MASTER, second, first)).workers == replace(
        second,
        min_size=3,
        desired=5,
        max_size=11,
        instances=(*nodes(1), *nodes(3)),
        activities=(launch(0), FAILED),
        created=NOW - 900,
        elsewhere=1,
    )


def test_candidates_of_which_none_is_asked_have_the_name_of_the_first():
    groups = tuple(replace(WORKERS, name=f"w{n}", candidate=n, desired=0, instances=()) for n in ("0", "1"))
    assert ClusterObservation(groups).workers.name == "w0"


def test_an_activity_without_an_end_ended_when_it_began():
    assert replace(FAILED, end=None).last_moment == FAILED.start


def test_the_last_of_several_failures_is_the_one_that_explains():
    later = launch(20, "Failed", "another reason")
    assert replace(SHORT, activities=(later, FAILED)).standing_failure == later


def idle(candidate, group=WORKERS):
    return replace(group, name=f"{group.role.value}-{candidate}", candidate=candidate, desired=0, instances=())


@pytest.mark.parametrize(
    ("group", "others", "spare"),
    [
        (idle("b"), (WORKERS,), True),
        (idle("b"), (idle("0"),), True),
        (idle("0"), (idle("b"),), False),
        (idle("0"), (replace(idle("b"), desired=3),), True),
        (idle("0"), (replace(idle("b"), instances=nodes(1, "Terminating")),), True),
        (replace(idle("b"), desired=1), (WORKERS,), False),
        (replace(idle("b"), instances=nodes(1, "Terminating")), (WORKERS,), False),
        (idle("0"), (), False),
        (idle("0"), (idle("b", MASTER),), False),
    ],
    ids=["beside one", "second", "first", "before", "before one left", "asked", "not empty", "alone", "other role"],
)
def test_an_idle_candidate_is_spare_beside_another_of_its_role(group, others, spare):
    assert is_spare(group, (group, *others)) is spare


def test_an_idle_candidate_is_no_other_group_from_which_workers_are_requested():
    workers = ClusterObservation((MASTER, WORKERS, replace(idle("b"), activities=()))).workers
    assert (workers.name, workers.elsewhere, workers.activities) == (WORKERS.name, 0, WORKERS.activities)
