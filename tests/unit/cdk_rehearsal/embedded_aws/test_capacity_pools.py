"""A pool or a reservation has so many instances of a type in a zone; a launch beyond them fails in EC2's words."""

import pytest

from cdk_rehearsal.embedded_aws.base.capacity_pools import Capacity, CapacityPool, PlacedLaunch
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.base.reservations import Reservation, Reservations

FIRST = PlacedLaunch("p4d.24xlarge", "us-east-1a", is_spot=False)


def take(capacity, *launches):
    """Take capacity for launches, and return the words of the first refusal; empty for none."""
    for launch in launches:
        try:
            capacity.require(launch)
        except LaunchError as error:
            return str(error)
        capacity.living[f"i-{len(capacity.living)}"] = launch
    return ""


def test_a_pool_refuses_what_goes_beyond_it_until_an_instance_ends():
    capacity = Capacity([CapacityPool("us-east-1a", 2)])
    assert take(capacity, FIRST, FIRST) == ""
    assert take(capacity, FIRST).startswith(
        "InsufficientInstanceCapacity: We currently do not have sufficient p4d.24xlarge capacity in the Availability "
        "Zone you requested (us-east-1a)."
    )
    del capacity.living["i-0"]
    assert take(capacity, FIRST) == ""


@pytest.mark.parametrize(
    "other",
    [
        PlacedLaunch("p4d.24xlarge", "us-east-1b", is_spot=False),
        PlacedLaunch("p4d.24xlarge", "us-east-1a", is_spot=True),
        PlacedLaunch("p5.48xlarge", "us-east-1a", is_spot=False),
    ],
)
def test_a_pool_is_of_a_zone_a_type_and_a_purchase(other):
    capacity = Capacity([CapacityPool("us-east-1a", 0, "p4d.24xlarge", is_spot=False)])
    assert take(capacity, other) == ""
    assert take(capacity, FIRST)


def test_a_spot_launch_is_refused_in_the_words_for_spot_capacity():
    spot = PlacedLaunch.read(
        {"InstanceType": "c5.large", "InstanceMarketOptions": {"MarketType": "spot"}}, "us-east-1a"
    )
    assert take(Capacity([CapacityPool("us-east-1a", 0)]), spot) == (
        "InsufficientInstanceCapacity: There is no Spot capacity available that matches your request."
    )


def test_a_pool_may_have_enough_some_time_after_its_first_refusal(monkeypatch):
    capacity = Capacity([CapacityPool("us-east-1a", 0, seconds=10)])
    moments = iter([0.0, 9.0, 10.0])
    monkeypatch.setattr("time.monotonic", lambda: next(moments))
    assert [bool(take(capacity, FIRST)) for _ in range(3)] == [True, True, False]


def test_a_block_is_active_from_its_start_to_its_end(monkeypatch):
    block = Reservation(id="cr-1", zone="us-east-1a", instance_type="p4d.24xlarge", instances=1, begins=60.0, ends=90.0)
    reservations = Reservations([block])
    begin = reservations.opened[0]
    states = []
    for age in (0.0, 59.0, 60.0, 89.0, 90.0):
        monkeypatch.setattr("time.monotonic", lambda age=age: begin + age)
        states.append(reservations.find_state(block))
    assert states == ["scheduled", "scheduled", "active", "active", "expired"]


def test_a_launch_into_a_reservation_takes_nothing_from_a_pool():
    reserved = PlacedLaunch("p4d.24xlarge", "us-east-1a", is_spot=False, reservation="cr-1")
    block = Reservation(id="cr-1", zone="us-east-1a", instance_type="p4d.24xlarge", instances=1)
    capacity = Capacity([CapacityPool("us-east-1a", 1)], reservations=Reservations([block]))
    assert take(capacity, reserved, FIRST) == ""
    assert take(capacity, reserved).startswith("ReservationCapacityExceeded: ")
