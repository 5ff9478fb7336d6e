"""Creates load balancers, their listeners and rules, and target groups."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.balancing.checks import check_actions, check_balancer, check_listener
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator

_MOST_LETTERS = 32
_NUMBERS = (
    *("Port", "Priority", "Order", "Weight", "DurationSeconds"),
    *("HealthCheckIntervalSeconds", "HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount"),
)


def _create_balancer(creation: Creation) -> Created:
    elb, properties = creation.client("elbv2"), creation.properties
    name = properties.get("Name") or _make_name(creation)
    check_balancer(creation.client("ec2"), name, properties)
    request = properties.select("Subnets", "SecurityGroups", "Scheme", "Type", "IpAddressType")
    if "SecurityGroups" not in request and properties.get("Type", "application") == "application":
        # The default group of the VPC (`CreateLoadBalancer`).
        request["SecurityGroups"] = [_find_default_group(creation, properties["Subnets"][0])]
    answer = elb.create_load_balancer(Name=name, Tags=creation.tags(), **request)["LoadBalancers"][0]
    arn = answer["LoadBalancerArn"]
    attributes = properties.get("LoadBalancerAttributes", [])
    if attributes:
        elb.modify_load_balancer_attributes(LoadBalancerArn=arn, Attributes=attributes)
    values = {
        "LoadBalancerArn": arn,
        "LoadBalancerName": name,
        "LoadBalancerFullName": arn.partition("loadbalancer/")[2],
        "DNSName": answer["DNSName"],
        "CanonicalHostedZoneID": answer["CanonicalHostedZoneId"],
        "SecurityGroups": answer.get("SecurityGroups", []),
    }
    return Created(arn, values, delete=partial(_delete_balancer, elb, arn))


def _delete_balancer(elb: Any, arn: str) -> None:
    rows = elb.describe_load_balancer_attributes(LoadBalancerArn=arn)["Attributes"]
    if {"Key": "deletion_protection.enabled", "Value": "true"} in rows:
        raise RuntimeError(f"Load balancer '{arn}' cannot be deleted because deletion protection is enabled")
    elb.delete_load_balancer(LoadBalancerArn=arn)


def _find_default_group(creation: Creation, subnet: str) -> str:
    ec2 = creation.client("ec2")
    vpc = ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["VpcId"]
    here = [{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}]
    return str(ec2.describe_security_groups(Filters=here)["SecurityGroups"][0]["GroupId"])


def _create_target_group(creation: Creation) -> Created:
    elb, properties = creation.client("elbv2"), creation.properties
    request = _type_numbers(
        properties.select(
            *("Protocol", "ProtocolVersion", "Port", "VpcId", "TargetType", "Matcher", "IpAddressType"),
            *("HealthCheckProtocol", "HealthCheckPort", "HealthCheckPath", "HealthCheckIntervalSeconds"),
            *("HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount"),
        )
    )
    is_network = request.get("Protocol") not in ("HTTP", "HTTPS")
    if is_network and request.get("HealthCheckProtocol") in ("HTTP", "HTTPS"):
        request.setdefault("Matcher", {"HttpCode": "200-399"})  # default of Network Load Balancers (`Matcher`)
    name = properties.get("Name") or _make_name(creation)
    answer = elb.create_target_group(Name=name, Tags=creation.tags(), **request)["TargetGroups"][0]
    arn = answer["TargetGroupArn"]
    if attributes := properties.get("TargetGroupAttributes", []):
        elb.modify_target_group_attributes(TargetGroupArn=arn, Attributes=attributes)
    if targets := properties.get("Targets", []):
        elb.register_targets(TargetGroupArn=arn, Targets=[_type_numbers(target) for target in targets])
    values = {
        "TargetGroupArn": arn,
        "TargetGroupName": name,
        "TargetGroupFullName": arn.rpartition(":")[2],
        "LoadBalancerArns": partial(_list_balancers, elb, arn),
    }
    return Created(arn, values, delete=partial(elb.delete_target_group, TargetGroupArn=arn))


def _list_balancers(elb: Any, arn: str) -> list[str]:
    arns: list[str] = elb.describe_target_groups(TargetGroupArns=[arn])["TargetGroups"][0]["LoadBalancerArns"]
    return arns


def _create_listener(creation: Creation) -> Created:
    elb, properties = creation.client("elbv2"), creation.properties
    check_listener(elb, properties)
    request = _type_numbers(
        properties.select("LoadBalancerArn", "Port", "Protocol", "DefaultActions", "SslPolicy", "AlpnPolicy")
    )
    if certificates := properties.get("Certificates", []):
        request["Certificates"] = certificates
    arn = elb.create_listener(**request)["Listeners"][0]["ListenerArn"]
    return Created(arn, {"ListenerArn": arn}, delete=partial(elb.delete_listener, ListenerArn=arn))


def _create_rule(creation: Creation) -> Created:
    elb, properties = creation.client("elbv2"), creation.properties
    request = _type_numbers(properties.select("ListenerArn", "Priority", "Conditions", "Actions"))
    (listener,) = elb.describe_listeners(ListenerArns=[properties["ListenerArn"]])["Listeners"]
    check_actions(elb, listener["LoadBalancerArn"], properties["Actions"])
    arn = elb.create_rule(**request)["Rules"][0]["RuleArn"]
    return Created(arn, {"RuleArn": arn, "IsDefault": False}, delete=partial(elb.delete_rule, RuleArn=arn))


def _make_name(creation: Creation) -> str:
    """Make up a name without the two hyphens in a row that a cut stack name can lead to."""
    return creation.name(_MOST_LETTERS).replace("--", "-")


def _type_numbers(value: Any) -> Any:
    """
    Return numbers as the API's type; CloudFormation takes them as text too.

    Ports of checks and of redirects stay texts.
    """
    if isinstance(value, list):
        return [_type_numbers(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: int(entry) if name in _NUMBERS else entry if name == "RedirectConfig" else _type_numbers(entry)
        for name, entry in value.items()
    }


CREATORS: dict[str, Creator] = {
    "AWS::ElasticLoadBalancingV2::LoadBalancer": _create_balancer,
    "AWS::ElasticLoadBalancingV2::TargetGroup": _create_target_group,
    "AWS::ElasticLoadBalancingV2::Listener": _create_listener,
    "AWS::ElasticLoadBalancingV2::ListenerRule": _create_rule,
}
