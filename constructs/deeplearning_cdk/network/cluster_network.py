"""Network of the nodes: a new VPC with one zone or an existing one, and the nodes' security group."""

import json
from collections.abc import Mapping

import jsii
from aws_cdk import Fn, Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.network.addresses import plan_subnets
from deeplearning_cdk.network.endpoints import add_gateways, add_interfaces, warn_of_missing_gateway
from deeplearning_cdk.network.flow_log import FlowLog
from deeplearning_cdk.network.security_rules import allow_ingress
from deeplearning_cdk.network.subnets import check_route, check_vpc
from deeplearning_cdk.network.values import Network
from deeplearning_cdk.network.zone_subnets import NodePlace, PlaceChoice, ZoneSubnets
from deeplearning_cdk.network.zones import find_zone, first_in_zone
from deeplearning_cdk.props.check import is_dummy_value
from deeplearning_cdk.props.regions import check_environment
from deeplearning_cdk.security.acknowledged_rules import acknowledge

DEFAULT_CIDR = "10.0.0.0/16"


@jsii.implements(ec2.IConnectable)
class ClusterNetwork(Construct):
    """
    Network of a cluster: all nodes in one zone, everything allowed among them, nothing from outside.

    A new VPC has a private tier for the nodes and a public one with a NAT gateway, gateway endpoints for S3 and
    DynamoDB, and a flow log; an existing VPC has its own. With `isolated` it has only the private tier, without a route
    to the Internet, and interface endpoints for the other services that nodes call.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        network: The user's choice.
        public_master: Place the master in a public subnet, where the VPC has one. Default: it is in the workers'
            subnet.
        log_key: KMS key of a new VPC's flow log. Default: CloudWatch's own key.
        is_on_emr: Let EMR write to its own buckets through the endpoint of S3. Default: the nodes are not EMR's.
        fallbacks: The user's choice of the place of each fallback, by its candidate tag. Default: none.

    Attributes:
        vpc: The VPC.
        is_new: True if the cluster created the VPC.
        worker_subnet: Subnet of the workers.
        master_subnet: Subnet of the master.
        zone: Zone of all nodes.
        places: Place of the nodes of each fallback, by its candidate tag.
        further_zones: A subnet of each other zone of fallbacks.
        has_public_master: True if the master's subnet is public.
        has_one_subnet: True if master and workers are in the same subnet.
        security_group: Group of every node; all traffic among its members is allowed.
        connectivity: Dependencies of a node's network access.

    Raises:
        ValueError: A choice contradicts another.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        network: Network,
        *,
        public_master: bool = False,
        log_key: kms.IKey | None = None,
        is_on_emr: bool = False,
        fallbacks: Mapping[str, PlaceChoice] | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.is_new = network.vpc is None
        self._check_places(network)
        self.vpc = network.vpc or self._make_vpc(network)
        if self.is_new:
            FlowLog(self, "FlowLog", vpc=self.vpc, log_key=log_key)
        zone = None if self.is_new else network.availability_zone
        self.worker_subnet = network.worker_subnet or first_in_zone(
            [*self.vpc.private_subnets, *self.vpc.isolated_subnets], zone, "network.worker_subnet", "private"
        )
        self.zone = find_zone("network.worker_subnet", self.worker_subnet, zone)
        self.master_subnet = network.master_subnet or self.worker_subnet
        if network.master_subnet is None and public_master:
            self.master_subnet = first_in_zone(
                self.vpc.public_subnets, zone or self.zone, "network.master_subnet", "public"
            )
        self._check_zones(network.availability_zone)
        public = {subnet.subnet_id for subnet in self.vpc.public_subnets}
        self.place = NodePlace(self.worker_subnet, self.master_subnet, self.master_subnet.subnet_id in public)
        self.has_public_master, self.has_one_subnet = self.place.has_public_master, self.place.has_one_subnet
        if network.vpc is not None and not network.isolated:
            self._check_routes(network.vpc)
        self.places, self.further_zones = self._find_places(network, fallbacks or {}, public_master=public_master)
        self.security_group = self._make_security_group()
        self.connectivity = self._connect(isolated=network.isolated, is_on_emr=is_on_emr)

    @property
    def connections(self) -> ec2.Connections:
        """Connections of every node."""
        return ec2.Connections(security_groups=[self.security_group])

    def _find_places(
        self, network: Network, fallbacks: Mapping[str, PlaceChoice], *, public_master: bool
    ) -> tuple[dict[str, NodePlace], dict[str, ec2.ISubnet]]:
        """Return the places of fallbacks and the subnets of their zones, in orders that do not change with theirs."""
        finder = ZoneSubnets(
            self,
            self.vpc,
            self.place,
            self.zone,
            new_cidr=(network.cidr or DEFAULT_CIDR) if self.is_new else None,
            public_master=public_master,
            isolated=network.isolated,
        )
        places = {tag: finder.find(choice) for tag, choice in sorted(fallbacks.items(), key=lambda item: item[0])}
        zones: dict[str, ec2.ISubnet] = {}
        for tag, place in places.items():
            zone = fallbacks[tag].zone
            if zone is not None and zone != self.zone:
                zones.setdefault(zone, place.worker_subnet)
        return places, zones

    def _connect(self, *, isolated: bool, is_on_emr: bool) -> IDependable:
        """Add the endpoints of the nodes, and return the dependencies of their network access."""
        places = [self.place, *self.places.values()]
        found = [subnet for place in places for subnet in (place.worker_subnet, place.master_subnet)]
        subnets = list({subnet.subnet_id: subnet for subnet in reversed(found)}.values())[::-1]
        # The subnets too, because they may be outside the VPC's construct.
        needs: list[IDependable] = [self.vpc, *found, self.security_group]
        if self.is_new or isolated:
            needs += add_gateways(self, self.vpc, subnets, isolated=isolated, is_on_emr=is_on_emr)
        else:
            warn_of_missing_gateway(self, self.vpc)
        if isolated:
            needs += add_interfaces(self, self.vpc, self.worker_subnet, self.security_group)
        return DependencyGroup(*needs)

    def _make_vpc(self, network: Network) -> ec2.Vpc:
        cidr, isolated = network.cidr or DEFAULT_CIDR, network.isolated
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
            # With the zone given, synth need not look zones up with credentials.
            availability_zones=[network.availability_zone or Fn.select(0, Fn.get_azs())],
            nat_gateways=0 if isolated else 1,
            # The restriction would add a Lambda function; no node is in the default group.
            restrict_default_security_group=False,
            subnet_configuration=[private] if isolated else [private, public],
        )
        acknowledge(vpc, "default-security-group")
        for subnet in vpc.public_subnets:
            acknowledge(subnet.node.find_child("DefaultRoute"), "public-route")
        return vpc

    def _check_places(self, network: Network) -> None:
        """Check that what exists is in the VPC, and the VPC in the place of the stack."""
        if network.vpc is not None:
            check_environment("network.vpc", network.vpc, self)
        groups = {f"network.security_groups[{index}]": group for index, group in enumerate(network.security_groups)}
        for prop, group in groups.items():
            check_environment(prop, group, self)
        subnets = {"network.worker_subnet": network.worker_subnet, "network.master_subnet": network.master_subnet}
        for prop, resource in {**subnets, **groups}.items():
            if network.vpc is not None and resource is not None:
                check_vpc(prop, resource, "network.vpc", network.vpc)

    def _check_routes(self, vpc: ec2.IVpc) -> None:
        check_route("network.worker_subnet", self.worker_subnet, vpc, self, has_public_address=False)
        if not self.has_one_subnet:
            check_route(
                "network.master_subnet", self.master_subnet, vpc, self, has_public_address=self.has_public_master
            )

    def _check_zones(self, zone: str | None) -> None:
        zones = [self.zone, find_zone("network.master_subnet", self.master_subnet, zone), *([zone] if zone else [])]
        stack = Stack.of(self)
        resolved, region = stack.resolve(zones), stack.region
        if zone and not Token.is_unresolved(zone) and not Token.is_unresolved(region) and not zone.startswith(region):
            raise ValueError(
                f"network.availability_zone must lie in the stack's region {region}, got {zone}; write {region}a"
            )
        # Names are comparable only with names, and positions in the region's list only with positions.
        named = {name for name in resolved if isinstance(name, str) and not is_dummy_value(name)}
        selected = {json.dumps(name) for name in resolved if isinstance(name, dict) and "Fn::Select" in name}
        for known in (named, selected):
            if len(known) > 1:
                raise ValueError(
                    "network.worker_subnet and network.master_subnet must lie in one availability zone, got "
                    f"{sorted(known)}; pass subnets of one zone, since all nodes of a cluster share one"
                )

    def _make_security_group(self) -> ec2.SecurityGroup:
        # Nodes may open connections to any address: package mirrors, container registries and data have no fixed
        # addresses, and the prefix lists of S3 need a look-up with credentials. Isolated nodes are limited by the
        # routes, none of which leaves the VPC, and by the endpoints' policies.
        group = ec2.SecurityGroup(
            self, "NodesSecurityGroup", vpc=self.vpc, description="Nodes of a deep-learning cluster"
        )
        port = ec2.Port.all_traffic()
        rule = allow_ingress(
            group, "FromMembers", group=group, members=group, port=port, description="Anything among the nodes"
        )
        acknowledge(rule, "member-traffic")
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
