"""Networks of nodes: new VPCs, the user's own, isolated ones, public masters."""

import re
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import JobEnvironment, Network, NodeImage, TrainingCluster
from deeplearning_cdk.network.addresses import check_subnet
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import WITH_LUSTRE, plan, props_of
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

ZONE = "us-east-1a"
CPU: dict[str, Any] = {"workers.instance_type": "m5.large"}
ISOLATED = VARIANTS["network.isolated"]


def _import_vpc(scope, *, cidr=None, zones=(ZONE,)):
    return ec2.Vpc.from_vpc_attributes(
        scope,
        "Mine",
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=list(zones),
        private_subnet_ids=[f"subnet-0{index}" for index in range(len(zones))],
        private_subnet_route_table_ids=[f"rtb-0{index}" for index in range(len(zones))],
        private_subnet_ipv4_cidr_blocks=[cidr] * len(zones) if cidr else None,
        public_subnet_ids=[f"subnet-1{index}" for index in range(len(zones))],
        public_subnet_route_table_ids=[f"rtb-1{index}" for index in range(len(zones))],
    )


def _interfaces(synthesis, role):
    return list(synthesis.launch_data(role)["NetworkInterfaces"])


def _name(value):
    """Return the short name of a security group by its reference."""
    name: str = value["Fn::GetAtt"][0] if isinstance(value, dict) else value
    return next((part for part in ("Nodes", "FileSystem", "Endpoints", "Lustre") if part in name), name)


def _ingress(synthesis):
    """Return every rule that lets anyone in: group, peer, protocol and ports."""
    found = {
        (_name(rule["GroupId"]), _name(rule.get("SourceSecurityGroupId") or rule.get("CidrIp")), *_ports(rule))
        for rule in (entry["Properties"] for entry in synthesis.of_type("AWS::EC2::SecurityGroupIngress").values())
    }
    for name, group in synthesis.of_type("AWS::EC2::SecurityGroup").items():
        for rule in group["Properties"].get("SecurityGroupIngress", []):
            found.add(("Master" if "MasterSecurityGroup" in name else name, rule["CidrIp"], *_ports(rule)))
    return found


def _ports(rule):
    return rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort")


AMONG_NODES = ("Nodes", "Nodes", "-1", None, None)
NFS_FROM_NODES = ("FileSystem", "Nodes", "tcp", 2049, 2049)


LUSTRE = {
    (*pair, "tcp", *ports)
    for pair in (("Lustre", "Lustre"), ("Lustre", "Nodes"), ("Nodes", "Lustre"))
    for ports in ((988, 988), (1018, 1023))
}


@pytest.mark.parametrize(
    ("props", "more"),
    [
        ({}, set()),
        (VARIANTS["amazon-linux"], set()),
        ({"storage.file_system": "fs-0123456789abcdef0", **CPU}, set()),
        (ISOLATED, {("Endpoints", "Nodes", "tcp", 443, 443)}),
        (VARIANTS["public-master"], {("Master", "203.0.113.7/32", "tcp", 22, 22)}),
        (WITH_LUSTRE, LUSTRE),
    ],
    ids=["default", "amazon-linux", "existing-file-system", "isolated", "ssh-peer", "lustre"],
)
@pytest.mark.defect("D59", "D61")
def test_the_security_groups_of_a_cluster_have_these_ingress_rules_alone(synthesize, props, more):
    assert _ingress(synthesize(**props)) == {AMONG_NODES, NFS_FROM_NODES} | more


def test_ssh_peer_puts_the_master_alone_into_the_public_subnet(synthesize):
    synthesis = synthesize(**VARIANTS["public-master"])
    (subnet,) = synthesis.group(NodeRole.MASTER)["Properties"]["VPCZoneIdentifier"]
    assert "PublicSubnet" in subnet["Ref"]
    (interface,) = _interfaces(synthesis, NodeRole.MASTER)
    assert interface["AssociatePublicIpAddress"] is True
    assert _interfaces(synthesis, NodeRole.WORKER)[0]["AssociatePublicIpAddress"] is False
    assert synthesis.launch_data(NodeRole.MASTER)["KeyName"] == "mine"


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"workers.instance_type": "p5.48xlarge", "master.ssh_peer": "203.0.113.7/32"},
            "master.instance_type must have one network card in a public subnet, got p5.48xlarge with 32; leave ",
        ),
        (
            {"workers.max_capacity": 40, "network.cidr": "10.0.0.0/26", **CPU},
            "the 25 addresses that network.worker_subnet 10.0.0.0/27 has for workers, got 40; lower workers.max_",
        ),
        (
            {"workers.max_capacity": 20, "network.cidr": "10.0.0.0/26", **ISOLATED},
            "the 19 addresses that network.worker_subnet 10.0.0.0/27 has for workers, got 20; lower workers.max_",
        ),
    ],
    ids=["several cards", "too many", "too many beside endpoints"],
)
def test_nodes_that_their_subnets_cannot_have_are_refused(make_stack, props, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        TrainingCluster(make_stack(), "Cluster", **props_of(props))


def test_isolated_vpc_has_no_way_out(synthesize):
    synthesis = synthesize(**ISOLATED)
    for kind in ("NatGateway", "InternetGateway", "Route", "EIP"):
        assert not synthesis.of_type(f"AWS::EC2::{kind}")
    endpoints = [entry["Properties"] for entry in synthesis.of_type("AWS::EC2::VPCEndpoint").values()]
    assert all(entry["PrivateDnsEnabled"] for entry in endpoints if entry["VpcEndpointType"] == "Interface")
    assert synthesis.warnings == []


OWN_PRINCIPALS = {
    "Action": "*",
    "Condition": {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}},
    "Effect": "Allow",
    "Principal": "*",
    "Resource": "*",
}
"""Calls that every endpoint admits: all that the roles of this account may make, and none with other credentials."""


def _bucket(name):
    return {"Fn::Sub": f"arn:${{AWS::Partition}}:s3:::{name}/*"}


def _allow(actions, resources):
    return {"Action": actions, "Effect": "Allow", "Principal": "*", "Resource": resources}


SIGNAL = _allow("s3:PutObject", _bucket("cloudformation-waitcondition-${AWS::Region}"))
"""The stack's wait is told by a URL that CloudFormation has signed."""


def _endpoint_statements(synthesis):
    endpoints = synthesis.of_type("AWS::EC2::VPCEndpoint").values()
    return {
        str(entry["Properties"]["ServiceName"]).rpartition(".")[2].rstrip("]}'"): entry["Properties"]["PolicyDocument"][
            "Statement"
        ]
        for entry in endpoints
    }


@pytest.mark.defect("D57")
def test_endpoints_of_a_new_vpc_let_anyone_read_public_objects_and_only_this_account_do_more(synthesize):
    read = _allow(["s3:GetObject", "s3:GetObjectVersion", "s3:ListBucket"], "*")
    assert _endpoint_statements(synthesize()) == {
        "dynamodb": [OWN_PRINCIPALS],
        "s3": [OWN_PRINCIPALS, read, SIGNAL],
    }


def test_endpoints_of_isolated_nodes_let_only_this_account_in_but_for_packages_layers_and_the_signal(synthesize):
    statements = _endpoint_statements(synthesize(**ISOLATED))
    public = [
        _bucket("amazonlinux-2-repos-${AWS::Region}"),
        _bucket("al2023-repos-${AWS::Region}-de612dc2"),
        _bucket("prod-${AWS::Region}-starport-layer-bucket"),
    ]
    # CDK sorts the resources of a statement that it minimizes.
    public.sort(key=lambda bucket: bucket["Fn::Sub"])
    assert statements.pop("s3") == [OWN_PRINCIPALS, _allow("s3:GetObject", public), SIGNAL]
    assert statements == {
        name: [OWN_PRINCIPALS] for name in ("autoscaling", "dynamodb", "events", "logs", "sqs", "ssm", "ssmmessages")
    }


@pytest.mark.parametrize(
    ("props", "lacks"),
    [
        ({"workers.instance_type": "m5.large"}, "mount.nfs4"),
        ({"workers.instance_type": "g5.12xlarge"}, "mount.nfs4"),
        ({"workers.instance_type": "p3dn.24xlarge"}, "mount.nfs4, nvidia-smi"),
        ({"software.image": NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu")}, "mount.nfs4"),
    ],
    ids=["stock ubuntu", "deep learning", "driver at boot", "own image"],
)
def test_isolated_nodes_that_would_install_packages_are_refused(props, lacks):
    expected = re.escape(
        f"software.image must already have {lacks} with network.isolated, got one that installs what is missing at "
        "boot; "
    )
    with pytest.raises(ValueError, match=expected + "pass has_packages=True to the image if it has"):
        plan({"network.isolated": True, **props})


@pytest.mark.parametrize(
    "image",
    [
        NodeImage.deep_learning_ubuntu(has_packages=True),
        NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu", has_packages=True),
        NodeImage.from_ssm_parameter("/team/image", login_user="ubuntu"),
        # Its packages come through the endpoint of S3, where Amazon Linux has its repositories.
        NodeImage.deep_learning_amazon_linux(),
    ],
    ids=["deep learning", "own id", "own parameter", "amazon linux"],
)
def test_isolated_nodes_may_start_from_an_image_that_has_its_packages_or_reaches_them(image):
    props = {"software.image": image, "workers.instance_type": "g5.12xlarge"}
    planned = plan({"network.isolated": True, "software.environment": JobEnvironment.none(), **props})
    assert planned.image is image


# --- Own VPC ------------------------------------------------------------------------------------------


def _choose(stack, *, public_master=False, **values):
    return ClusterNetwork(stack, "Network", Network(**values), public_master=public_master)


def test_own_vpc_is_taken_as_it_is_and_nodes_live_in_the_wanted_zone(make_stack, read_stack):
    stack = make_stack()
    vpc = _import_vpc(stack, zones=("us-east-1a", "us-east-1b"))
    props = {"network.vpc": vpc, "network.availability_zone": "us-east-1b", "master.ssh_peer": "203.0.113.0/24", **CPU}
    TrainingCluster(stack, "Cluster", **props_of(props))
    synthesis = read_stack(stack)
    for kind in ("VPC", "Subnet", "NatGateway", "VPCEndpoint", "Route", "FlowLog"):
        assert not synthesis.of_type(f"AWS::EC2::{kind}")
    assert synthesis.group(NodeRole.WORKER)["Properties"]["VPCZoneIdentifier"] == ["subnet-01"]
    assert synthesis.group(NodeRole.MASTER)["Properties"]["VPCZoneIdentifier"] == ["subnet-11"]
    assert synthesis.only("AWS::EFS::MountTarget")["SubnetId"] == "subnet-01"


def test_nodes_live_in_the_first_private_subnet_or_in_the_wanted_zone_of_a_new_vpc(make_stack):
    stack = make_stack()
    network = _choose(stack, vpc=_import_vpc(stack, zones=("us-east-1a", "us-east-1b")))
    assert (network.worker_subnet.subnet_id, network.master_subnet.subnet_id) == ("subnet-00", "subnet-00")
    assert (network.zone, network.is_new, network.has_public_master) == ("us-east-1a", False, False)
    network = _choose(make_stack(), availability_zone=ZONE)
    assert (network.zone, network.worker_subnet.availability_zone, network.is_new) == (ZONE, ZONE, True)


def test_own_isolated_vpc_gets_the_endpoints(make_stack, read_stack):
    stack = make_stack()
    _choose(stack, vpc=_import_vpc(stack), isolated=True)
    endpoints = [entry["Properties"] for entry in read_stack(stack).of_type("AWS::EC2::VPCEndpoint").values()]
    assert len(endpoints) == 8
    assert [e["RouteTableIds"] for e in endpoints if e["VpcEndpointType"] == "Gateway"] == [["rtb-00"], ["rtb-00"]]


def test_vpc_of_the_same_app_is_ready_before_the_nodes(make_stack, read_stack):
    stack = make_stack()
    vpc = ec2.Vpc(stack, "Mine", max_azs=2, nat_gateways=1, restrict_default_security_group=False)
    TrainingCluster(stack, "Cluster", **props_of({"network.vpc": vpc, "master.ssh_peer": "203.0.113.0/24", **CPU}))
    synthesis = read_stack(stack)
    for role in NodeRole:
        assert set(synthesis.of_type("AWS::EC2::Route")) <= set(synthesis.group(role)["DependsOn"])
    zones = {
        str(entry["Properties"]["AvailabilityZone"])
        for name, entry in synthesis.of_type("AWS::EC2::Subnet").items()
        if {"Ref": name} in [s for role in NodeRole for s in synthesis.group(role)["Properties"]["VPCZoneIdentifier"]]
    }
    assert len(zones) == 1


def _two_zones(stack):
    vpc = _import_vpc(stack, zones=("us-east-1a", "us-east-1b"))
    return {"vpc": vpc, "master_subnet": vpc.private_subnets[1]}


def _two_positions(stack):
    vpc = ec2.Vpc(cdk.Stack(stack, "Nowhere"), "Mine", max_azs=2, restrict_default_security_group=False)
    return {"vpc": vpc, "master_subnet": vpc.private_subnets[1]}


def _beside_the_wanted_one(stack):
    nameless = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-2a")
    return {**_two_zones(stack), "availability_zone": ZONE, "worker_subnet": nameless}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_two_zones, r"one availability zone, got \['us-east-1a', 'us-east-1b'\]"),
        # Only the positions of the zones are known.
        (_two_positions, "one availability zone"),
        (_beside_the_wanted_one, "must lie in one availability zone"),
        (
            lambda stack: {"vpc": _import_vpc(stack), "availability_zone": "us-east-1z"},
            r"network\.worker_subnet must be given when network\.vpc has no private subnet in us-east-1z",
        ),
        (
            lambda _: {"availability_zone": "eu-west-1a"},
            r"network\.availability_zone must lie in the stack's region us-east-1, got eu-west-1a",
        ),
    ],
)
def test_nodes_in_two_zones_or_in_one_without_a_subnet_are_refused(make_stack, make, said):
    stack = make_stack(region="us-east-1")
    with pytest.raises(ValueError, match=said):
        _choose(stack, **make(stack))


def test_a_subnet_that_does_not_name_its_zone_is_refused(make_stack):
    stack = make_stack()
    vpc, subnet = _import_vpc(stack), ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-2a")
    said = "must name its availability zone, got none; import it by ec2.Subnet.from_subnet_attributes"
    with pytest.raises(ValueError, match=rf"^network\.worker_subnet {said}"):
        plan({"network.vpc": vpc, "network.worker_subnet": subnet})
    with pytest.raises(ValueError, match=rf"^network\.worker_subnet {said}"):
        _choose(cdk.Stack(stack, "Workers"), vpc=vpc, worker_subnet=subnet)
    with pytest.raises(ValueError, match=rf"^network\.master_subnet {said}"):
        _choose(cdk.Stack(stack, "Master"), vpc=vpc, worker_subnet=vpc.private_subnets[0], master_subnet=subnet)


def test_a_vpc_whose_zones_are_one_list_of_the_deployment_is_refused(make_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Mine", vpc_id="vpc-1", availability_zones=cdk.Fn.get_azs(), private_subnet_ids=["subnet-1"]
    )
    said = r"^network\.worker_subnet must name its availability zone, got a list of tokens; "
    with pytest.raises(ValueError, match=said):
        _choose(stack, vpc=vpc)


@pytest.mark.parametrize(("public_master", "master"), [(False, "subnet-2a"), (True, "subnet-10")])
def test_a_subnet_that_does_not_name_its_zone_lies_in_the_wanted_zone(make_stack, public_master, master):
    stack = make_stack(region="us-east-1")
    # Endpoints want to know the route table, too.
    subnet = ec2.Subnet.from_subnet_attributes(stack, "Subnet", subnet_id="subnet-2a", route_table_id="rtb-2a")
    values = {"vpc": _import_vpc(stack), "availability_zone": ZONE, "worker_subnet": subnet}
    network = _choose(stack, public_master=public_master, isolated=not public_master, **values)
    assert (network.worker_subnet.subnet_id, network.master_subnet.subnet_id) == ("subnet-2a", master)
    assert (network.zone, network.has_public_master) == (ZONE, public_master)


@pytest.mark.defect("D58")
def test_own_subnet_is_taken_when_it_is_just_large_enough_for_the_workers(make_stack):
    stack = make_stack()
    subnet = _import_vpc(stack, cidr="10.1.0.0/27").private_subnets[0]
    fits = {"master": plan(CPU).master, "is_public": False, "isolated": False}
    check_subnet(subnet, has_master=True, most_workers=25, **fits)
    with pytest.raises(
        ValueError, match=r"the 25 addresses that network\.worker_subnet 10\.1\.0\.0/27 has for workers"
    ):
        check_subnet(subnet, has_master=True, most_workers=26, **fits)
