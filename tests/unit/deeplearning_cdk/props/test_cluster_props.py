"""Wrong props are refused with the prop, the rule, the value and a way out."""

import aws_cdk as cdk
import pytest
from aws_cdk import Duration, Token
from aws_cdk import aws_ec2 as ec2
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import Lustre, Master, Network, NodeImage, Purchase, Spending, Storage, TrainingCluster, Workers
from deeplearning_cdk.nodes.values import SetupTimeout
from deeplearning_cdk.props.check import check_prop
from deeplearning_cdk.training_cluster import _count_formation_seconds
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import plan

COUNTS = st.one_of(st.none(), st.integers(min_value=0, max_value=50))


@pytest.mark.parametrize(
    ("props", "rule", "remedy"),
    [
        (
            {"workers.min_capacity": 5, "workers.desired_capacity": 4},
            "workers.min_capacity must not exceed workers.desired_capacity, got 5 > 4",
            "lower it or raise workers.desired_capacity",
        ),
        (
            {"workers.desired_capacity": 5, "workers.max_capacity": 4},
            "workers.desired_capacity must not exceed workers.max_capacity, got 5 > 4",
            "lower it or raise workers.max_capacity",
        ),
        (
            {"workers.min_capacity": 3, "workers.max_capacity": 2},
            "workers.desired_capacity must not exceed workers.max_capacity, got 3 > 2",
            "lower it or raise workers.max_capacity",
        ),
        ({"workers.min_capacity": -1}, "workers.min_capacity must not be negative, got -1", "pass 0 or more"),
        ({"workers.min_capacity": "2"}, "workers.min_capacity must be a whole number, got '2'", "write e.g. 3"),
        (
            {"workers.max_capacity": 65532},
            "workers.max_capacity must be from 0 to 65531, got 65532",
            "all workers live in one subnet, so take fewer",
        ),
        (
            {"network.cidr": "10.0.0.0/33"},
            "network.cidr must be an IPv4 network with its host bits 0, got '10.0.0.0/33'",
            "write e.g. 10.0.0.0/16",
        ),
        (
            {"network.cidr": "10.0.0.1/16"},
            "network.cidr must be an IPv4 network with its host bits 0, got '10.0.0.1/16'",
            "write e.g. 10.0.0.0/16",
        ),
        (
            {"network.cidr": "10.0.0.0/8"},
            "network.cidr must be from /16 to /26, got '10.0.0.0/8'",
            "a VPC takes no more, and two subnets must fit",
        ),
        (
            {"storage.mount_point": "efs"},
            (
                "storage.mount_point must be an absolute path of at most 128 letters, digits and ._- without "
                "'..' or a last slash, got 'efs'"
            ),
            "write e.g. /efs or /mnt/efs",
        ),
        (
            {"storage.mount_point": "/usr"},
            "storage.mount_point must not be or lie in a folder of the system, nor be a home, got '/usr'",
            "write e.g. /efs or /mnt/efs",
        ),
        (
            {"storage.file_system": "fs-123"},
            "storage.file_system must be fs- and 8 or 17 hex digits, got 'fs-123'",
            "list yours with `aws efs describe-file-systems`",
        ),
        (
            {"master.ssh_peer": "0.0.0.0/0"},
            "master.ssh_peer must not be everyone, got '0.0.0.0/0'",
            "name your own network, e.g. 203.0.113.7/32",
        ),
        (
            {"master.ssh_peer": "my laptop"},
            "master.ssh_peer must be an IPv4 network or the id of a prefix list, got 'my laptop'",
            "write e.g. 203.0.113.7/32",
        ),
        (
            {"workers.instance_type": "m5.large", "master.instance_type": "c7g.large"},
            (
                "master.instance_type must have the architecture of workers.instance_type, got c7g.large (arm64) with "
                "m5.large (x86_64)"
            ),
            "take two types of one architecture, since all nodes start from one image",
        ),
        (
            {"workers.instance_type": "c7g.large", "software.image": NodeImage.deep_learning_ubuntu()},
            "software.image must have the architecture of the instance types, got x86_64 with c7g.large (arm64)",
            "pass architecture='arm64' to the image",
        ),
        (
            {"workers.instance_type": "trn1.32xlarge"},
            "software.image must be given for workers.instance_type trn1.32xlarge, got none",
            "the library knows no image for it: pass NodeImage.from_ssm_parameter or NodeImage.from_ami_id",
        ),
        (
            {"workers.instance_type": "p5.4800xlarge"},
            "workers.instance_type must be an instance type of the catalogue of 2026-08-02, got 'p5.4800xlarge'",
            (
                "take one of p5.48xlarge, p5.4xlarge, or describe a newer type with "
                "InstanceTypeFacts(name='p5.4800xlarge', …)"
            ),
        ),
    ],
)
def test_props_that_cannot_work_are_refused(props, rule, remedy):
    with pytest.raises(ValueError, match="must") as caught:
        plan(props)
    assert str(caught.value) == f"{rule}; {remedy}"


@given(COUNTS, COUNTS, COUNTS)
def test_capacities_are_in_order_or_refused(minimum, desired, maximum):
    try:
        found = Workers(min_capacity=minimum, desired_capacity=desired, max_capacity=maximum).capacity
    except ValueError:
        given_ = [value for value in (minimum, desired, maximum) if value is not None]
        assert given_ != sorted(given_)
    else:
        assert 0 <= found.minimum <= found.desired <= found.maximum
        assert minimum in {None, found.minimum}
        assert desired in {None, found.desired}
        assert maximum in {None, found.maximum}


def test_capacity_that_is_known_only_at_deployment_is_refused():
    with pytest.raises(ValueError, match=r"workers\.desired_capacity must be known at synth, got a token"):
        Workers(desired_capacity=Token.as_number({"Ref": "Workers"}))


@pytest.mark.fault(63)
@pytest.mark.parametrize("minutes", [10, 12, 55, 720])
def test_nodes_stop_at_least_a_minute_before_the_stack(minutes):
    assert 60 <= minutes * 60 - _count_formation_seconds(Duration.minutes(minutes)) <= 300


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"setup_timeout": Duration.minutes(2)},
            "setup_timeout must be whole seconds from 10 minutes to 12 hours, got 2 minutes; the default is 55 minutes",
        ),
        (
            {"setup_timeout": Duration.hours(2), "spending": Spending(stop_after=Duration.hours(1))},
            (
                "spending.stop_after must be more than setup_timeout (120 minutes), got 60 minutes; a cluster that "
                "stops while it forms fails its stack, so shorten setup_timeout or stop later"
            ),
        ),
        (
            {"key_pair": "mine$"},
            (
                "key_pair must be the name of an EC2 key pair of letters, digits and ._:/=+@-, got 'mine$'; pass "
                "ec2.KeyPair.from_key_pair_name for a name with others"
            ),
        ),
        ({"workers": {"instance_type": "m5.large"}}, "workers must be a Workers, got a dict; pass e.g. Workers(…)"),
    ],
)
def test_a_cluster_refuses_its_own_props_before_anything_is_made(make_stack, props, message):
    stack = make_stack()
    with pytest.raises(ValueError, match="must") as caught:
        TrainingCluster(stack, "Cluster", **props)
    assert str(caught.value) == message
    assert not stack.node.children


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda vpc, _: Network(vpc=vpc, cidr="10.0.0.0/16"),
            "network.cidr must be left out with network.vpc, got '10.0.0.0/16'; the VPC has its own addresses",
        ),
        *(
            (
                lambda _, subnet, prop=prop: Network(**{prop: subnet}),
                (
                    "network.vpc must be given with network.worker_subnet or network.master_subnet, got none; pass the "
                    "subnets' VPC"
                ),
            )
            for prop in ("worker_subnet", "master_subnet")
        ),
        (
            lambda *_: plan({"network.isolated": True, "master.ssh_peer": "203.0.113.7/32"}),
            "master.ssh_peer must be left out with network.isolated, got both; log in through Session Manager",
        ),
        (
            lambda *_: Storage(file_system="fs-01234567", throughput="bursting"),
            "storage.throughput must be left out with storage.file_system, got both; the file system has its own",
        ),
        (
            lambda *_: Lustre(deployment="scratch", throughput=125),
            (
                "lustre.throughput must be left out with deployment scratch, which has its own, got one; leave it out, "
                "or take a persistent one"
            ),
        ),
    ],
)
def test_choices_that_contradict_each_other_are_refused(imported, make, message):
    with pytest.raises(ValueError, match="must") as caught:
        make(*imported)
    assert str(caught.value) == message


@pytest.fixture(scope="module")
def imported(make_app):
    """Return a VPC, and a subnet in us-east-1b."""
    stack = cdk.Stack(make_app(), "Stack")
    vpc = ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"])
    subnet = ec2.Subnet.from_subnet_attributes(
        stack, "Subnet", subnet_id="subnet-01234567", availability_zone="us-east-1b"
    )
    return vpc, subnet


def test_the_zone_of_the_nodes_is_what_is_written_or_that_of_their_subnet(imported):
    vpc, subnet = imported
    assert Network().zone is None
    assert Network(availability_zone="us-east-1a").zone == "us-east-1a"
    assert Network(vpc=vpc, worker_subnet=subnet).zone == "us-east-1b"
    # That the two differ is refused when the network is made.
    assert Network(vpc=vpc, worker_subnet=subnet, availability_zone="us-east-1a").zone == "us-east-1a"


def test_storage_outlives_the_stack_if_the_clusters_key_encrypts_it_and_it_is_retained():
    assert Storage().has_own_file_system
    assert Storage(backup=False).outlives_stack
    others = Storage(file_system="fs-01234567")
    assert not others.has_own_file_system
    assert others.outlives_stack
    assert Storage(file_system="fs-01234567", backup=False, lustre=Lustre()).outlives_stack
    assert not Storage(file_system="fs-01234567", backup=False).outlives_stack


def test_the_master_is_like_a_worker_until_it_is_chosen():
    found = plan({"workers.instance_type": "m5.large", "workers.volume_size": 300, "workers.purchase": Purchase.spot()})
    master, worker = (found.roles[role] for role in (NodeRole.MASTER, NodeRole.WORKER))
    assert (master.facts, master.volume_size, master.max_capacity) == (worker.facts, 300, 1)
    assert (master.purchase.kind, worker.purchase.kind) == ("on-demand", "spot")
    assert plan({"workers.volume_size": 300, "master.volume_size": 200}).roles[NodeRole.MASTER].volume_size == 200


def test_peers_may_be_security_groups_prefix_lists_or_even_wide_networks_of_ones_own(make_stack):
    group = ec2.SecurityGroup.from_security_group_id(make_stack(), "Bastion", "sg-0123456789abcdef0")
    networks = (ec2.Peer.ipv4("203.0.113.0/24"), ec2.Peer.ipv4("10.0.0.0/8"), ec2.Peer.ipv6("fd00::/16"))
    for peer in (group, *networks, ec2.Peer.prefix_list("pl-0123abcd")):
        assert Master(ssh_peer=peer).peer is peer
    for text in ("pl-0123456789abcdef0", "203.0.113.0/24"):
        found = Master(ssh_peer=text).peer
        assert found is not None
        assert found.unique_id == text
    assert Master().peer is None


@pytest.mark.parametrize(
    "everyone",
    [
        ec2.Peer.any_ipv4(),
        ec2.Peer.any_ipv6(),
        ec2.Peer.ipv4("0.0.0.0/0"),
        ec2.Peer.ipv6("0:0::0/0"),
        # Two halves are everyone too.
        ec2.Peer.ipv4("128.0.0.0/1"),
        ec2.Peer.ipv6("2000::/3"),
        "203.0.113.7/0",
        "0.0.0.0/1",
        "64.0.0.0/2",
        "::/0",
    ],
    ids=lambda peer: peer if isinstance(peer, str) else peer.unique_id,
)
@pytest.mark.defect("D61")
def test_peer_that_is_everyone_is_refused_in_every_form(everyone):
    with pytest.raises(ValueError, match=r"master\.ssh_peer must not be everyone"):
        Master(ssh_peer=everyone)


@pytest.mark.parametrize("prop", ["workers.setup_script", "master.setup_script", "master.run_script"])
def test_script_must_be_a_file_that_names_its_interpreter(prop, tmp_path):
    with pytest.raises(ValueError, match=f"{prop} must be a file, got"):
        plan({prop: str(tmp_path / "absent.sh")})
    silent = tmp_path / "silent.sh"
    silent.write_text("echo hello\n")
    with pytest.raises(ValueError, match=f"{prop} must begin with #! and its interpreter"):
        plan({prop: str(silent)})


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (Duration.seconds(10), "10 seconds"),
        (Duration.seconds(1), "1 second"),
        (Duration.seconds(0), "0 seconds"),
        (Duration.seconds(90), "90 seconds"),
        (Duration.minutes(2), "2 minutes"),
        (Duration.hours(13), "780 minutes"),
        (Duration.minutes(1), "1 minute"),
        (Duration.millis(500), "500 milliseconds"),
    ],
)
def test_a_time_is_shown_in_whole_minutes_or_seconds(time, shown):
    with pytest.raises(ValueError, match=rf"^setup_timeout must be whole seconds from .*, got {shown}; the default"):
        check_prop("setup_timeout", time, SetupTimeout)
