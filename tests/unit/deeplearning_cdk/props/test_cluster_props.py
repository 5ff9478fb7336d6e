"""Wrong props are refused with the prop, the rule, the value and a way out."""

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Aws, Duration, Token
from aws_cdk import aws_ec2 as ec2
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import JobEnvironment, NodeImage
from deeplearning_cdk.cluster_plan import plan_cluster
from deeplearning_cdk.cluster_props import check_capacity, count_setup_seconds, make_peer

HAS_PACKAGES = NodeImage.ubuntu(has_packages=True)
COUNTS = st.one_of(st.none(), st.integers(min_value=0, max_value=50))


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"worker_min_capacity": 5, "worker_desired_capacity": 4},
            (
                "worker_min_capacity must not exceed worker_desired_capacity, got 5 > 4; "
                "lower it or raise worker_desired_capacity"
            ),
        ),
        (
            {"worker_desired_capacity": 5, "worker_max_capacity": 4},
            (
                "worker_desired_capacity must not exceed worker_max_capacity, got 5 > 4; "
                "lower it or raise worker_max_capacity"
            ),
        ),
        (
            {"worker_min_capacity": 3, "worker_max_capacity": 2},
            (
                "worker_desired_capacity must not exceed worker_max_capacity, got 3 > 2; "
                "lower it or raise worker_max_capacity"
            ),
        ),
        (
            {"worker_min_capacity": -1},
            "worker_min_capacity must not be negative, got -1; pass 0 or more",
        ),
        (
            {"worker_min_capacity": "2"},
            "worker_min_capacity must be a whole number, got '2'; pass 0 or more",
        ),
        (
            {"worker_max_capacity": 65532},
            "worker_max_capacity must be from 0 to 65531, got 65532; all workers live in one subnet, so take fewer",
        ),
        (
            {"vpc_cidr": "10.0.0.0/33"},
            "vpc_cidr must be an IPv4 network with its host bits 0, got '10.0.0.0/33'; write e.g. 10.0.0.0/16",
        ),
        (
            {"vpc_cidr": "10.0.0.1/16"},
            "vpc_cidr must be an IPv4 network with its host bits 0, got '10.0.0.1/16'; write e.g. 10.0.0.0/16",
        ),
        (
            {"vpc_cidr": "10.0.0.0/8"},
            "vpc_cidr must be from /16 to /26, got '10.0.0.0/8'; a VPC takes no more, and two subnets must fit",
        ),
        (
            {"worker_desired_capacity": 40, "vpc_cidr": "10.0.0.0/26"},
            (
                "worker_max_capacity must not exceed the 25 addresses that the private subnet of 10.0.0.0/26 has for "
                "workers, got 40; lower worker_max_capacity or worker_desired_capacity, or take a larger subnet"
            ),
        ),
        (
            {
                "worker_desired_capacity": 23,
                "vpc_cidr": "10.0.0.0/26",
                "isolated": True,
                "efa": False,
                "image": HAS_PACKAGES,
                "environment": JobEnvironment.none(),
            },
            (
                "worker_max_capacity must not exceed the 19 addresses that the private subnet of 10.0.0.0/26 has for "
                "workers, got 23; lower worker_max_capacity or worker_desired_capacity, or take a larger subnet"
            ),
        ),
        (
            {"mount_point": "efs"},
            (
                "mount_point must be an absolute path of at most 128 letters, digits and ._- without '..' or a last "
                "slash, got 'efs'; write e.g. /efs or /mnt/efs"
            ),
        ),
        (
            {"mount_point": "/usr"},
            (
                "mount_point must not be or lie in a folder of the system, nor be a home, got '/usr'; "
                "write e.g. /efs or /mnt/efs"
            ),
        ),
        (
            {"file_system_id": "fs-123"},
            (
                "file_system_id must be fs- and 8 or 17 hex digits, got 'fs-123'; "
                "list yours with `aws efs describe-file-systems`"
            ),
        ),
        (
            {"setup_timeout": Duration.minutes(2)},
            (
                "setup_timeout must be whole seconds from 10 minutes to 12 hours, got 2 minutes; "
                "the default is 55 minutes"
            ),
        ),
        (
            {"ssh_peer": "0.0.0.0/0"},
            "ssh_peer must not be everyone, got '0.0.0.0/0'; name your own network, e.g. 203.0.113.7/32",
        ),
        (
            {"ssh_peer": "my laptop"},
            ("ssh_peer must be an IPv4 network or the id of a prefix list, got 'my laptop'; write e.g. 203.0.113.7/32"),
        ),
        (
            {"worker_instance_type": "m5.large", "master_instance_type": "c7g.large"},
            (
                "master_instance_type must have the architecture of worker_instance_type, got c7g.large (arm64) with "
                "m5.large (x86_64); take two types of one architecture, since all nodes start from one image"
            ),
        ),
        (
            {"worker_instance_type": "c7g.large", "image": NodeImage.deep_learning_ubuntu()},
            (
                "image must have the architecture of the instance types, got x86_64 with c7g.large (arm64); "
                "pass architecture='arm64' to the image"
            ),
        ),
        (
            {"worker_instance_type": "trn1.32xlarge"},
            (
                "image must be given for worker_instance_type trn1.32xlarge, got none; no image is known "
                "here that drives it: pass NodeImage.from_ssm_parameter or NodeImage.from_ami_id"
            ),
        ),
        (
            {"worker_instance_type": "p5.4800xlarge"},
            (
                "worker_instance_type must be an instance type of the catalogue of 2026-08-02, got 'p5.4800xlarge'; "
                "take one of p5.48xlarge, p5.4xlarge, or describe a newer type with "
                "InstanceTypeFacts(name='p5.4800xlarge', …)"
            ),
        ),
    ],
)
def test_props_that_cannot_work_are_refused(props: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        plan_cluster(**props)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "mount_point",
    ["", "/", "/efs/", "//efs", "/efs/../etc", "/efs data", "/efs\nSETTINGS\nreboot", "/efs'", "/efs$(id)", "/.hidden"],
)
def test_mount_point_that_could_leave_its_place_in_user_data_is_refused(mount_point: str) -> None:
    with pytest.raises(ValueError, match="mount_point must"):
        plan_cluster(mount_point=mount_point)


@pytest.mark.parametrize("mount_point", ["/efs", "/mnt/efs", "/home/ubuntu/data-1", "/srv/a.b_c"])
def test_clean_mount_points_are_taken(mount_point: str) -> None:
    plan_cluster(mount_point=mount_point)


@given(COUNTS, COUNTS, COUNTS)
def test_capacities_are_in_order_or_refused(minimum: int | None, desired: int | None, maximum: int | None) -> None:
    try:
        found = check_capacity(minimum, desired, maximum)
    except ValueError:
        given_ = [value for value in (minimum, desired, maximum) if value is not None]
        assert given_ != sorted(given_)
    else:
        assert 0 <= found.minimum <= found.desired <= found.maximum
        assert minimum in {None, found.minimum}
        assert desired in {None, found.desired}
        assert maximum in {None, found.maximum}


def test_capacity_that_is_known_only_at_deployment_is_refused() -> None:
    with pytest.raises(ValueError, match="worker_desired_capacity must be known at synth, got a token"):
        plan_cluster(worker_desired_capacity=Token.as_number({"Ref": "Workers"}))


@pytest.mark.fault(63)
@pytest.mark.parametrize("minutes", [10, 12, 55, 720])
def test_nodes_stop_at_least_a_minute_before_the_stack(minutes: int) -> None:
    assert 60 <= minutes * 60 - count_setup_seconds(Duration.minutes(minutes)) <= 300


def test_default_setup_timeout_is_55_minutes() -> None:
    assert plan_cluster().setup_timeout.to_minutes() == 55


def test_peers_may_be_objects_prefix_lists_or_networks() -> None:
    peer = ec2.Peer.ipv4("203.0.113.0/24")
    assert make_peer(peer) is peer
    assert make_peer("pl-0123456789abcdef0").unique_id == "pl-0123456789abcdef0"
    assert make_peer("203.0.113.0/24").unique_id == "203.0.113.0/24"
    assert make_peer(None) is None


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
def test_d61_peer_that_is_everyone_is_refused_in_every_form(everyone: str | ec2.IPeer) -> None:
    with pytest.raises(ValueError, match="ssh_peer must not be everyone"):
        plan_cluster(ssh_peer=everyone)


def test_peer_may_be_a_security_group_or_a_wide_network_of_ones_own(make_stack: Any) -> None:
    group = ec2.SecurityGroup.from_security_group_id(make_stack(), "Bastion", "sg-0123456789abcdef0")
    for peer in (group, ec2.Peer.ipv4("10.0.0.0/8"), ec2.Peer.ipv6("fd00::/16"), ec2.Peer.prefix_list("pl-0123abcd")):
        assert make_peer(peer) is peer


def test_file_system_id_that_is_known_only_at_deployment_is_taken() -> None:
    plan_cluster(file_system_id=Aws.NO_VALUE)


@pytest.mark.parametrize("prop", ["setup_script", "run_script"])
def test_script_must_be_a_file_that_says_what_runs_it(prop: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{prop} must be a file, got"):
        plan_cluster(**{prop: str(tmp_path / "absent.sh")})
    silent = tmp_path / "silent.sh"
    silent.write_text("echo hello\n")
    with pytest.raises(ValueError, match=f"{prop} must say what runs it"):
        plan_cluster(**{prop: str(silent)})


def test_key_pair_may_be_an_object(make_stack: Any) -> None:
    pair = ec2.KeyPair.from_key_pair_name(make_stack(), "Pair", "mine")
    assert plan_cluster(key_pair=pair).key_name == "mine"
