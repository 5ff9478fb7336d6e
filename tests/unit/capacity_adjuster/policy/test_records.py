"""Each step of a record leaves the lease and the progress as the next invocation must find them."""

from dataclasses import replace

import pytest

from capacity_adjuster.policy.breaker import Breaker
from capacity_adjuster.policy.requested_capacity import (
    CapacityRequest,
    GroupTarget,
    RequestedCapacity,
    is_held,
    is_idle,
)
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import Reason

UNTIL = 1_700_000_000
REQUEST = CapacityRequest("r-1", "capacity-1", 3, 1, "0", is_creation=True)
ASKS = [GroupTarget("w", 0, 3)]
ASKED = RequestedCapacity(2, REQUEST, ("r-1",), lease_until=UNTIL)
SHRINK = Adjustment(4, "w", 5, 6, 3, Reason("why"), ("Launch",), UNTIL)
TRIP = Breaker(2, "w", is_tripped=True, lease_until=UNTIL)
STOP = StopRecord(7, cause="deadline", lease_until=UNTIL, stopped_at=UNTIL)


@pytest.mark.parametrize(
    ("following", "expected"),
    [
        (TRIP.confirm(), replace(TRIP, revision=3, lease_until=0)),
        (TRIP.rearm(9), replace(TRIP, revision=3, is_tripped=False, counted_from=9, lease_until=0)),
        (SHRINK.close(), replace(SHRINK, revision=5, processes=(), lease_until=0)),
        (SHRINK.end_at(4), replace(SHRINK, revision=5, processes=(), lease_until=0, before=4, target=4)),
        (ASKED.release(ASKS), replace(ASKED, revision=3, asks=tuple(ASKS), lease_until=0)),
        (ASKED.close(), replace(ASKED, revision=3, is_open=False, lease_until=0)),
        (ASKED.end(), replace(ASKED, revision=3, is_open=False, is_over=True, lease_until=0)),
        (STOP.begin("budget", "m"), replace(STOP, revision=8, cause="budget", message_id="m", stopped_at=0)),
        (STOP.allow(9), replace(STOP, revision=8, counted_from=9, lease_until=0, stopped_at=0)),
        (STOP.close(9), replace(STOP, revision=8, lease_until=0, stopped_at=9)),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_step_changes_what_it_is_about_and_nothing_else(following, expected):
    assert following == expected
    assert following.revision == expected.revision
    assert type(following.lease_until) is int


@pytest.mark.parametrize("record", [replace(STOP, counted_from=UNTIL), STOP])
def test_invalid_times_are_believed_to_be_none(record):
    now = UNTIL - 10**6
    assert record.believe(now) == replace(record, counted_from=0, stopped_at=0, lease_until=0)
    assert record.believe(UNTIL) == record


def test_a_lease_ends_with_its_last_second():
    assert is_held(ASKED, UNTIL - 1)
    assert not is_held(ASKED, UNTIL)
    assert SHRINK.is_held(UNTIL - 1)
    assert not SHRINK.is_held(UNTIL)


def test_a_creation_for_a_cluster_that_exists_is_settled():
    assert is_idle(ClusterState("c", 1, 1, Phase.FORMED, 4, ()), ASKED, ())
    assert not is_idle(None, ASKED, ())
