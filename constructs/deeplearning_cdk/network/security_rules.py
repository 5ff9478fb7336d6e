"""Security group rules with logical ids that do not depend on the stack's name, unlike those of `add_ingress_rule`."""

from typing import Any

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


def allow_ingress(
    scope: Construct,
    construct_id: str,
    *,
    group: ec2.ISecurityGroup,
    members: ec2.ISecurityGroup,
    port: ec2.Port,
    description: str,
) -> ec2.CfnSecurityGroupIngress:
    """Allow `members` of a security group to open connections to those of `group`, which may be the same."""
    rule: dict[str, Any] = port.to_rule_json()
    return ec2.CfnSecurityGroupIngress(
        scope,
        construct_id,
        group_id=group.security_group_id,
        source_security_group_id=members.security_group_id,
        ip_protocol=rule["ipProtocol"],
        from_port=rule.get("fromPort"),
        to_port=rule.get("toPort"),
        description=description,
    )
