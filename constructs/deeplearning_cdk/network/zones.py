"""Availability zones of subnets, as far as they are known at synth."""

from collections.abc import Sequence

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.props.check import is_dummy_value


def find_zone(prop: str, subnet: ec2.ISubnet, zone: str | None = None) -> str:
    """
    Return the zone of a subnet; one that names none lies in the zone of all nodes, where that is known.

    Raises:
        ValueError: Neither the subnet nor `network.availability_zone` names it.
    """
    try:
        named = subnet.availability_zone
    except RuntimeError as error:  # `Subnet.from_subnet_id` imports a subnet without its zone.
        if zone is not None:
            return zone
        raise ValueError(
            f"{prop} must name its availability zone, got none; import it by ec2.Subnet.from_subnet_attributes with "
            "one, or name network.availability_zone"
        ) from error
    if "#{Token[" in named:
        raise ValueError(
            f"{prop} must name its availability zone, got a list of tokens; import the VPC with zones one by one, such "
            "as availability_zones=[Fn.select(0, Fn.get_azs())]"
        )
    return named


def first_in_zone(subnets: Sequence[ec2.ISubnet], zone: str | None, prop: str, kind: str) -> ec2.ISubnet:
    """
    Return the first subnet of a zone.

    Raises:
        ValueError: There is none of that kind.
    """
    for subnet in subnets:
        if zone is None or subnet.availability_zone == zone or is_dummy_value(subnet.availability_zone):
            return subnet
    where = f" in {zone}" if zone and not Token.is_unresolved(zone) else ""
    raise ValueError(
        f"{prop} must be given when network.vpc has no {kind} subnet{where}, got none; pass a {kind} subnet of it"
    )
