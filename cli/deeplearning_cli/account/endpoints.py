"""DNS of a VPC of the account: whether it is on, and has no private names yet that endpoints of a stack bring."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deeplearning_cli.account.answers import Refused, ask, find, make_filter, read_pages
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.finding import Finding

_ATTRIBUTES = {"enableDnsSupport": "EnableDnsSupport", "enableDnsHostnames": "EnableDnsHostnames"}
_GONE = ("deleting", "deleted", "rejected", "failed", "expired")
"""States of an endpoint that has no names any more (EC2 API, `VpcEndpoint`)."""

Attributes = Mapping[str, bool]
Names = Mapping[str, str]
"""Service -> id of the endpoint that has its private name."""


@dataclass(frozen=True)
class VpcNeeds:
    """A VPC of the account, and the services of the endpoints with private DNS that the stack creates in it."""

    vpc: str
    services: tuple[str, ...] = ()


@dataclass(frozen=True)
class VpcAnswer:
    """Answers about a VPC: its attributes, None where it does not exist, and the private names that it has."""

    attributes: Attributes | Refused | None
    names: Names | Refused


def list_vpcs(
    templates: Sequence[Mapping[str, Any]], demands: Sequence[NodeDemand], region: str
) -> tuple[VpcNeeds, ...]:
    """Return the VPCs of the account that nodes or interface endpoints of a stack are in."""
    services: dict[str, list[str]] = {demand.vpc: [] for demand in demands if demand.vpc}
    for resource in (each for template in templates for each in template.get("Resources", {}).values()):
        properties = resource.get("Properties", {})
        vpc = properties.get("VpcId")
        if resource["Type"] == "AWS::EC2::VPCEndpoint" and isinstance(vpc, str) and properties.get("PrivateDnsEnabled"):
            services.setdefault(vpc, []).append(_fill(properties["ServiceName"], region))
    return tuple(VpcNeeds(vpc, tuple(names)) for vpc, names in services.items())


def _fill(service: Any, region: str) -> str:
    """Return the name of a service, whose region may be known at deployment only."""
    parts = [service] if isinstance(service, str) else service["Fn::Join"][1]
    return "".join(part if isinstance(part, str) else region for part in parts)


def read_vpcs(ec2: Any, needs: Sequence[VpcNeeds]) -> dict[str, VpcAnswer]:
    """Return VPC -> answers; the endpoints of one are read only where the stack creates some."""
    return {
        each.vpc: VpcAnswer(
            ask(partial(_read_attributes, ec2, each.vpc)),
            ask(partial(_read_names, ec2, each.vpc)) if each.services else {},
        )
        for each in needs
    }


def _read_attributes(ec2: Any, vpc: str) -> Attributes | None:
    return find(
        lambda: {
            name: bool(ec2.describe_vpc_attribute(VpcId=vpc, Attribute=name)[key]["Value"])
            for name, key in _ATTRIBUTES.items()
        },
        "InvalidVpcID",
    )


def _read_names(ec2: Any, vpc: str) -> Names:
    found = read_pages(ec2, "describe_vpc_endpoints", "VpcEndpoints", Filters=[make_filter("vpc-id", [vpc])])
    return {
        each["ServiceName"]: each["VpcEndpointId"]
        for each in found
        if each.get("PrivateDnsEnabled") and str(each["State"]).lower() not in _GONE
    }


def judge_vpcs(needs: Sequence[VpcNeeds], answers: Mapping[str, VpcAnswer]) -> Iterator[Finding]:
    """Judge the DNS of each VPC, then its private names."""
    for each in needs:
        answer = answers[each.vpc]
        yield _judge_attributes(each.vpc, answer.attributes)
        if each.services and answer.attributes is not None:
            yield _judge_names(each, answer.names)


def _judge_attributes(vpc: str, attributes: Attributes | Refused | None) -> Finding:
    """
    Judge the attributes, which private names of endpoints and names of file systems need.

    Sources: EC2 API, `CreateVpcEndpoint`; EFS User Guide, "Mounting on Amazon EC2 with a DNS name".
    """
    subject = f"DNS of {vpc}"
    if isinstance(attributes, Refused):
        return Finding.refused(subject, attributes, "ec2:DescribeVpcAttribute")
    if attributes is None:
        return Finding(subject, "wrong", "the account has no such VPC in this region", "correct the id")
    options = {"enableDnsSupport": "--enable-dns-support", "enableDnsHostnames": "--enable-dns-hostnames"}
    off = [name for name, is_on in attributes.items() if not is_on]
    if off:
        commands = [f"aws ec2 modify-vpc-attribute --vpc-id {vpc} {options[name]}" for name in off]
        return Finding(subject, "wrong", f"{' and '.join(off)} must be on, got off", " && ".join(commands))
    return Finding(subject, "ok", "resolution and host names are on")


def _judge_names(needs: VpcNeeds, names: Names | Refused) -> Finding:
    """
    Judge the private names; a VPC has one endpoint with them for a service.

    Sources: cfn-lint, rule E3064 (aws-cloudformation/cfn-lint#4492); hashicorp/terraform-provider-aws#17535.
    """
    subject = f"private DNS of {needs.vpc}"
    if isinstance(names, Refused):
        return Finding.refused(subject, names, "ec2:DescribeVpcEndpoints")
    taken = [f"{names[service]} has that of {service}" for service in needs.services if service in names]
    if taken:
        remedy = "leave network.isolated out, or turn its private DNS off"
        return Finding(subject, "wrong", f"a service has one private name in a VPC: {', '.join(taken)}", remedy)
    return Finding(subject, "ok", f"the names of {len(needs.services)} services are free")
