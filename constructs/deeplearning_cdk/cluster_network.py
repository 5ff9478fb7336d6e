"""Where the nodes live: a VPC with one zone for them, or the user's own, and the security groups."""

import ipaddress

from aws_cdk import Fn, Token
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, DependencyGroup, IDependable

from deeplearning_cdk.subnet_sizes import plan_subnets

# What nodes call: the queues, and the agent of Session Manager. S3 and DynamoDB have gateways.
_INTERFACE_ENDPOINTS = {
    "Sqs": ec2.InterfaceVpcEndpointAwsService.SQS,
    "Ssm": ec2.InterfaceVpcEndpointAwsService.SSM,
    "SsmMessages": ec2.InterfaceVpcEndpointAwsService.SSM_MESSAGES,
    "Ec2Messages": ec2.InterfaceVpcEndpointAwsService.EC2_MESSAGES,
}
INTERFACE_ENDPOINT_COUNT = len(_INTERFACE_ENDPOINTS)


class ClusterNetwork(Construct):
    """
    Network of a cluster: all nodes in one zone, everything allowed among them, nothing from outside.

    A new VPC has a public and a private tier in the zone, a NAT gateway, and gateway endpoints for S3 and
    DynamoDB. With `isolated` it has one tier without a route to the Internet, and interface endpoints for what
    nodes call.

    Attributes:
        vpc: The VPC.
        worker_subnet: Where the workers live.
        master_subnet: Where the master lives.
        has_public_master: Whether the master's subnet is a public one.
        security_group: Group of every node; its members may say anything to each other.
        connectivity: What must exist before a node can reach what it needs.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc | None = None,
        vpc_cidr: str | None = None,
        availability_zone: str | None = None,
        worker_subnet: ec2.ISubnet | None = None,
        master_subnet: ec2.ISubnet | None = None,
        public_master: bool = False,
        isolated: bool = False,
    ) -> None:
        """
        Make the network, or take the user's.

        Args:
            scope: The parent.
            construct_id: The id in the parent.
            vpc: The user's VPC. Default: a new one.
            vpc_cidr: Addresses of a new VPC, /16 to /26. Default: 10.0.0.0/16.
            availability_zone: Zone of all nodes. Default: the region's first, or the zone of the user's subnets.
            worker_subnet: A subnet of the user's VPC. Default: the first private one of the zone.
            master_subnet: A subnet of the user's VPC in the same zone. Default: the workers' one, or with
                `public_master` the first public one of the zone.
            public_master: The master lives in a public subnet. Default: in the workers' one.
            isolated: The nodes have no route to the Internet; the endpoints that they need are made.
                Default: a new VPC has a NAT gateway, and a VPC of the user's is taken as it is.

        Raises:
            ValueError: A choice contradicts another.
        """
        super().__init__(scope, construct_id)
        self._check_choices(vpc, vpc_cidr, (worker_subnet, master_subnet), public_master=public_master, isolated=isolated)
        self._dependencies = DependencyGroup()
        self.vpc = vpc or self._make_vpc(vpc_cidr or "10.0.0.0/16", availability_zone, isolated=isolated)
        zone = availability_zone if vpc else None
        self.worker_subnet = worker_subnet or self._find_subnet(zone, "worker_subnet", isolated=isolated)
        self.master_subnet = master_subnet or (self._find_public_subnet(zone) if public_master else self.worker_subnet)
        self._check_zones(availability_zone)
        public_ids = {subnet.node.path for subnet in self.vpc.public_subnets}
        self.has_public_master = self.master_subnet.node.path in public_ids
        self.security_group = ec2.SecurityGroup(
            self, "NodesSecurityGroup", vpc=self.vpc, description="Nodes of a deep-learning cluster"
        )
        self._admit_members()
        if vpc is None:
            self._dependencies.add(self.vpc)
        if vpc is None or isolated:
            self._add_gateways()
        if isolated:
            self._add_interfaces()
        self.connectivity: IDependable = self._dependencies
        self._dependencies.add(self.security_group)

    @staticmethod
    def _check_choices(
        vpc: ec2.IVpc | None,
        vpc_cidr: str | None,
        subnets: tuple[ec2.ISubnet | None, ...],
        *,
        public_master: bool,
        isolated: bool,
    ) -> None:
        if vpc is not None and vpc_cidr is not None:
            raise ValueError(f"vpc_cidr must be left out with vpc, got {vpc_cidr!r}; the VPC has its own addresses")
        if vpc is None and any(subnets):
            raise ValueError("worker_subnet and master_subnet must come with vpc, got none; pass the VPC of the subnets")
        if isolated and public_master and vpc is None:
            raise ValueError("ssh_peer must be left out with isolated, got both; log in through Session Manager")

    def _make_vpc(self, cidr: str, zone: str | None, *, isolated: bool) -> ec2.Vpc:
        sizes = plan_subnets(cidr)
        tier = ec2.SubnetType.PRIVATE_ISOLATED if isolated else ec2.SubnetType.PRIVATE_WITH_EGRESS
        private = ec2.SubnetConfiguration(name="Private", subnet_type=tier, cidr_mask=sizes.private_prefix)
        public = ec2.SubnetConfiguration(
            name="Public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=sizes.public_prefix, map_public_ip_on_launch=False
        )
        return ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr),
            # Naming the zone keeps synth from looking zones up with credentials.
            availability_zones=[zone or Fn.select(0, Fn.get_azs())],
            nat_gateways=0 if isolated else 1,
            restrict_default_security_group=False,
            subnet_configuration=[private] if isolated else [private, public],
        )

    def _find_subnet(self, zone: str | None, prop: str, *, isolated: bool) -> ec2.ISubnet:
        candidates = [*self.vpc.private_subnets, *self.vpc.isolated_subnets]
        if isolated:
            candidates = [*self.vpc.isolated_subnets, *self.vpc.private_subnets]
        return _first_in_zone(candidates, zone, prop, "private")

    def _find_public_subnet(self, zone: str | None) -> ec2.ISubnet:
        wanted = zone or self.worker_subnet.availability_zone
        return _first_in_zone(self.vpc.public_subnets, wanted, "master_subnet", "public")

    def _check_zones(self, zone: str | None) -> None:
        zones = [self.worker_subnet.availability_zone, self.master_subnet.availability_zone, *([zone] if zone else [])]
        known = {name for name in zones if not Token.is_unresolved(name)}
        if len(known) > 1:
            raise ValueError(
                f"worker_subnet and master_subnet must lie in one availability zone, got {sorted(known)}; "
                "all nodes of a cluster share one zone"
            )

    def _admit_members(self) -> None:
        self.security_group.add_ingress_rule(self.security_group, ec2.Port.all_traffic(), "Anything among the nodes")
        # EFA needs the rule by group; the rule to any address does not cover its traffic.
        ec2.CfnSecurityGroupEgress(
            self.security_group,
            "ToMembers",
            group_id=self.security_group.security_group_id,
            destination_security_group_id=self.security_group.security_group_id,
            ip_protocol="-1",
            description="Anything among the nodes",
        )

    def _add_gateways(self) -> None:
        subnets = [ec2.SubnetSelection(subnets=[self.worker_subnet])]
        if self.master_subnet.node.path != self.worker_subnet.node.path:
            subnets.append(ec2.SubnetSelection(subnets=[self.master_subnet]))
        for name, service in (
            ("S3", ec2.GatewayVpcEndpointAwsService.S3),
            ("DynamoDb", ec2.GatewayVpcEndpointAwsService.DYNAMODB),
        ):
            endpoint = ec2.GatewayVpcEndpoint(
                self, f"{name}Endpoint", vpc=self.vpc, service=service, subnets=subnets  # type: ignore[arg-type]
            )
            self._dependencies.add(endpoint)

    def _add_interfaces(self) -> None:
        group = ec2.SecurityGroup(
            self, "EndpointsSecurityGroup", vpc=self.vpc, allow_all_outbound=False, description="Endpoints of the nodes"
        )
        group.add_ingress_rule(self.security_group, ec2.Port.tcp(443), "HTTPS from the nodes")
        for name, service in _INTERFACE_ENDPOINTS.items():
            endpoint = ec2.InterfaceVpcEndpoint(
                self,
                f"{name}Endpoint",
                vpc=self.vpc,
                service=service,
                subnets=ec2.SubnetSelection(subnets=[self.worker_subnet]),
                security_groups=[group],
                open=False,
            )
            self._dependencies.add(endpoint)


def _first_in_zone(subnets: list[ec2.ISubnet], zone: str | None, prop: str, kind: str) -> ec2.ISubnet:
    for subnet in subnets:
        if zone is None or subnet.availability_zone == zone:
            return subnet
    where = f" in {zone}" if zone and not Token.is_unresolved(zone) else ""
    raise ValueError(f"{prop} must be given when the vpc has no {kind} subnet{where}, got none; pass one of its subnets")


def is_ipv4_network(text: str) -> bool:
    """Tell whether a text is an IPv4 network in CIDR form, host bits zero."""
    try:
        ipaddress.IPv4Network(text)
    except ValueError:
        return False
    return "/" in text
