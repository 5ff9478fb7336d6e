"""Subnets fit their VPC and hold their nodes, and what cannot work on AWS is refused at synth."""

import ipaddress
from collections.abc import Callable

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs

from deeplearning_cdk import LustreFileSystem, Network, SharedFileSystem, Storage, TrainingCluster, Workers
from deeplearning_cdk.emr.training import EmrTraining
from deeplearning_cdk.network.addresses import VpcCidr, check_addresses, plan_subnets, usable_addresses
from deeplearning_cdk.props.check import check_prop
from deeplearning_cdk.storage.cluster_storage import ClusterStorage
from tests.unit.deeplearning_cdk.network.test_cluster_network import ZONE, _choose, _import_vpc

Make = Callable[..., cdk.Stack]
PUBLIC, PRIVATE, ISOLATED = (
    ec2.SubnetConfiguration(name=name, subnet_type=kind)
    for name, kind in (
        ("Public", ec2.SubnetType.PUBLIC),
        ("Private", ec2.SubnetType.PRIVATE_WITH_EGRESS),
        ("Isolated", ec2.SubnetType.PRIVATE_ISOLATED),
    )
)


def _make_vpc(scope, *tiers, name="Mine", nat_gateways=None):
    return ec2.Vpc(
        scope,
        name,
        max_azs=1,
        nat_gateways=nat_gateways,
        subnet_configuration=list(tiers) or None,
        restrict_default_security_group=False,
    )


def _find_problems(network):
    return [problem for part in network.node.find_all() for problem in part.node.validate()]


def _isolated_only(stack):
    return {"vpc": _make_vpc(stack, ISOLATED)}


def _no_nat_gateways(stack):
    return {"vpc": _make_vpc(stack, nat_gateways=0)}


def _imported(stack):
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Mine", vpc_id="vpc-1", availability_zones=[ZONE], isolated_subnet_ids=["subnet-1"]
    )
    return {"vpc": vpc}


def _explicit_worker(stack):
    vpc = _make_vpc(stack, PUBLIC, PRIVATE, ISOLATED)
    return {"vpc": vpc, "worker_subnet": vpc.isolated_subnets[0]}


def _worker_by_id(stack):
    subnet = ec2.Subnet.from_subnet_attributes(stack, "Workers", subnet_id="subnet-1", availability_zone=ZONE)
    return {**_imported(stack), "worker_subnet": subnet}


def _explicit_master(stack):
    vpc = _make_vpc(stack, PUBLIC, PRIVATE, ISOLATED)
    return {"vpc": vpc, "master_subnet": vpc.isolated_subnets[0]}


@pytest.mark.parametrize(
    ("make", "prop"),
    [
        (_isolated_only, "worker_subnet"),
        (_no_nat_gateways, "worker_subnet"),
        (_imported, "worker_subnet"),
        (_explicit_worker, "worker_subnet"),
        (_worker_by_id, "worker_subnet"),
        (_explicit_master, "master_subnet"),
    ],
)
def test_nodes_without_a_route_to_the_internet_are_refused_unless_they_are_isolated(make_stack, make, prop):
    stack = make_stack()
    said = rf"^network\.{prop} must have a route to the Internet, got an isolated one \(.*\); pass network\.isolat"
    with pytest.raises(ValueError, match=said):
        _choose(stack, **make(stack))


def test_isolated_subnets_are_taken_with_isolated(make_stack):
    stack = make_stack()
    vpc = _make_vpc(stack, ISOLATED)
    assert _choose(stack, vpc=vpc, isolated=True).worker_subnet.subnet_id == vpc.isolated_subnets[0].subnet_id


@pytest.mark.parametrize("platform", [TrainingCluster, EmrTraining])
def test_workers_in_a_public_subnet_are_refused_because_they_get_no_public_address(make_stack, platform):
    stack = make_stack()
    vpc = _make_vpc(stack, PUBLIC, PRIVATE)
    said = r"^network\.worker_subnet must have a route to the Internet for nodes without a public address, got the pub"
    with pytest.raises(ValueError, match=said):
        platform(stack, "Cluster", network=Network(vpc=vpc, worker_subnet=vpc.public_subnets[0]))


def test_a_master_in_a_public_subnet_is_taken_because_it_gets_a_public_address(make_stack):
    stack = make_stack()
    vpc = _make_vpc(stack, PUBLIC, PRIVATE)
    network = _choose(stack, vpc=vpc, master_subnet=vpc.public_subnets[0])
    assert network.has_public_master
    assert not _find_problems(network)


def test_a_public_subnet_that_no_list_of_the_vpc_has_is_known_by_its_route(make_stack):
    stack = make_stack()
    vpc = _make_vpc(stack, PUBLIC, PRIVATE)
    subnet = ec2.PublicSubnet(
        stack, "Further", vpc_id=vpc.vpc_id, availability_zone=vpc.availability_zones[0], cidr_block="10.0.255.0/24"
    )
    subnet.add_default_internet_route(str(vpc.internet_gateway_id), vpc)
    with pytest.raises(ValueError, match="nodes without a public address, got the public Stack/Further"):
        _choose(stack, vpc=vpc, worker_subnet=subnet)


def test_a_private_subnet_without_a_default_route_is_refused_by_the_synthesis(make_stack):
    stack = make_stack()
    vpc = _make_vpc(stack, PUBLIC, PRIVATE, nat_gateways=0)
    vpc.private_subnets[0].add_route(
        "Peer",
        router_id="pcx-1",
        router_type=ec2.RouterType.VPC_PEERING_CONNECTION,
        destination_cidr_block="10.9.0.0/16",
    )
    (problem,) = _find_problems(_choose(stack, vpc=vpc))
    assert problem.startswith("network.worker_subnet must have a route to the Internet, got Stack/Mine/PrivateSubnet1 ")


@pytest.mark.parametrize("tier", [PRIVATE, ISOLATED])
def test_a_route_through_a_transit_gateway_is_a_route_to_the_internet(make_stack, tier):
    stack = make_stack()
    vpc = _make_vpc(stack, tier, nat_gateways=0)
    subnets = [*vpc.private_subnets, *vpc.isolated_subnets]

    def add_route():
        table = subnets[0].route_table.route_table_id
        ec2.CfnRoute(
            stack, "Egress", route_table_id=table, destination_cidr_block="0.0.0.0/0", transit_gateway_id="tgw-1"
        )

    if tier is ISOLATED:
        add_route()
    network = _choose(stack, vpc=vpc)
    if tier is PRIVATE:
        add_route()
    assert not _find_problems(network)


def test_subnets_whose_routes_the_app_does_not_know_are_taken(make_stack):
    stack = make_stack(region="us-east-1")
    further = ec2.Subnet.from_subnet_attributes(stack, "Further", subnet_id="subnet-9", availability_zone=ZONE)
    network = _choose(stack, vpc=_import_vpc(stack), worker_subnet=further)
    assert network.worker_subnet is further
    assert not _find_problems(network)


def test_a_vpc_that_the_cdk_has_yet_to_look_up_is_taken():
    app = cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Stack", env=cdk.Environment(account="111122223333", region="us-east-1"))
    named, looked_up = _import_vpc(stack), ec2.Vpc.from_lookup(stack, "LookedUp", vpc_id="vpc-0123456789abcdef1")
    # The first run knows no list of the account; the second judges the real ones.
    subnets = (looked_up.isolated_subnets[0], looked_up.public_subnets[0])
    for vpc, subnet in (*((looked_up, each) for each in subnets), (named, looked_up.private_subnets[0])):
        scope = cdk.Stack(stack, f"With{vpc.node.id}{subnet.node.id}")
        assert _choose(scope, vpc=vpc, worker_subnet=subnet).vpc is vpc


def _two_made(stack):
    return _make_vpc(stack, PUBLIC, PRIVATE), _make_vpc(stack, PUBLIC, PRIVATE, name="Other")


def _two_imported(stack):
    other = ec2.Vpc.from_vpc_attributes(
        stack, "Other", vpc_id="vpc-2", availability_zones=[ZONE], private_subnet_ids=["subnet-2"]
    )
    return _import_vpc(stack), other


def _two_stacks(stack):
    # Both have the same logical id.
    elsewhere = cdk.Stack(stack.node.root, "Elsewhere")
    return _make_vpc(stack, PUBLIC, PRIVATE), _make_vpc(elsewhere, PUBLIC, PRIVATE)


@pytest.mark.parametrize("prop", ["worker_subnet", "master_subnet"])
@pytest.mark.parametrize("make", [_two_made, _two_imported, _two_stacks])
def test_a_subnet_of_another_vpc_is_refused_with_both_paths(make_stack, make, prop):
    stack = make_stack()
    vpc, other = make(stack)
    with pytest.raises(ValueError, match=rf"^network\.{prop} must be in network\.vpc ") as caught:
        _choose(stack, vpc=vpc, **{prop: other.private_subnets[0]})
    assert f"network.vpc {vpc.node.path}, got " in str(caught.value)
    assert f" of {other.node.path}; pass one of {vpc.node.path}" in str(caught.value)


def test_a_subnet_of_the_vpc_beside_its_lists_is_taken(make_stack):
    stack = make_stack()
    vpc = _make_vpc(stack, PUBLIC, PRIVATE)
    subnet = ec2.PrivateSubnet(
        stack, "Further", vpc_id=vpc.vpc_id, availability_zone=vpc.availability_zones[0], cidr_block="10.0.255.0/24"
    )
    (problem,) = _find_problems(_choose(stack, vpc=vpc, worker_subnet=subnet))
    assert "got Stack/Further without a default route" in problem
    subnet.add_default_nat_route("nat-1")
    assert not _find_problems(stack.node.find_child("Network"))


def test_a_security_group_of_another_vpc_is_refused(make_stack):
    stack = make_stack()
    vpc, other = _two_made(stack)
    group = ec2.SecurityGroup(stack, "Group", vpc=other)
    said = (
        r"^network\.security_groups\[0\] must be in network\.vpc Stack/Mine, got Stack/Group of Stack/Other; pass one"
    )
    with pytest.raises(ValueError, match=said):
        _choose(stack, vpc=vpc, security_groups=[group])
    with pytest.raises(ValueError, match=r"^network\.vpc must be given with network\.security_groups, got none"):
        Network(security_groups=[group])


def test_a_file_system_of_another_vpc_is_refused_even_with_the_same_logical_ids(make_stack):
    stack = make_stack()
    vpc, other = _two_stacks(stack)
    elsewhere = cdk.Stack.of(other)
    shared = SharedFileSystem(elsewhere, "Shared", vpc=other, subnet=other.private_subnets[0])
    given = efs.FileSystem(elsewhere, "Given", vpc=other)
    lustre = LustreFileSystem(elsewhere, "Lustre", vpc=other)
    network = _choose(stack, vpc=vpc)
    for name, storage in (
        ("file_system", Storage(file_system=shared)),
        ("file_system", Storage(file_system=given)),
        ("lustre", Storage(lustre=lustre)),
    ):
        scope = cdk.Stack(stack, f"{name}{id(storage)}")
        with pytest.raises(ValueError, match=rf"^network\.vpc must be the VPC of storage\.{name}, got "):
            ClusterStorage(scope, storage, mode="nfs4", network=network, state_table=None, encryption_key=_key(scope))


def _key(scope):
    return cdk.aws_kms.Key.from_key_arn(scope, "Key", "arn:aws:kms:us-east-1:111122223333:key/a")


@pytest.mark.parametrize("kind", [SharedFileSystem, LustreFileSystem])
def test_a_file_system_in_a_subnet_of_another_vpc_is_refused(make_stack, kind):
    stack = make_stack()
    vpc, other = _two_made(stack)
    with pytest.raises(ValueError, match=r"^subnet must be in vpc Stack/Mine, got Stack/Other/PrivateSubnet1 of "):
        kind(stack, "Shared", vpc=vpc, subnet=other.private_subnets[0])


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        ({"account": "111122223333", "region": "eu-west-1"}, "region"),
        ({"account": "444455556666", "region": "us-east-1"}, "account"),
    ],
)
def test_a_vpc_of_a_stack_in_another_region_or_account_is_refused(make_app, environment, kind):
    app = make_app()
    vpc = _make_vpc(cdk.Stack(app, "Base", env=cdk.Environment(**environment)), PUBLIC, PRIVATE)
    here = cdk.Environment(account="111122223333", region="us-east-1")
    stack = cdk.Stack(app, "Stack", env=here, cross_region_references=True)
    said = (
        rf"^network\.vpc must be in the {kind} of the cluster's stack Stack, .*, got Base/Mine in {environment[kind]}; "
    )
    with pytest.raises(ValueError, match=said):
        TrainingCluster(stack, "Cluster", workers=Workers(instance_type="m5.large"), network=Network(vpc=vpc))


def test_a_vpc_is_taken_where_one_of_the_environments_is_known_at_deployment_only(make_app):
    app = make_app()
    vpc = _import_vpc(cdk.Stack(app, "Base", env=cdk.Environment(region="us-east-1")))
    assert _choose(cdk.Stack(app, "Stack"), vpc=vpc).vpc is vpc


# --- Addresses ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", range(16, 27))
def test_both_tiers_fit_and_the_nodes_get_the_larger(prefix):
    sizes = plan_subnets(f"10.0.0.0/{prefix}")
    whole = ipaddress.IPv4Network(f"10.0.0.0/{prefix}").num_addresses
    private, public = 2 ** (32 - sizes.private_prefix), 2 ** (32 - sizes.public_prefix)
    assert private + public <= whole
    assert public <= private
    assert sizes.public_prefix <= 28


@pytest.mark.parametrize("cidr", ["10.0.0.0/15", "10.0.0.0/27", "10.0.0.0", "10.0.0.0/x", "::/64", ""])
def test_other_networks_are_refused(cidr):
    with pytest.raises(ValueError, match=r"network\.cidr must be"):
        check_prop("network.cidr", cidr, VpcCidr)


def test_five_addresses_of_a_subnet_are_not_usable():
    assert usable_addresses(27) == 27


def test_master_mount_target_and_endpoints_take_addresses_too():
    check_addresses("it", 27, workers=25, has_master=True, isolated=False)
    check_addresses("it", 27, workers=26, has_master=False, isolated=False)
    check_addresses("it", 27, workers=19, has_master=True, isolated=True)
    for workers, has_master, isolated in ((26, True, False), (27, False, False), (20, True, True)):
        with pytest.raises(ValueError, match=f"got {workers}; lower"):
            check_addresses("it", 27, workers=workers, has_master=has_master, isolated=isolated)
