"""Subnets of further zones: new ones leave each other alone, and existing ones are where they are said to be."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import Network
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.network.zone_subnets import NodePlace, PlaceChoice, plan_zone_block

ZONES = {"availability_zones": ["us-east-1a", "us-east-1b"]}


def place(zone, **values):
    return PlaceChoice(prop=f"fallback in {zone}", zone=zone, **values)


def make(stack, *choices, public_master=False, **values):
    network = Network(**{"availability_zone": "us-east-1a"} | values)
    fallbacks = {str(index): choice for index, choice in enumerate(choices)}
    return ClusterNetwork(stack, "Network", network, public_master=public_master, fallbacks=fallbacks)


@pytest.fixture
def stack(make_stack):
    made: cdk.Stack = make_stack(region="us-east-1")
    return made


@pytest.fixture
def vpc(stack):
    """A VPC with a private subnet in two zones, and a public one in the first."""
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        **ZONES,
        private_subnet_ids=["subnet-0000000a", "subnet-0000000b"],
        private_subnet_route_table_ids=["rtb-0000000a", "rtb-0000000b"],
        public_subnet_ids=["subnet-1000000a", "subnet-1000000b"],
        public_subnet_route_table_ids=["rtb-1000000a", "rtb-1000000b"],
    )


def subnet_of(stack, zone, subnet_id="subnet-2000000b"):
    return ec2.Subnet.from_subnet_attributes(stack, f"Of{zone}", subnet_id=subnet_id, availability_zone=zone)


# --- A new VPC ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cidr", "zone", "block"),
    [
        ("10.0.0.0/16", "us-east-1a", "10.0.240.0/20"),
        ("10.0.0.0/16", "us-east-1b", "10.0.224.0/20"),
        ("10.0.0.0/16", "us-east-1f", "10.0.160.0/20"),
        ("10.0.0.0/20", "us-east-1g", "10.0.9.0/24"),
        ("10.0.0.0/24", "us-east-1a", "10.0.0.240/28"),
        ("10.0.0.0/24", "us-east-1d", "10.0.0.192/28"),
    ],
)
def test_a_zone_has_the_block_of_its_letter(cidr, zone, block):
    assert plan_zone_block(cidr, "fallbacks", zone) == block


@pytest.mark.parametrize(
    ("cidr", "zone"),
    [
        ("10.0.0.0/24", "us-east-1e"),  # The public subnet has the block.
        ("10.0.0.0/16", "us-east-1h"),
        ("10.0.0.0/25", "us-east-1a"),  # A /29, which no subnet may be.
        ("10.0.0.0/16", "us-east-1k"),
    ],
)
def test_a_vpc_without_room_for_a_further_subnet_is_refused(cidr, zone):
    with pytest.raises(ValueError, match=rf"network\.cidr must have room .* got {cidr} for {zone}; take a larger"):
        plan_zone_block(cidr, "fallbacks", zone)


def test_a_further_zone_has_a_private_subnet_with_routes_and_a_warning_of_the_price_of_traffic(stack, read_stack):
    make(stack, place("us-east-1b"), place("us-east-1b"))
    synthesis = read_stack(stack)
    (name,) = (name for name in synthesis.of_type("AWS::EC2::Subnet") if "Zone" in name)
    subnet = synthesis.template["Resources"][name]["Properties"]
    (table,) = (name for name in synthesis.of_type("AWS::EC2::RouteTable") if "Zone" in name)
    route = synthesis.part("AWS::EC2::Route", "Zone")["Properties"]
    (gateway,) = synthesis.of_type("AWS::EC2::NatGateway")
    association = synthesis.part("AWS::EC2::SubnetRouteTableAssociation", "Zone")["Properties"]
    assert (subnet["AvailabilityZone"], subnet["CidrBlock"]) == ("us-east-1b", "10.0.224.0/20")
    assert subnet["MapPublicIpOnLaunch"] is False
    assert route == {
        "DestinationCidrBlock": "0.0.0.0/0",
        "NatGatewayId": {"Ref": gateway},
        "RouteTableId": {"Ref": table},
    }
    assert association == {"RouteTableId": {"Ref": table}, "SubnetId": {"Ref": name}}
    for endpoint in synthesis.of_type("AWS::EC2::VPCEndpoint").values():
        assert {"Ref": table} in endpoint["Properties"]["RouteTableIds"]
    (warning,) = (text for text in synthesis.warnings if "trafficBetweenZones" in text)
    assert "nodes in us-east-1b reach the Internet through the NAT gateway in us-east-1a" in warning
    assert "0.01 USD for each gigabyte" in warning


def test_the_first_subnets_stay_and_each_zone_keeps_its_own_whatever_others_are_added(make_stack, read_stack):
    found = []
    for zones in ((), ("us-east-1c",), ("us-east-1b", "us-east-1c"), ("us-east-1c", "us-east-1b")):
        stack = make_stack(region="us-east-1")
        make(stack, *map(place, zones))
        found.append(read_stack(stack).of_type("AWS::EC2::Subnet"))
    without, one, two, reordered = found
    assert without.items() <= one.items() <= two.items()
    assert two == reordered


def test_isolated_nodes_of_a_further_zone_have_no_route_to_the_internet(stack, read_stack):
    make(stack, place("us-east-1b"), isolated=True)
    synthesis = read_stack(stack)
    assert not synthesis.of_type("AWS::EC2::Route")
    assert not [text for text in synthesis.warnings if "trafficBetweenZones" in text]


# --- An existing VPC ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("public_master", "master"), [(False, "subnet-0000000b"), (True, "subnet-1000000b")])
def test_subnets_of_an_existing_vpc_are_found_by_their_zone(stack, vpc, public_master, master):
    network = make(stack, place("us-east-1b"), public_master=public_master, vpc=vpc)
    found = network.places["0"]
    assert (found.worker_subnet.subnet_id, found.master_subnet.subnet_id) == ("subnet-0000000b", master)
    assert found.has_public_master is public_master
    assert {zone: each.subnet_id for zone, each in network.further_zones.items()} == {"us-east-1b": "subnet-0000000b"}


def test_a_fallback_in_the_first_zone_has_the_first_subnets(stack, vpc):
    network = make(stack, PlaceChoice(), place("us-east-1a"), vpc=vpc)
    assert network.places == {"0": network.place, "1": network.place}
    assert network.further_zones == {}


def test_subnets_of_the_users_are_taken(stack, vpc):
    own = subnet_of(stack, "us-east-1b")
    network = make(stack, place("us-east-1b", worker_subnet=own), vpc=vpc)
    assert network.places == {"0": NodePlace(own, own, has_public_master=False)}


def of_another_vpc(stack, _):
    other = ec2.Vpc.from_vpc_attributes(
        stack,
        "Other",
        vpc_id="vpc-0123456789abcdef1",
        **ZONES,
        private_subnet_ids=["subnet-3000000a", "subnet-3000000b"],
    )
    return other.private_subnets[1]


def in_another_zone(stack, _):
    return subnet_of(stack, "us-east-1c")


@pytest.mark.parametrize(
    ("field", "choose", "said"),
    [
        ("worker_subnet", in_another_zone, "must lie in us-east-1b, got one in us-east-1c; pass"),
        ("master_subnet", in_another_zone, "must lie in us-east-1b, got one in us-east-1c; pass"),
        ("worker_subnet", lambda _, vpc: vpc.public_subnets[1], "must have a route to the Internet"),
        ("worker_subnet", of_another_vpc, r"must be in network\.vpc .*; pass one of"),
    ],
    ids=["worker elsewhere", "master elsewhere", "no route", "another VPC"],
)
def test_a_subnet_that_a_candidate_cannot_use_is_refused(stack, vpc, field, choose, said):
    with pytest.raises(ValueError, match=rf"fallback in us-east-1b\.{field} {said}"):
        make(stack, place("us-east-1b", **{field: choose(stack, vpc)}), vpc=vpc)


@pytest.mark.parametrize("has_peer", [False, True])
def test_a_zone_without_the_subnet_that_the_nodes_need_is_refused(stack, has_peer):
    private = ["subnet-0000000a", "subnet-0000000b"] if has_peer else ["subnet-0000000a"]
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=["us-east-1a", "us-east-1b"][: len(private)],
        private_subnet_ids=private,
        public_subnet_ids=["subnet-1000000a"] if not has_peer else None,
    )
    first = {"master_subnet": subnet_of(stack, "us-east-1a", "subnet-1000000a")} if has_peer else {}
    rule = "master_subnet must be given .* no public" if has_peer else "worker_subnet must be given .* no private"
    with pytest.raises(ValueError, match=rf"{rule} subnet in us-east-1b, got none; pass"):
        make(stack, place("us-east-1b"), public_master=has_peer, vpc=vpc, **first)
