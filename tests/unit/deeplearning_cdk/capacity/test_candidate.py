"""Values of candidates and the rules among them; nothing is synthesized."""

import re

import aws_cdk as cdk
import pytest
from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import (
    Candidate,
    Lustre,
    NodeImage,
    Purchase,
    SharedFileSystem,
    Workers,
)
from deeplearning_cdk.capacity.candidate import CandidateSearch, name_candidate, plan_search
from deeplearning_contract.names import NodeRole
from stacks.reader import read_props
from tests.unit.deeplearning_cdk.clusters import plan

HERE = {"workers.instance_type": "g5.12xlarge", "network.availability_zone": "us-east-1a"}
RESERVED = Purchase.reservation("cr-0123456789abcdef0")
BLOCK = Purchase.capacity_block("cr-0123456789abcdef0")
THERE = Candidate(availability_zone="us-east-1b")
SPOT = Candidate(purchase=Purchase.spot())
LARGER = Candidate(instance_type="g5.24xlarge")


def ask(*fallbacks, **values):
    """Return the plan of a cluster with fallbacks."""
    return plan({**HERE, "workers.fallbacks": fallbacks, **values})


# --- What a candidate is ------------------------------------------------------------------------------


def test_what_a_candidate_leaves_out_is_as_in_the_first():
    first, there, spot, larger = ask(THERE, SPOT, LARGER).candidates
    assert [each.workers.name for each in (first, there, spot, larger)] == [*["g5.12xlarge"] * 3, "g5.24xlarge"]
    assert [each.master.name for each in (first, larger)] == ["g5.12xlarge", "g5.24xlarge"]
    kinds = [each.roles[NodeRole.WORKER].purchase.kind for each in (first, there, spot, larger)]
    assert kinds == ["on-demand", "on-demand", "spot", "on-demand"]
    assert {each.roles[NodeRole.MASTER].purchase.kind for each in (first, there, spot, larger)} == {"on-demand"}
    # A master with a type of its own keeps it.
    assert {each.master.name for each in ask(LARGER, **{"master.instance_type": "m5.large"}).candidates} == {"m5.large"}


def test_a_tag_names_the_content_and_not_the_position():
    tags = [fallback.tag for fallback in ask(THERE, SPOT, LARGER).fallbacks]
    assert [tag.rpartition("-")[0] for tag in tags] == [
        "us-east-1b-g5.12xlarge-on-demand",
        "us-east-1a-g5.12xlarge-spot",
        "us-east-1a-g5.24xlarge-on-demand",
    ]
    assert all(re.fullmatch(r"[0-9a-f]{4}", tag.rpartition("-")[2]) for tag in tags)
    assert [fallback.tag for fallback in ask(LARGER, SPOT, THERE).fallbacks] == tags[::-1]
    assert [fallback.tag for fallback in ask(SPOT).fallbacks] == tags[1:2]
    made = [[fallback.tag for fallback in each.made_fallbacks] for each in (ask(THERE, SPOT), ask(SPOT, THERE))]
    assert made[0] == made[1]


@pytest.mark.parametrize(
    "purchase",
    [Purchase.spot(max_price=1.5), Purchase.spot(max_price=2.5), Purchase.reservation("cr-01234567"), RESERVED],
)
def test_every_part_of_a_candidate_is_in_its_tag(purchase, stack):
    others = [Purchase.spot(), Purchase.spot(max_price=1.5), Purchase.spot(max_price=2.5), RESERVED]
    own = name_candidate("us-east-1b", "g5.12xlarge", purchase)
    assert own not in {name_candidate("us-east-1b", "g5.12xlarge", each) for each in others if each != purchase}
    subnet = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-0123456789abcdef0")
    assert own != name_candidate("us-east-1b", "g5.12xlarge", purchase, [subnet])


def test_a_cluster_without_a_named_zone_may_ask_for_other_types_and_purchases():
    found = plan({"workers.instance_type": "g5.12xlarge", "workers.fallbacks": [SPOT]})
    assert found.fallbacks[0].tag.startswith("g5.12xlarge-spot-")


@pytest.fixture
def stack(make_stack):
    made: cdk.Stack = make_stack(region="us-east-1")
    return made


# --- Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fallbacks", "values", "refusal"),
    [
        pytest.param(
            [SPOT, Candidate(purchase=Purchase.spot())],
            {},
            r"workers\.fallbacks\[1\] must differ from each candidate .*, got us-east-1a-g5\.12xlarge-spot again;",
            id="two equal",
        ),
        pytest.param([Candidate()], {}, r"FALLBACK must differ .*; leave it out", id="equal to the first"),
        pytest.param(
            [Candidate(availability_zone="us-east-1a", instance_type="g5.12xlarge", purchase=Purchase())],
            {},
            r"FALLBACK must differ",
            id="equal to the first in other words",
        ),
        pytest.param(
            [Candidate(instance_type="g5g.16xlarge")],
            {},
            r"FALLBACK\.instance_type must have the architecture of workers\.instance_type, got "
            r"g5g\.16xlarge \(arm64\) with g5\.12xlarge \(x86_64\); take another type",
            id="architecture",
        ),
        pytest.param(
            [Candidate(instance_type="p3.16xlarge")],
            {},
            r"FALLBACK\.instance_type must start from the image of g5\.12xlarge, got p3\.16xlarge for "
            r".*; pass a software\.image for both, or take another type",
            id="image",
        ),
        pytest.param(
            [Candidate(instance_type="p4d.24xlarge")],
            {
                "workers.instance_type": "trn1.32xlarge",
                "software.image": NodeImage.from_ami_id("ami-01234567", login_user="ubuntu"),
            },
            r"FALLBACK\.instance_type must run the environment of trn1\.32xlarge, got p4d\.24xlarge with "
            r"another; pass a software\.environment for both",
            id="environment",
        ),
        pytest.param(
            [Candidate(instance_type="p99.large")],
            {},
            r"FALLBACK\.instance_type must be an instance type of the catalogue .*, got 'p99\.large'; take",
            id="unknown type",
        ),
        pytest.param(
            [THERE],
            {"network.availability_zone": None},
            r"network\.availability_zone must be named with the zone of FALLBACK, got none for "
            r"us-east-1b; write e\.g\. us-east-1a",
            id="zone beside an unknown one",
        ),
        pytest.param(
            [Candidate(availability_zone="us-west-2b")],
            {},
            r"FALLBACK\.availability_zone must be a zone beside us-east-1a, got us-west-2b; write e\.g\. "
            r"us-east-1b",
            id="zone of another region",
        ),
        pytest.param(
            [THERE],
            {"storage.lustre": Lustre()},
            r"FALLBACK\.availability_zone must be that of network with storage\.lustre, got .*; FSx",
            id="Lustre",
        ),
        pytest.param(
            [THERE],
            {"master.ssh_peer": "203.0.113.7/32"},
            r"master\.ssh_peer must be left out with the zone of FALLBACK in a new VPC, got both; .* log in",
            id="SSH in a new VPC",
        ),
        pytest.param(
            [THERE],
            {"master.purchase": RESERVED},
            r"master\.purchase must be without a reservation with the zone of FALLBACK, got cr-.*; .* pass",
            id="reserved master",
        ),
        pytest.param(
            [THERE],
            {"workers.purchase": RESERVED},
            r"FALLBACK\.purchase must be given beside workers\.purchase with a reservation, got none; .* pass",
            id="inherited reservation for another zone",
        ),
        pytest.param(
            [LARGER],
            {"workers.purchase": RESERVED},
            r"FALLBACK\.purchase must be given beside workers\.purchase with a reservation",
            id="inherited reservation for another type",
        ),
        pytest.param(
            [Candidate(purchase=RESERVED)],
            {"network.availability_zone": None},
            r"FALLBACK\.availability_zone must be that of the reservation in "
            r"FALLBACK\.purchase, got none for cr-.*; read it with",
            id="reservation without its zone",
        ),
        pytest.param(
            [Candidate(purchase=BLOCK)],
            {},
            r"FALLBACK\.purchase must be without a Capacity Block in a cluster with workers\.fallbacks, got "
            r"cr-.*; .* leave workers\.fallbacks out",
            id="fallback in a block",
        ),
        pytest.param(
            [SPOT],
            {"workers.purchase": BLOCK},
            r"workers\.purchase or master\.purchase must be without a Capacity Block",
            id="first in a block",
        ),
        pytest.param(
            [Candidate(purchase=Purchase.reservation(cdk.Fn.import_value("Reservation")))],
            {},
            r"FALLBACK\.purchase must be known at synth, got a token; pass the value itself",
            id="token",
        ),
    ],
)
def test_candidates_that_cannot_work_are_refused_with_prop_rule_and_remedy(fallbacks, values, refusal):
    with pytest.raises(ValueError, match="^" + refusal.replace("FALLBACK", r"workers\.fallbacks\[0\]")):
        ask(*fallbacks, **values)


def test_a_zone_without_the_other_clusters_mount_target_is_refused(stack):
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"])
    subnet = ec2.Subnet.from_subnet_attributes(stack, "S", subnet_id="subnet-1", availability_zone="us-east-1a")
    shared = SharedFileSystem(stack, "Shared", vpc=vpc, subnet=subnet)
    values = {"network.vpc": vpc, "network.worker_subnet": subnet, "storage.file_system": shared}
    with pytest.raises(
        ValueError, match=r"availability_zone must be that of storage\.file_system, got us-east-1b; .* id"
    ):
        ask(THERE, **values)
    assert ask(SPOT, **values).fallbacks


def test_subnets_are_refused_without_their_zone_or_their_vpc(stack):
    subnet = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-01234567")
    with pytest.raises(
        ValueError, match=r"availability_zone must be given with worker_subnet or master_subnet, got none; n"
    ):
        Candidate(worker_subnet=subnet)
    with pytest.raises(
        ValueError, match=r"network\.vpc must be given with the subnets of workers\.fallbacks\[0\], got none; p"
    ):
        ask(Candidate(availability_zone="us-east-1b", master_subnet=subnet))


def test_fallbacks_are_at_most_seven_in_zones_that_synth_knows_and_patience_is_for_them():
    zones = [Candidate(availability_zone=f"us-east-1{letter}") for letter in "bcdefghi"]
    assert len(Workers(fallbacks=zones[:7]).fallbacks) == 7
    with pytest.raises(ValueError, match=r"workers\.fallbacks must have at most 7 candidates, got 8; leave"):
        Workers(fallbacks=zones)
    with pytest.raises(ValueError, match="availability_zone must be known at synth, got a token"):
        Candidate(availability_zone=cdk.Fn.select(1, cdk.Fn.get_azs()))
    with pytest.raises(ValueError, match=r"workers\.patience must be left out without .*, got 5 minutes; name"):
        Workers(patience=Duration.minutes(5))


# --- Time ---------------------------------------------------------------------------------------------


def test_the_search_has_the_stacks_time_but_for_the_last_15_minutes():
    assert plan_search(["0", "b"], "a", None, Duration.minutes(55)) == CandidateSearch(
        order=("0", "b"), first="a", patience_seconds=180, search_seconds=40 * 60
    )
    assert plan_search(["0"], "a", None, Duration.minutes(55)) is None


@pytest.mark.parametrize(("patience", "least"), [(None, 30), (Duration.seconds(90), 26), (Duration.minutes(10), 51)])
def test_a_time_that_leaves_less_than_15_minutes_to_form_is_refused(patience, least):
    order = ("0", "b", "c")
    assert plan_search(order, "a", patience, Duration.minutes(least))
    with pytest.raises(
        ValueError, match=rf"^setup_timeout must leave 15 .*, got {least - 1} .*; pass at least {least} m"
    ):
        plan_search(order, "a", patience, Duration.minutes(least - 1))


# --- Context ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fallbacks"),
    [
        ("us-east-1b", (THERE,)),
        ("us-east-1b, us-east-1c", (THERE, Candidate(availability_zone="us-east-1c"))),
        ('[{"availability_zone": "us-east-1b"}, "us-east-1c"]', (THERE, Candidate(availability_zone="us-east-1c"))),
        ('[{"purchase": "spot"}, {"instance_type": "g5.24xlarge"}]', (SPOT, LARGER)),
        ('[{"purchase": "reservation:cr-0123456789abcdef0"}]', (Candidate(purchase=RESERVED),)),
    ],
)
def test_the_context_names_zones_or_whole_candidates(stack, text, fallbacks):
    assert read_props(stack, {"workers.fallbacks": text})["workers"].fallbacks == fallbacks


def test_the_context_takes_subnets_by_their_ids_and_patience_as_a_time(stack):
    text = '[{"availability_zone": "us-east-1b", "worker_subnet": "subnet-01234567"}]'
    workers = read_props(stack, {"workers.fallbacks": text, "workers.patience": "5m"})["workers"]
    assert workers.fallbacks[0].worker_subnet.subnet_id == "subnet-01234567"
    assert workers.patience.to_seconds() == 300


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("B", r"workers\.fallbacks\[0\] must be the name of an availability zone, got 'B'; write"),
        ('[{"availability_zone": "B"}]', r"workers\.fallbacks\[0\]\.availability_zone must be the name"),
        (
            '[{"zone": "us-east-1b"}]',
            r"workers\.fallbacks\[0\] must have the names availability_zone, .*, got 'zone'; did",
        ),
        ('[{"purchase": "cheap"}]', r"workers\.fallbacks\[0\]\.purchase must be on-demand, spot"),
        ("[3]", r"workers\.fallbacks\[0\] must be a Candidate, got 3; pass"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_key(stack, text, refusal):
    with pytest.raises(ValueError, match=rf"^{refusal}"):
        read_props(stack, {"workers.fallbacks": text})
