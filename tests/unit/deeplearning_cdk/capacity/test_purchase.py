"""Purchase options, and their effects on launch template, group, placement, zone and adjuster."""

import json

import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import Purchase, Spending
from deeplearning_cdk.warnings import add_warnings
from deeplearning_contract.names import NodeRole
from stacks.reader import read_props
from tests.unit.deeplearning_cdk.clusters import plan
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

RESERVATION = "cr-0123456789abcdef0"
GROUP_ARN = "arn:aws:resource-groups:us-east-1:111122223333:group/p5-reservations"
GPUS = {"workers.instance_type": "p5.48xlarge", "network.availability_zone": "us-east-1a"}
MARKET, RESERVED = "InstanceMarketOptions", "CapacityReservationSpecification"


def _market(synthesis, role=NodeRole.WORKER):
    """Return the market and the reservation of a role's launch template, and the reservation of its group."""
    data, group = synthesis.launch_data(role), synthesis.group(role)["Properties"]
    return data.get(MARKET), data.get(RESERVED), group.get(RESERVED)


def test_nodes_launch_on_demand_by_default(synthesize):
    synthesis = synthesize()
    assert _market(synthesis) == _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert (
        "DEEPLEARNING_CAPACITY_RESERVATION_ID"
        not in synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    )
    assert {role.purchase for role in plan().roles.values()} == {Purchase.on_demand()}


# A highest price goes with one-time requests, as groups make them.
@pytest.mark.fault(50)
def test_only_the_workers_are_spot_instances(synthesize):
    synthesis = synthesize(**{"workers.purchase": Purchase.spot(max_price=12.5)})
    options = {"MaxPrice": "12.500000", "SpotInstanceType": "one-time"}
    assert _market(synthesis) == ({"MarketType": "spot", "SpotOptions": options}, None, None)
    assert _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert synthesis.of_type("AWS::EC2::PlacementGroup")


def test_spot_instances_have_no_highest_price_by_default():
    expected = ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty(market_type="spot", spot_options=None)
    assert Purchase.spot().market == expected


# "capacity-reservations-only - Auto Scaling will only launch instances into a Capacity Reservation or Capacity
# Reservation resource group" (CloudFormation, AWS::AutoScaling::AutoScalingGroup CapacityReservationSpecification).
def test_a_reservation_is_the_groups_and_no_other_market(synthesize):
    own, shared = Purchase.reservation(RESERVATION, placement_group="team-p5"), Purchase.reservation_group(GROUP_ARN)
    synthesis = synthesize(**{"workers.purchase": own, "master.purchase": shared}, **GPUS)
    for role, target, placement in (
        (NodeRole.WORKER, {"CapacityReservationIds": [RESERVATION]}, "team-p5"),
        (NodeRole.MASTER, {"CapacityReservationResourceGroupArns": [GROUP_ARN]}, None),
    ):
        wanted = {"CapacityReservationPreference": "capacity-reservations-only", "CapacityReservationTarget": target}
        assert _market(synthesis, role) == (None, None, wanted)
        assert synthesis.group(role)["Properties"].get("PlacementGroup") == placement
    assert not synthesis.of_type("AWS::EC2::PlacementGroup")
    assert not [name for name in synthesis.of_type("AWS::Events::Rule") if "EndOfBlock" in name]


@pytest.mark.parametrize("make", [Purchase.reservation, Purchase.capacity_block])
def test_reserved_nodes_are_in_no_placement_group_of_the_clusters(make):
    assert NodeRole.WORKER in plan(GPUS).placed_roles
    assert plan({"workers.purchase": make(RESERVATION), **GPUS}).placed_roles == ()


def test_a_capacity_block_is_targeted_and_placed_by_itself(synthesize):
    """MarketType and target as in the EKS user guide, capacity-blocks; no placement group, as ParallelCluster 3.10."""
    synthesis = synthesize(**VARIANTS["capacity-block"])
    target = {"CapacityReservationTarget": {"CapacityReservationId": RESERVATION}}
    assert _market(synthesis) == ({"MarketType": "capacity-block"}, target, None)
    assert _market(synthesis, NodeRole.MASTER) == (None, None, None)
    assert not synthesis.of_type("AWS::EC2::PlacementGroup")


def test_the_end_of_a_capacity_block_invokes_its_adjuster(synthesize):
    synthesis = synthesize(**VARIANTS["capacity-block"])
    variables = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    assert variables["DEEPLEARNING_CAPACITY_RESERVATION_ID"] == RESERVATION
    rule = synthesis.part("AWS::Events::Rule", "EndOfBlock")["Properties"]
    assert rule["EventPattern"] == {
        "source": ["aws.ec2"],
        "detail-type": ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
        "detail": {"capacity-reservation-id": [RESERVATION]},
    }
    assert len(synthesis.of_type("AWS::Lambda::Permission")) == 3
    # What a purchase warns of, asked of its values below, stands at the cluster.
    assert [text for text in synthesis.warnings if "outside the workers' capacity-block" in text]


@pytest.mark.parametrize("purchase", [Purchase.reservation(RESERVATION), Purchase.capacity_block(RESERVATION)])
@pytest.mark.parametrize("prop", ["workers.purchase", "master.purchase"])
def test_the_zone_of_a_reservation_must_be_named(make_stack, prop, purchase):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"])
    with pytest.raises(
        ValueError, match=f"network.availability_zone must be that of the reservation in {prop}, got none for cr-"
    ):
        plan({prop: purchase, "network.vpc": vpc})
    plan({prop: purchase, "network.availability_zone": "us-east-1a"})
    subnet = ec2.Subnet.from_subnet_attributes(stack, "Subnet", subnet_id="subnet-1", availability_zone="us-east-1a")
    plan({prop: purchase, "network.vpc": vpc, "network.worker_subnet": subnet})


@pytest.fixture
def warn(make_stack):
    """Return a function from props to the warnings about them."""

    def make(**props):
        stack = make_stack()
        add_warnings(stack, plan({**GPUS, **props}), Spending(), isolated=False, has_lustre=False)
        return [str(entry.data) for entry in stack.node.metadata]

    return make


@pytest.mark.parametrize("make", [Purchase.reservation, Purchase.capacity_block])
def test_a_master_like_its_reserved_workers_is_warned_about_until_it_has_a_place_of_its_own(warn, make):
    reserved, start = make(RESERVATION), "the master is a "
    (text,) = (text for text in warn(**{"workers.purchase": reserved}) if text.startswith(start))
    assert text.startswith(f"{start}p5.48xlarge outside the workers' {reserved.kind}")
    for more in ({"master.purchase": reserved}, {"master.instance_type": "m5.large"}):
        assert not [text for text in warn(**{"workers.purchase": reserved, **more}) if text.startswith(start)]


def test_a_master_of_a_capacity_block_is_warned_about_and_workers_that_wait_for_theirs_are_not(warn):
    block, part = Purchase.capacity_block(RESERVATION), "launches only while it is active"
    (text,) = (text for text in warn(**{"workers.purchase": block, "master.purchase": block}) if part in text)
    assert text.startswith(f"the master in capacity block {RESERVATION} ")
    assert not [text for text in warn(**{"workers.purchase": block}) if part in text]


@pytest.mark.parametrize(
    ("props", "block"),
    [
        ({}, None),
        ({"workers.purchase": Purchase.reservation(RESERVATION)}, None),
        ({"workers.purchase": Purchase.capacity_block(RESERVATION)}, RESERVATION),
        # Today's deployment with no worker, whose user raises the group by hand.
        (
            {
                "workers.purchase": Purchase.capacity_block(RESERVATION),
                "workers.desired_capacity": 0,
                "workers.max_capacity": 3,
            },
            None,
        ),
        # A master in a block launches with its start alone, so no head forms before.
        (dict.fromkeys(("workers.purchase", "master.purchase"), Purchase.capacity_block(RESERVATION)), None),
        ({"master.purchase": Purchase.capacity_block(RESERVATION)}, None),
    ],
)
def test_only_an_adjuster_whose_workers_wait_for_their_block_may_and_does_read_it(synthesize, props, block):
    synthesis = synthesize(**GPUS, **props)
    variables = synthesis.part("AWS::Lambda::Function", "CapacityAdjuster")["Properties"]["Environment"]["Variables"]
    assert variables.get("DEEPLEARNING_WORKER_BLOCK_ID") == block
    assert ("ec2:DescribeCapacityReservations" in json.dumps(synthesis.template)) == bool(block)


@pytest.mark.parametrize("value", ["spot", "on-demand", RESERVATION, 7])
def test_a_value_that_is_not_a_purchase_is_refused_with_an_example_of_one(value):
    with pytest.raises(ValueError, match=r"workers\.purchase must be a Purchase, got .*; write e.g. Purchase.spot\(\)"):
        plan({"workers.purchase": value})


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
def test_contradictions_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Purchase(**values)


@pytest.fixture
def read(make_stack):
    """Return a function from a text of the context to the purchase."""
    return lambda text: read_props(make_stack(), {"workers.purchase": text})["workers"].purchase


def test_the_context_has_a_text_for_each_purchase(read):
    assert read("on-demand") == Purchase.on_demand()
    assert read("spot") == Purchase.spot()
    assert read('{"kind": "spot", "max_price": 12.5}') == Purchase.spot(max_price=12.5)
    assert read(f"reservation:{RESERVATION}") == Purchase.reservation(RESERVATION)
    assert read(f"reservation:{GROUP_ARN}") == Purchase.reservation_group(GROUP_ARN)
    assert read(f"capacity-block:{RESERVATION}") == Purchase.capacity_block(RESERVATION)


def test_a_reservation_of_no_kind_is_refused_with_both_remedies(read):
    """An On-Demand reservation and a Capacity Block have ids of one form, and want different launch templates."""
    remedy = f"write reservation:{RESERVATION} for .*, or capacity-block:{RESERVATION}"
    with pytest.raises(ValueError, match=rf"workers\.purchase must name the kind of a reservation, got .*; {remedy}"):
        read(RESERVATION)


@pytest.mark.parametrize("text", ["cheap", "ON-DEMAND", "spot:1", "reservation", "capacity-block", "reservation:cr-"])
def test_other_texts_are_refused(read, text):
    with pytest.raises(
        ValueError, match=r"^workers\.purchase(: reservation_id)? must be (on-demand, spot, res|cr- and)"
    ):
        read(text)
