"""How workers are paid for, and what that asks of template, placement and adjuster."""

from typing import Any

import pytest

from deeplearning_cdk.purchase import read_purchase

BLOCK = "cr-0123456789abcdef0"


def _worker_template(synthesis: Any) -> dict[str, Any]:
    template: dict[str, Any] = synthesis.part("AWS::EC2::LaunchTemplate", "Workers")["Properties"]["LaunchTemplateData"]
    return template


@pytest.mark.parametrize("choice", [None, "on-demand"])
def test_workers_launch_on_demand_by_default(synthesize: Any, choice: str | None) -> None:
    synthesis = synthesize(worker_purchase=choice)
    assert not {"InstanceMarketOptions", "CapacityReservationSpecification"} & set(_worker_template(synthesis))
    assert (
        "DEEPLEARNING_CAPACITY_RESERVATION_ID"
        not in synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    )


@pytest.mark.fault(50)
def test_only_the_workers_are_spot_instances(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase="spot")
    assert _worker_template(synthesis)["InstanceMarketOptions"] == {"MarketType": "spot"}
    master = synthesis.part("AWS::EC2::LaunchTemplate", "Master")["Properties"]["LaunchTemplateData"]
    assert "InstanceMarketOptions" not in master
    assert synthesis.of_type("AWS::EC2::PlacementGroup")


def test_a_capacity_block_is_targeted_and_placed_by_itself(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase=BLOCK)
    template = _worker_template(synthesis)
    assert template["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    target = {"CapacityReservationTarget": {"CapacityReservationId": BLOCK}}
    assert template["CapacityReservationSpecification"] == target
    assert not synthesis.of_type("AWS::EC2::PlacementGroup")


def test_the_end_of_a_capacity_block_wakes_the_adjuster_that_knows_it(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase=BLOCK)
    variables = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    assert variables["DEEPLEARNING_CAPACITY_RESERVATION_ID"] == BLOCK
    rule = synthesis.part("AWS::Events::Rule", "EndOfBlock")["Properties"]
    assert rule["EventPattern"] == {
        "source": ["aws.ec2"],
        "detail-type": ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
        "detail": {"capacity-reservation-id": [BLOCK]},
    }
    assert len(synthesis.of_type("AWS::Lambda::Permission")) == 3


@pytest.mark.parametrize("choice", ["cheap", "cr-", "cr-XYZ", "ON-DEMAND"])
def test_other_choices_are_refused(choice: str) -> None:
    with pytest.raises(ValueError, match="worker_purchase must be 'on-demand', 'spot' or the id of a Capacity Block's"):
        read_purchase(choice)
