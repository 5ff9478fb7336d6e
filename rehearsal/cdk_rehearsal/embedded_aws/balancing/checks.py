"""Refusals of Elastic Load Balancing that moto lacks, in the words of AWS where they are public."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_LOCAL_ZONE = re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+-[a-z]+-[0-9]+[a-z]")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?")
_FREE_ADDRESSES = 8
_SECURE = ("HTTPS", "TLS")


def check_balancer(ec2: Any, name: str, properties: Mapping[str, Any]) -> None:
    """
    Raise ValueError for a load balancer that cannot be created.

    Sources: aws-samples/aws-cdk-examples#226 (two zones), coldbrewcloud/coldbrew-cli#44 (one zone twice), the
    Application Load Balancer user guide, "Subnets for your load balancer" (Local Zones, eight free addresses), and
    `CreateLoadBalancer` (the name).
    """
    if not _NAME.fullmatch(name) or name.startswith("internal-"):
        raise ValueError(
            f"The load balancer name '{name}' must have at most 32 letters, digits and hyphens, not begin or end with "
            "a hyphen, and not begin with 'internal-'"
        )
    subnets = ec2.describe_subnets(SubnetIds=list(properties["Subnets"]))["Subnets"]
    zones = [subnet["AvailabilityZone"] for subnet in subnets]
    if len(set(zones)) < len(zones):
        raise ValueError("A load balancer cannot be attached to multiple subnets in the same Availability Zone")
    is_application = properties.get("Type", "application") == "application"
    if is_application and len(zones) < 2 and not all(map(_LOCAL_ZONE.fullmatch, zones)):  # noqa: PLR2004
        raise ValueError("At least two subnets in two different Availability Zones must be specified")
    networks = {subnet["VpcId"] for subnet in subnets}
    if len(networks) > 1:
        raise ValueError(f"All subnets must belong to the same VPC, got {', '.join(sorted(networks))}")
    for subnet in subnets:
        if subnet["AvailableIpAddressCount"] < _FREE_ADDRESSES:
            raise ValueError(
                f"Not enough IP space available in {subnet['SubnetId']}. ELB requires at least 8 free IP addresses in "
                "each subnet."
            )
    (vpc,) = networks
    _check_ways(ec2, vpc, properties)


def _check_ways(ec2: Any, vpc: str, properties: Mapping[str, Any]) -> None:
    groups = list(properties.get("SecurityGroups", []))
    found = ec2.describe_security_groups(GroupIds=groups)["SecurityGroups"] if groups else []
    if any(group["VpcId"] != vpc for group in found):
        raise ValueError("One or more security groups are invalid")
    attached = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    gateways = ec2.describe_internet_gateways(Filters=attached)["InternetGateways"]
    if properties.get("Scheme", "internet-facing") == "internet-facing" and not gateways:
        raise ValueError(f"VPC {vpc} has no internet gateway")


def check_listener(elb: Any, properties: Mapping[str, Any]) -> None:
    """
    Raise ValueError for a listener that cannot be created.

    Sources: pulumi/pulumi#15712 and awslabs/fargatecli#104 (certificates); the other words are the rehearsal's.
    """
    protocol, certificates = str(properties.get("Protocol", "")), properties.get("Certificates", [])
    if protocol in _SECURE and not certificates:
        raise ValueError(f"A certificate must be specified for {protocol} listeners")
    if protocol not in _SECURE and certificates:
        raise ValueError(f"A certificate cannot be specified for {protocol} listeners")
    balancer = str(properties["LoadBalancerArn"])
    there = elb.describe_listeners(LoadBalancerArn=balancer)["Listeners"]
    if any(listener.get("Port") == int(properties["Port"]) for listener in there):
        raise ValueError("A listener already exists on this port for this load balancer")
    check_actions(elb, balancer, properties["DefaultActions"])


def check_actions(elb: Any, balancer_arn: str, actions: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError for actions that forward to target groups of another VPC, protocol or load balancer."""
    arns = {str(action["TargetGroupArn"]) for action in actions if "TargetGroupArn" in action}
    for action in actions:
        arns |= {str(each["TargetGroupArn"]) for each in action.get("ForwardConfig", {}).get("TargetGroups", [])}
    if not arns:
        return
    (balancer,) = elb.describe_load_balancers(LoadBalancerArns=[balancer_arn])["LoadBalancers"]
    for group in elb.describe_target_groups(TargetGroupArns=sorted(arns))["TargetGroups"]:
        arn = group["TargetGroupArn"]
        if group.get("VpcId") != balancer["VpcId"]:
            raise ValueError(f"The target group {arn} must be in the VPC of the load balancer, {balancer['VpcId']}")
        if (group.get("Protocol") in ("HTTP", "HTTPS")) != (balancer["Type"] == "application"):
            raise ValueError(
                f"The target group {arn} has the protocol {group['Protocol']}, which a load balancer of "
                f"type {balancer['Type']} does not take"
            )
        if set(group["LoadBalancerArns"]) - {balancer_arn}:
            words = "The following target groups cannot be associated with more than one load balancer"
            raise ValueError(f"{words}: {arn}")
