"""Rules of security groups whose ids do not depend on the stack's name, as those of `add_ingress_rule` do."""

from typing import Any

from aws_cdk import aws_ec2 as ec2
from constructs import Construct


def admit(
    scope: Construct,
    construct_id: str,
    *,
    group: ec2.ISecurityGroup,
    members: ec2.ISecurityGroup,
    port: ec2.Port,
    description: str,
) -> ec2.CfnSecurityGroupIngress:
    """
    Let the members of a security group open connections to those of another, or of the same.

    Args:
        scope: The parent of the rule.
        construct_id: The id in the parent.
        group: Whose members are reached.
        members: Who may reach them.
        port: Where.
        description: Why.
    """
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
