"""VPC, environment and routes of what the user passes, as far as the app knows them at synth."""

import jsii
from aws_cdk import Reference, Token, Tokenization
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IConstruct, IValidation

from deeplearning_cdk.props.check import is_dummy_value

_DUMMY_VPC = "vpc-12345"
"""Id of a VPC that the CDK has yet to look up (aws-cdk-lib 2.275.0, DUMMY_VPC_PROPS of aws-ec2/lib/vpc.ts)."""
_DEFAULT_ROUTES = ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1")
"""Destinations of a route to everywhere, in one or two halves."""
_REMEDY = "pass network.isolated=True, or a private subnet whose route table has a default route"


def check_vpc(prop: str, resource: IConstruct, vpc_prop: str, vpc: ec2.IVpc) -> None:
    """
    Check that a subnet or security group is in a VPC, if the app shows in which it is.

    Raises:
        ValueError: It is in another VPC; both paths are named.
    """
    if other := find_other_vpc(resource, vpc):
        raise ValueError(
            f"{prop} must be in {vpc_prop} {vpc.node.path}, got {resource.node.path} of {other}; pass one of "
            f"{vpc.node.path}"
        )


def find_other_vpc(resource: IConstruct, vpc: ec2.IVpc) -> str:
    """Return the path of the VPC of a subnet or security group; empty if it is this VPC, or if it is unknown."""
    owner = _find_vpc(resource)
    return owner[1] if owner is not None and are_different_vpcs(owner[0], vpc.vpc_id) else ""


def are_different_vpcs(one: str, other: str) -> bool:
    """Return whether two ids are certainly of two VPCs; one of the app and one named by its id may be the same."""
    identities = _identify(one), _identify(other)
    kinds = {identity and identity[0] for identity in identities}
    return None not in kinds and len(kinds) == 1 and identities[0] != identities[1]


def check_route(prop: str, subnet: ec2.ISubnet, vpc: ec2.IVpc, scope: Construct, *, has_public_address: bool) -> None:
    """
    Check that the nodes of a subnet reach the Internet, as far as the app knows its routes.

    The lists of the VPC decide, and for a subnet of the app its routes. A private one may get its route after the
    cluster, so synthesis checks it. Nodes without a public address cannot use an Internet gateway (VPC user guide,
    "Enable internet access for a VPC using an internet gateway").

    Raises:
        ValueError: The subnet has no route, or one that its nodes cannot use.
    """
    made = isinstance(subnet.node.default_child, ec2.CfnSubnet)
    kind = _find_kind(subnet, vpc)
    routes = _find_routes(subnet) if made else []
    if kind == "public" or any(route.gateway_id is not None for route in routes):
        if not has_public_address:
            raise ValueError(
                f"{prop} must have a route to the Internet for nodes without a public address, got the public "
                f"{subnet.node.path}; {_REMEDY}"
            )
    elif kind == "isolated" and not routes:
        raise ValueError(
            f"{prop} must have a route to the Internet, got an isolated one ({subnet.node.path}); {_REMEDY}"
        )
    elif made and not routes:
        scope.node.add_validation(_RouteValidation(prop, subnet))


@jsii.implements(IValidation)
class _RouteValidation:
    """Validation of a subnet without a default route so far: at synthesis, the app has all its routes."""

    def __init__(self, prop: str, subnet: ec2.ISubnet) -> None:
        self._prop, self._subnet = prop, subnet

    def validate(self) -> list[str]:
        """Return the problem, which the CDK reports at synthesis."""
        if _find_routes(self._subnet):
            return []
        path = self._subnet.node.path
        return [f"{self._prop} must have a route to the Internet, got {path} without a default route; {_REMEDY}"]


def _find_kind(subnet: ec2.ISubnet, vpc: ec2.IVpc) -> str:
    """Return the list of a VPC that has a subnet; empty if none has, or if it is a dummy, which is in several."""
    lists = {"public": vpc.public_subnets, "private": vpc.private_subnets, "isolated": vpc.isolated_subnets}
    for kind, listed in lists.items():
        for each in listed:
            if each.subnet_id == subnet.subnet_id:
                return "" if is_dummy_value(each.availability_zone) else kind
    return ""


def _find_routes(subnet: ec2.ISubnet) -> list[ec2.CfnRoute]:
    """Return the routes of the app that lead everywhere from a subnet; an unknown destination may be everywhere."""
    table = subnet.route_table.route_table_id
    routes = [each for each in subnet.node.root.node.find_all() if isinstance(each, ec2.CfnRoute)]
    return [route for route in routes if route.route_table_id == table and _leads_everywhere(route)]


def _leads_everywhere(route: ec2.CfnRoute) -> bool:
    target = route.destination_cidr_block
    if target is None:
        return route.destination_prefix_list_id is not None
    return target in _DEFAULT_ROUTES or Token.is_unresolved(target)


def _find_vpc(resource: IConstruct) -> tuple[str, str] | None:
    """Return the id and the path of the VPC of a subnet or security group; None if the app does not show it."""
    made = resource.node.default_child
    if isinstance(made, ec2.CfnSubnet | ec2.CfnSecurityGroup):
        identity = _identify(made.vpc_id) if made.vpc_id is not None else None
        return (str(made.vpc_id), identity[1].removesuffix("/Resource")) if identity else None
    # Subnets of an imported VPC are below it.
    owner = resource.node.scope
    vpc_id = getattr(owner, "vpc_id", None)
    return (vpc_id, owner.node.path) if owner is not None and isinstance(vpc_id, str) else None


def _identify(vpc_id: str) -> tuple[str, str] | None:
    """Return the path of a VPC of the app, or the id of another, with the kind of both; None if unknown."""
    if not Token.is_unresolved(vpc_id):
        return None if vpc_id == _DUMMY_VPC else ("id", vpc_id)
    token = Tokenization.reverse_string(vpc_id).first_token
    target = getattr(token, "target", None) if token is not None and Reference.is_reference(token) else None
    return ("path", target.node.path) if isinstance(target, ec2.CfnVPC) else None
