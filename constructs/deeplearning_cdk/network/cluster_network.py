"""Where the nodes live: a VPC with one zone for them, or the user's own, and their security group."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import jsii
from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.cluster_props import AvailabilityZone
from deeplearning_cdk.network.endpoints import add_gateways, add_interfaces
from deeplearning_cdk.network.flow_log import FlowLog
from deeplearning_cdk.network.s3_route import warn_of_missing_gateway
from deeplearning_cdk.network.security_rules import admit
from deeplearning_cdk.network.subnet_sizes import VpcCidr, plan_subnets
from deeplearning_cdk.props.check import check_fields, checked
from deeplearning_cdk.props.looked_up import is_stand_in
from deeplearning_cdk.security.acknowledged_rules import acknowledge

DEFAULT_VPC_CIDR = "10.0.0.0/16"


@dataclass(frozen=True)
class Place:
    """Where the user wants the nodes, by the props of `ClusterNetwork`."""

    vpc: ec2.IVpc | None = None
    vpc_cidr: VpcCidr | None = None
    availability_zone: AvailabilityZone | None = None
    worker_subnet: ec2.ISubnet | None = None
    master_subnet: ec2.ISubnet | None = None

    def __post_init__(self) -> None:
        """Check each prop."""
        check_fields(self)

    @property
    def zone(self) -> str | None:
        """Zone of all nodes; None when neither prop nor subnet names it."""
        if self.worker_subnet is None:
            return self.availability_zone
        return self.availability_zone or find_zone("worker_subnet", self.worker_subnet)


@jsii.implements(ec2.IConnectable)
class ClusterNetwork(Construct):
    """
    Network of a cluster: all nodes in one zone, everything allowed among them, nothing from outside.

    A new VPC has a private tier for the nodes and a public one with a NAT gateway, gateway endpoints for S3 and
    DynamoDB, and a flow log; a user's VPC has its own. With `isolated` it has the private tier alone, without a route
    to the Internet, and interface endpoints for the rest of what nodes call.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        vpc: The user's VPC. Default: a new one.
        vpc_cidr: Addresses of a new VPC, /16 to /26. Default: 10.0.0.0/16.
        availability_zone: Zone of all nodes. Default: the region's first, or the zone of the user's subnet.
        worker_subnet: A subnet of the user's VPC. Default: the first private one of the zone.
        master_subnet: A subnet of the user's VPC in the same zone. Default: the workers' one, or with
            `public_master` the first public one of the zone.
        public_master: The master lives in a public subnet. Default: in the workers' one.
        isolated: The nodes have no route to the Internet, and the endpoints that they need are made; a VPC that has
            them needs none. Default: a new VPC has a NAT gateway, and the user's is taken as it is.
        log_key: Encrypts the flow log of a new VPC. Default: CloudWatch's own key.

    Attributes:
        vpc: The VPC.
        worker_subnet: Where the workers live.
        master_subnet: Where the master lives.
        zone: Zone of all nodes.
        has_public_master: Whether the master's subnet is a public one.
        security_group: Group of every node; its members may say anything to each other.
        connectivity: What must exist before a node can reach what it needs.

    Raises:
        ValueError: A choice contradicts another.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc | None = None,
        vpc_cidr: VpcCidr | None = None,
        availability_zone: AvailabilityZone | None = None,
        worker_subnet: ec2.ISubnet | None = None,
        master_subnet: ec2.ISubnet | None = None,
        public_master: bool = False,
        isolated: bool = False,
        log_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        if vpc is not None and vpc_cidr is not None:
            raise ValueError(f"vpc_cidr must be left out with vpc, got {vpc_cidr!r}; the VPC has its own addresses")
        if vpc is None and (worker_subnet or master_subnet):
            raise ValueError("vpc must be given with worker_subnet or master_subnet, got none; pass the subnets' VPC")
        self.vpc = vpc or self._make_vpc(vpc_cidr or DEFAULT_VPC_CIDR, availability_zone, isolated=isolated)
        if vpc is None:
            FlowLog(self, "FlowLog", vpc=self.vpc, log_key=log_key)
        zone = availability_zone if vpc else None
        self.worker_subnet = worker_subnet or self._find_private_subnet(zone)
        self.zone = find_zone("worker_subnet", self.worker_subnet, zone)
        if master_subnet is None and public_master:
            master_subnet = self._find_public_subnet(zone or self.zone)
        self.master_subnet = master_subnet or self.worker_subnet
        self._check_zones(availability_zone)
        public = {subnet.subnet_id for subnet in self.vpc.public_subnets}
        self.has_public_master = self.master_subnet.subnet_id in public
        self.security_group = self._make_security_group()
        # The subnets too, because they may stand outside the VPC's construct.
        needs: list[IDependable] = [self.vpc, self.worker_subnet, self.master_subnet, self.security_group]
        if vpc is None or isolated:
            subnets = list({subnet.subnet_id: subnet for subnet in (self.worker_subnet, self.master_subnet)}.values())
            needs += add_gateways(self, self.vpc, subnets, isolated=isolated)
        else:
            warn_of_missing_gateway(self, vpc)
        if isolated:
            needs += add_interfaces(self, self.vpc, self.worker_subnet, self.security_group)
        self.connectivity: IDependable = DependencyGroup(*needs)

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every node."""
        return ec2.Connections(security_groups=[self.security_group])

    def _make_vpc(self, cidr: str, zone: str | None, *, isolated: bool) -> ec2.Vpc:
        sizes = plan_subnets(cidr)
        tier = ec2.SubnetType.PRIVATE_ISOLATED if isolated else ec2.SubnetType.PRIVATE_WITH_EGRESS
        private = ec2.SubnetConfiguration(name="Private", subnet_type=tier, cidr_mask=sizes.private_prefix)
        public = ec2.SubnetConfiguration(
            name="Public",
            subnet_type=ec2.SubnetType.PUBLIC,
            cidr_mask=sizes.public_prefix,
            map_public_ip_on_launch=False,
        )
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            # Naming the zone keeps synth from looking zones up with credentials.
            availability_zones=[zone or Fn.select(0, Fn.get_azs())],
            nat_gateways=0 if isolated else 1,
            # It would add a Lambda; no node is in the default group.
            restrict_default_security_group=False,
            subnet_configuration=[private] if isolated else [private, public],
        )
        acknowledge(vpc, "default-security-group")
        for subnet in vpc.public_subnets:
            acknowledge(subnet.node.find_child("DefaultRoute"), "public-route")
        return vpc

    def _find_private_subnet(self, zone: str | None) -> ec2.ISubnet:
        subnets = [*self.vpc.private_subnets, *self.vpc.isolated_subnets]
        return _first_in_zone(subnets, zone, "worker_subnet", "private")

    def _find_public_subnet(self, zone: str) -> ec2.ISubnet:
        return _first_in_zone(self.vpc.public_subnets, zone, "master_subnet", "public")

    def _check_zones(self, zone: str | None) -> None:
        zones = [self.zone, find_zone("master_subnet", self.master_subnet, zone), *([zone] if zone else [])]
        resolved = [Stack.of(self).resolve(name) for name in zones]
        region = Stack.of(self).region
        if zone and not Token.is_unresolved(zone) and not Token.is_unresolved(region) and not zone.startswith(region):
            raise ValueError(f"availability_zone must lie in the stack's region {region}, got {zone}; write {region}a")
        # Names can be compared with names, and positions in the region's list with positions.
        named = {name for name in resolved if isinstance(name, str) and not is_stand_in(name)}
        selected = {json.dumps(name) for name in resolved if isinstance(name, dict) and "Fn::Select" in name}
        for known in (named, selected):
            if len(known) > 1:
                raise ValueError(
                    f"worker_subnet and master_subnet must lie in one availability zone, got {sorted(known)}; "
                    "pass subnets of one zone, since all nodes of a cluster share one"
                )

    def _make_security_group(self) -> ec2.SecurityGroup:
        # Nodes may open connections to anywhere: package mirrors, container registries and data have no fixed
        # addresses, and security groups cannot name the prefix lists of S3 without a look-up with credentials. What
        # isolated nodes reach is bounded by the routes, of which none leaves the VPC, and by the endpoints' policies.
        group = ec2.SecurityGroup(
            self, "NodesSecurityGroup", vpc=self.vpc, description="Nodes of a deep-learning cluster"
        )
        port = ec2.Port.all_traffic()
        rule = admit(
            group, "FromMembers", group=group, members=group, port=port, description="Anything among the nodes"
        )
        acknowledge(rule, "members-say-anything")
        # EFA needs the rule by group; the rule to any address does not cover its traffic.
        ec2.CfnSecurityGroupEgress(
            group,
            "ToMembers",
            group_id=group.security_group_id,
            destination_security_group_id=group.security_group_id,
            ip_protocol="-1",
            description="Anything among the nodes",
        )
        return group


def find_zone(prop: str, subnet: ec2.ISubnet, zone: str | None = None) -> str:
    """
    Return the zone of a subnet.

    Args:
        prop: The user's name for the subnet.
        subnet: The subnet.
        zone: Zone of all nodes, which a subnet that names none lies in. Default: not known.

    Raises:
        ValueError: Nothing names it.
    """
    try:
        named = subnet.availability_zone
    except RuntimeError as error:  # An imported subnet: `Subnet.from_subnet_id` cannot know it.
        if zone is not None:
            return zone
        raise ValueError(
            f"{prop} must name its availability zone, got none; import it by ec2.Subnet.from_subnet_attributes with "
            "one, or pass availability_zone to the cluster whose subnet it is"
        ) from error
    if "#{Token[" in named:
        raise ValueError(
            f"{prop} must name its availability zone, got a list of tokens; import the VPC with zones one by one, such "
            "as availability_zones=[Fn.select(0, Fn.get_azs())]"
        )
    return named


def _first_in_zone(subnets: Sequence[ec2.ISubnet], zone: str | None, prop: str, kind: str) -> ec2.ISubnet:
    for subnet in subnets:
        if zone is None or subnet.availability_zone == zone or is_stand_in(subnet.availability_zone):
            return subnet
    where = f" in {zone}" if zone and not Token.is_unresolved(zone) else ""
    raise ValueError(
        f"{prop} must be given when the vpc has no {kind} subnet{where}, got none; pass one of its subnets"
    )
