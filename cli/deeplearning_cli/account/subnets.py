"""Subnets of the account that nodes launch in: whether they exist, are in the nodes' VPC, and have free addresses."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deeplearning_cli.account.answers import Answers, Refused, Subnet
from deeplearning_cli.account.demand import NodeDemand
from deeplearning_cli.account.finding import Finding


def count_interfaces(templates: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """
    Return how many interfaces beside the nodes a stack creates in each subnet of the account.

    A mount target has one, and an interface endpoint one in each of its subnets (EFS API, `CreateMountTarget`; AWS
    PrivateLink Guide, "Access an AWS service using an interface VPC endpoint").
    """
    subnets: list[Any] = []
    for resource in (each for template in templates for each in template.get("Resources", {}).values()):
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::EFS::MountTarget":
            subnets.append(properties.get("SubnetId"))
        elif resource["Type"] == "AWS::EC2::VPCEndpoint":
            subnets += properties.get("SubnetIds", ())
    return Counter(subnet for subnet in subnets if isinstance(subnet, str))


def judge_subnets(demands: Sequence[NodeDemand], interfaces: Mapping[str, int], answers: Answers) -> Iterator[Finding]:
    """Judge each subnet; `interfaces` are those that the stack creates in it beside the nodes."""
    for name in dict.fromkeys(demand.zone.subnet for demand in demands if demand.zone and demand.zone.subnet):
        own = [demand for demand in demands if demand.zone and demand.zone.subnet == name]
        subject = f"subnet {name}"
        if isinstance(answers.subnets, Refused):
            yield Finding.refused(subject, answers.subnets, "ec2:DescribeSubnets")
        elif (found := answers.subnets.get(name)) is None:
            yield Finding(subject, "wrong", "the account has none of that id in this region", "correct the id")
        else:
            yield _judge(subject, found, own, interfaces.get(name, 0))


def _judge(subject: str, found: Subnet, demands: Sequence[NodeDemand], interfaces: int) -> Finding:
    """Judge a subnet; a launch takes subnet and security groups of one VPC (EC2 API, `RunInstances`)."""
    if vpc := min({demand.vpc for demand in demands} - {found.vpc, ""}, default=""):
        return Finding(subject, "wrong", f"it is in {found.vpc}, the nodes are for {vpc}", f"pass a subnet of {vpc}")
    nodes: Counter[str] = Counter()
    for demand in demands:
        nodes[demand.candidate] += demand.count * demand.addresses
    total = max(nodes.values()) + interfaces
    others = f", {interfaces} of them for endpoints and mount targets" if interfaces else ""
    detail = f"{found.free} addresses are free, the stack takes {total}{others}"
    if total > found.free:
        return Finding(subject, "wrong", detail, "pass a larger subnet, remove what is unused in it, or ask for fewer")
    return Finding(subject, "ok", detail)
