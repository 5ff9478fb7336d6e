"""How nodes are paid for, and what that asks of launch template, group, placement, zone and adjuster."""

from typing import Any

import pytest

from deeplearning_cdk import Purchase
from deeplearning_cdk.cluster_plan import plan_cluster
from deeplearning_contract.names import NodeRole
from stacks.context import read_choices

RESERVATION = "cr-0123456789abcdef0"
GROUP_ARN = "arn:aws:resource-groups:us-east-1:111122223333:group/p5-reservations"
ZONE = {"availability_zone": "us-east-1a", "region": "us-east-1"}
GPUS = {"worker_instance_type": "p5.48xlarge"}
MARKET, RESERVED = "InstanceMarketOptions", "CapacityReservationSpecification"


def _market(synthesis: Any, role: NodeRole = NodeRole.WORKER) -> tuple[Any, Any, Any]:
    """Return the market and the reservation of a role's launch template, and the reservation of its group."""
    data, group = synthesis.launch_data(role), synthesis.group(role)["Properties"]
    return data.get(MARKET), data.get(RESERVED), group.get(RESERVED)


@pytest.mark.parametrize("purchase", [None, Purchase.on_demand()])
def test_nodes_launch_on_demand_by_default(synthesize: Any, purchase: Purchase | None) -> None:
    synthesis = synthesize(worker_purchase=purchase)
    assert _market(synthesis) == _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert (
        "DEEPLEARNING_CAPACITY_RESERVATION_ID"
        not in synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    )


@pytest.mark.fault(50)
def test_only_the_workers_are_spot_instances(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase=Purchase.spot())
    assert _market(synthesis) == ({"MarketType": "spot"}, None, None)
    assert _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert synthesis.of_type("AWS::EC2::PlacementGroup")


def test_a_highest_price_goes_with_one_time_requests_as_groups_make_them(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase=Purchase.spot(max_price=12.5))
    options = {"MaxPrice": "12.500000", "SpotInstanceType": "one-time"}
    assert _market(synthesis) == ({"MarketType": "spot", "SpotOptions": options}, None, None)


# "capacity-reservations-only - Auto Scaling will only launch instances into a Capacity Reservation or Capacity
# Reservation resource group" (CloudFormation, AWS::AutoScaling::AutoScalingGroup CapacityReservationSpecification).
@pytest.mark.parametrize(
    ("purchase", "target"),
    [
        (Purchase.reservation(RESERVATION), {"CapacityReservationIds": [RESERVATION]}),
        (Purchase.reservation_group(GROUP_ARN), {"CapacityReservationResourceGroupArns": [GROUP_ARN]}),
    ],
)
def test_a_reservation_is_the_groups_and_no_other_market(
    synthesize: Any, purchase: Purchase, target: dict[str, Any]
) -> None:
    synthesis = synthesize(worker_purchase=purchase, **GPUS, **ZONE)
    wanted = {"CapacityReservationPreference": "capacity-reservations-only", "CapacityReservationTarget": target}
    assert _market(synthesis) == (None, None, wanted)
    assert not synthesis.of_type("AWS::EC2::PlacementGroup")
    assert not [name for name in synthesis.of_type("AWS::Events::Rule") if "EndOfBlock" in name]


def test_a_reservation_in_a_placement_group_is_launched_in_that_group(synthesize: Any) -> None:
    purchase = Purchase.reservation(RESERVATION, placement_group="team-p5")
    synthesis = synthesize(worker_purchase=purchase, **GPUS, **ZONE)
    assert synthesis.group(NodeRole.WORKER)["Properties"]["PlacementGroup"] == "team-p5"
    assert "PlacementGroup" not in synthesis.group(NodeRole.MASTER)["Properties"]


def test_a_capacity_block_is_targeted_and_placed_by_itself(synthesize: Any) -> None:
    """MarketType and target as in the EKS user guide, capacity-blocks; no placement group, as ParallelCluster 3.10."""
    synthesis = synthesize(worker_purchase=Purchase.capacity_block(RESERVATION), **GPUS, **ZONE)
    target = {"CapacityReservationTarget": {"CapacityReservationId": RESERVATION}}
    assert _market(synthesis) == ({"MarketType": "capacity-block"}, target, None)
    assert _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert not synthesis.of_type("AWS::EC2::PlacementGroup")


def test_the_end_of_a_capacity_block_wakes_the_adjuster_that_knows_it(synthesize: Any) -> None:
    synthesis = synthesize(worker_purchase=Purchase.capacity_block(RESERVATION), **GPUS, **ZONE)
    variables = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    assert variables["DEEPLEARNING_CAPACITY_RESERVATION_ID"] == RESERVATION
    rule = synthesis.part("AWS::Events::Rule", "EndOfBlock")["Properties"]
    assert rule["EventPattern"] == {
        "source": ["aws.ec2"],
        "detail-type": ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
        "detail": {"capacity-reservation-id": [RESERVATION]},
    }
    assert len(synthesis.of_type("AWS::Lambda::Permission")) == 3


@pytest.mark.parametrize("purchase", [Purchase.reservation(RESERVATION), Purchase.capacity_block(RESERVATION)])
@pytest.mark.parametrize("prop", ["worker_purchase", "master_purchase"])
def test_the_zone_of_a_reservation_must_be_named(prop: str, purchase: Purchase) -> None:
    with pytest.raises(
        ValueError, match=f"availability_zone must be that of the reservation in {prop}, got none for cr-"
    ):
        plan_cluster(**{prop: purchase})
    plan_cluster(**{prop: purchase}, availability_zone="us-east-1a")


@pytest.mark.parametrize("make", [Purchase.reservation, Purchase.capacity_block])
def test_a_master_like_its_reserved_workers_is_warned_about_until_it_has_a_place_of_its_own(
    synthesize: Any, make: Any
) -> None:
    def warnings(**props: Any) -> list[str]:
        synthesis = synthesize(worker_purchase=make(RESERVATION), **GPUS, **ZONE, **props)
        return [text for text in synthesis.warnings if text.startswith("the master is a ")]

    (text,) = warnings()
    assert text.startswith(f"the master is a p5.48xlarge outside the workers' {make(RESERVATION).kind}")
    assert warnings(master_purchase=make(RESERVATION)) == []


def test_a_master_in_the_reservation_has_the_workers_target(synthesize: Any) -> None:
    purchase = Purchase.reservation(RESERVATION)
    synthesis = synthesize(worker_purchase=purchase, master_purchase=purchase, **GPUS, **ZONE)
    assert _market(synthesis, NodeRole.MASTER) == _market(synthesis)


def test_workers_of_a_capacity_block_that_launch_at_once_are_warned_about(synthesize: Any) -> None:
    def warnings(**props: Any) -> list[str]:
        synthesis = synthesize(worker_purchase=Purchase.capacity_block(RESERVATION), **GPUS, **ZONE, **props)
        return [text for text in synthesis.warnings if "launch only while it is active" in text]

    (text,) = warnings()
    assert "worker_min_capacity=0, worker_desired_capacity=0 and worker_max_capacity=3" in text
    assert warnings(worker_min_capacity=0, worker_desired_capacity=0, worker_max_capacity=3) == []


@pytest.mark.parametrize("value", ["spot", "on-demand", RESERVATION, 7])
def test_what_is_not_a_purchase_is_refused_with_one(value: Any) -> None:
    with pytest.raises(ValueError, match=r"worker_purchase must be a Purchase, got .*; write e.g. Purchase.spot\(\)"):
        plan_cluster(worker_purchase=value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "cheap"}, "kind must be one of on-demand, spot, reservation, capacity-block, got 'cheap'"),
        ({"kind": "reservation"}, "reservation must have one of reservation_id and resource_group_arn, got none"),
        ({"kind": "capacity-block"}, "capacity-block must have one of reservation_id, got none"),
        (
            {"kind": "capacity-block", "resource_group_arn": GROUP_ARN},
            "capacity-block must have one of reservation_id, got resource_group_arn",
        ),
        ({"kind": "spot", "reservation_id": RESERVATION}, "spot must have no reservation, got reservation_id"),
        (
            {"kind": "reservation", "reservation_id": RESERVATION, "resource_group_arn": GROUP_ARN},
            "got reservation_id and resource_group_arn",
        ),
        ({"kind": "reservation", "reservation_id": "cr-XYZ"}, "reservation_id must be cr- and 8 to 17 hex digits"),
        ({"kind": "reservation", "resource_group_arn": "arn:x"}, "resource_group_arn must be the ARN of a resource"),
        ({"kind": "spot", "max_price": 0.001}, "max_price must be over 0.001 USD an hour"),
        ({"kind": "spot", "max_price": float("nan")}, "max_price must be a number, got nan"),
        ({"kind": "on-demand", "max_price": 5}, "max_price must be for spot instances, got 5 with on-demand"),
        (
            {"kind": "reservation", "reservation_id": RESERVATION, "placement_group": "a\nb"},
            "placement_group must be the name of a placement group",
        ),
    ],
)
def test_contradictions_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Purchase(**values)


def _read(text: str) -> Purchase:
    (choice,) = read_choices({"worker_purchase": text, "availability_zone": "us-east-1a"})
    purchase = choice.cluster["worker_purchase"]
    assert isinstance(purchase, Purchase)
    return purchase


def test_the_context_has_a_text_for_each_purchase() -> None:
    assert _read("on-demand") == Purchase.on_demand()
    assert _read("spot") == Purchase.spot()
    assert _read('{"kind": "spot", "max_price": 12.5}') == Purchase.spot(max_price=12.5)
    assert _read(f"reservation:{RESERVATION}") == Purchase.reservation(RESERVATION)
    assert _read(f"reservation:{GROUP_ARN}") == Purchase.reservation_group(GROUP_ARN)
    assert _read(f"capacity-block:{RESERVATION}") == Purchase.capacity_block(RESERVATION)


def test_a_reservation_of_no_kind_is_refused_with_both_remedies() -> None:
    """An On-Demand reservation and a Capacity Block have ids of one form, and want different launch templates."""
    remedy = f"write reservation:{RESERVATION} for .*, or capacity-block:{RESERVATION}"
    with pytest.raises(ValueError, match=f"worker_purchase must name the kind of a reservation, got .*; {remedy}"):
        _read(RESERVATION)


@pytest.mark.parametrize("text", ["cheap", "ON-DEMAND", "spot:1", "reservation", "capacity-block", "reservation:cr-"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"worker_purchase (must be on-demand, spot, reservation:)|must"):
        _read(text)


def test_a_vpc_of_the_users_names_the_zone_of_a_reservation() -> None:
    ids = {"vpc_id": "vpc-0123456789abcdef0", "availability_zone": "us-east-1a", "worker_subnet_id": "subnet-01234567"}
    context = {"worker_purchase": f"reservation:{RESERVATION}"}
    read_choices(context | {"vpc": ids})
    with pytest.raises(ValueError, match="availability_zone must be that of the reservation"):
        read_choices(context)
