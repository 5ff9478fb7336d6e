"""Each step of a record leaves the lease and the progress as the next invocation must find them."""

from dataclasses import replace

import pytest

from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.candidate_search import CandidateSearch, Stage
from capacity_adjuster.policy.decision import judge_block
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.requested_capacity import (
    CapacityRequest,
    GroupTarget,
    RequestedCapacity,
    is_held,
    is_idle,
)
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS, Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason

UNTIL = 1_700_000_000
REQUEST = CapacityRequest("r-1", "capacity-1", 3, 1, "0", is_creation=True)
ASKS = [GroupTarget("w", 0, 3)]
ASKED = RequestedCapacity(2, REQUEST, ("r-1",), lease_until=UNTIL)
OVER = CapacityBlock("cr-1", "expired", UNTIL, 0)
WAITED = replace(ASKED, lease_until=0, asks=(GroupTarget("w", 0, 0), GroupTarget("m", 0, 1)), is_open=False, block=OVER)
GROUPS = (GroupObservation("w", NodeRole.WORKER, 0, 2, 4), GroupObservation("m", NodeRole.MASTER, 0, 1, 1))
FORMER = (GroupTarget("w", 1, 2),)
SEARCH = CandidateSearch(3, "0", Stage.ASKING, UNTIL, since=UNTIL, lease_until=UNTIL)
SHRINK = Adjustment(4, "w", 5, 6, 3, Reason("why"), ("Launch",), UNTIL)
TRIP = Breaker(2, "w", is_tripped=True, lease_until=UNTIL)
STOP = StopRecord(7, cause="deadline", lease_until=UNTIL, stopped_at=UNTIL)


@pytest.mark.parametrize(
    ("record", "step", "changes"),
    [
        (TRIP, lambda record: record.confirm(), {"lease_until": 0}),
        (TRIP, lambda record: record.rearm(9), {"is_tripped": False, "counted_from": 9, "lease_until": 0}),
        (SHRINK, lambda record: record.close(), {"processes": (), "lease_until": 0}),
        (SHRINK, lambda record: record.end_at(4), {"processes": (), "lease_until": 0, "before": 4, "target": 4}),
        (ASKED, lambda record: record.release(ASKS), {"asks": tuple(ASKS), "lease_until": 0}),
        (ASKED, lambda record: record.close(), {"is_open": False, "lease_until": 0}),
        (ASKED, lambda record: record.end(), {"is_open": False, "is_over": True, "lease_until": 0}),
        (
            replace(WAITED, former=FORMER),
            lambda record: record.begin(GROUPS),
            {"asks": (GroupTarget("w", 0, 1),), "former": (), "is_open": True, "block": None},
        ),
        (
            replace(WAITED, former=FORMER),
            lambda record: record.renew(),
            {
                "request": replace(REQUEST, is_creation=False),
                "asks": (),
                "former": WAITED.asks,
                "is_open": True,
                "block": None,
            },
        ),
        (SEARCH, lambda record: record.count_from(9), {"since": 9}),
        (SEARCH, lambda record: record.hold(9), {"lease_until": 9}),
        (STOP, lambda record: record.begin("b", "m"), {"cause": "b", "message_id": "m", "stopped_at": 0}),
        (STOP, lambda record: record.allow(9), {"counted_from": 9, "lease_until": 0, "stopped_at": 0}),
        (STOP, lambda record: record.close(9), {"lease_until": 0, "stopped_at": 9}),
    ],
)
def test_a_step_changes_what_it_is_about_and_nothing_else(record, step, changes):
    assert step(record) == replace(record, revision=record.revision + 1, **changes)


def test_a_lease_of_the_longest_time_is_an_invocations():
    assert SHRINK.is_held(UNTIL - LONGEST_LEASE_SECONDS)
    assert SEARCH.is_held(UNTIL - LONGEST_LEASE_SECONDS)
    assert is_held(ASKED, UNTIL - LONGEST_LEASE_SECONDS)


def test_invalid_times_are_believed_to_be_none():
    far = replace(STOP, counted_from=UNTIL)
    assert far.believe(UNTIL - 10**6) == replace(far, counted_from=0, stopped_at=0, lease_until=0)
    assert far.believe(UNTIL) == far
    assert far.believe(UNTIL - LONGEST_LEASE_SECONDS) == far


def test_a_lease_ends_with_its_last_second():
    assert is_held(ASKED, UNTIL - 1)
    assert not is_held(ASKED, UNTIL)
    assert SHRINK.is_held(UNTIL - 1)
    assert not SHRINK.is_held(UNTIL)
    assert SEARCH.is_held(UNTIL - 1)
    assert not SEARCH.is_held(UNTIL)


def test_a_creation_for_a_cluster_that_exists_is_settled():
    assert is_idle(ClusterState("c", 1, 1, Phase.FORMED, 4, ()), ASKED, ())
    assert not is_idle(None, ASKED, ())


def test_a_block_that_never_begins_fails_the_cluster_in_a_further_revision(settings):
    launched = ClusterState("c", 4, 2, Phase.LAUNCHED, 1, ("i-1",), worker_minimum=3)
    failed = judge_block(launched, Reason("why"), settings=settings, workers=3).state
    assert failed == replace(launched, revision=5, phase=Phase.FAILED, requested=4, expected=(), reason=Reason("why"))
