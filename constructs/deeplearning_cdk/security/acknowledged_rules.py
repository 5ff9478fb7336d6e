"""
The few rules of security gates that a cluster does not follow, each with the reason.

Teams run cdk-nag, checkov and others over the stacks that they deploy. What these find in a cluster is mended; what
cannot be is acknowledged here, on the one resource that it is about, so that nobody who imports the library has to.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Acknowledgment, CfnResource, Stack, Validations
from constructs import IConstruct

_CHECKOV = "checkov"


@dataclass(frozen=True, kw_only=True)
class AcknowledgedRule:
    """
    A rule that a cluster does not follow.

    Attributes:
        reason: Why, and what holds instead.
        nag_ids: Its ids in cdk-nag, by pack, without the pack's prefix.
        checkov_ids: Its ids in checkov, each with the type of the resources that it is about.
        is_granular: Whether cdk-nag names each finding by itself, so that each is acknowledged by itself.
    """

    reason: str
    nag_ids: Mapping[str, str] = field(default_factory=dict)
    checkov_ids: Mapping[str, str] = field(default_factory=dict)
    is_granular: bool = False


ACKNOWLEDGED_RULES: Mapping[str, AcknowledgedRule] = {
    "wildcard-resources": AcknowledgedRule(
        reason=(
            "These actions either take no resource in IAM, such as describing groups or opening a session's channel, "
            "or what they are for gets its name or comes to exist only later, such as a log stream, or Auto Scaling's "
            "role in a key's policy; a condition or the beginning of the name then holds what may be matched."
        ),
        nag_ids={"AwsSolutions": "IAM5"},
        checkov_ids={"CKV_AWS_33": "AWS::KMS::Key"},
        is_granular=True,
    ),
    "worker-doorbell-without-redrive": AcknowledgedRule(
        reason=(
            "Every worker must see every ring, so nobody deletes one: it is received many times and expires after five "
            "minutes, and a redrive would take it away from the workers that have not seen it yet."
        ),
        nag_ids={"AwsSolutions": "SQS3"},
    ),
    "function-concurrency": AcknowledgedRule(
        reason=(
            "The functions are woken by a timer and by few events, and write with conditions, so that several at once "
            "do no harm; a reservation would take its share from the account's other functions, and is refused in an "
            "account with the smallest quota, where the cluster could then not be deployed."
        ),
        nag_ids={"NIST.800.53.R5": "LambdaConcurrency", "HIPAA.Security": "LambdaConcurrency"},
        checkov_ids={"CKV_AWS_115": "AWS::Lambda::Function"},
    ),
    "function-outside-vpc": AcknowledgedRule(
        reason=(
            "The functions call AWS alone, over TLS and with roles of a few actions, and reach nothing in the VPC; in "
            "the VPC they would need a route to endpoints that a user's VPC may lack, and would sit on the network "
            "of the nodes, whose failures they must report."
        ),
        nag_ids={
            "NIST.800.53.R5": "LambdaInsideVPC",
            "HIPAA.Security": "LambdaInsideVPC",
            "PCI.DSS.321": "LambdaInsideVPC",
        },
        checkov_ids={"CKV_AWS_117": "AWS::Lambda::Function"},
    ),
    "members-say-anything": AcknowledgedRule(
        reason=(
            "MPI, NCCL and Gloo choose their ports at run time, and EFA needs all traffic within its security group; "
            "the rule admits the members of that one group and no address, and SSH among them asks for a key."
        ),
        nag_ids={
            "NIST.800.53.R5": "EC2RestrictedCommonPorts",
            "HIPAA.Security": "EC2RestrictedCommonPorts",
            "PCI.DSS.321": "EC2RestrictedCommonPorts",
        },
    ),
    "default-security-group": AcknowledgedRule(
        reason=(
            "CloudFormation cannot close a VPC's default group without a function that changes it; no interface of the "
            "cluster is in that group, and it admits nobody but its own members, of which there are none."
        ),
        nag_ids={
            "NIST.800.53.R5": "VPCDefaultSecurityGroupClosed",
            "HIPAA.Security": "VPCDefaultSecurityGroupClosed",
            "PCI.DSS.321": "VPCDefaultSecurityGroupClosed",
        },
    ),
    "public-route": AcknowledgedRule(
        reason=(
            "The public subnet of a new VPC has the NAT gateway, and the master when SSH is opened to a peer, and both "
            "need a route to the Internet and an address there; workers never stand in it, the subnet gives no address "
            "by itself, and isolated clusters have no such subnet."
        ),
        nag_ids={
            "NIST.800.53.R5": "VPCNoUnrestrictedRouteToIGW",
            "HIPAA.Security": "VPCNoUnrestrictedRouteToIGW",
            "PCI.DSS.321": "VPCNoUnrestrictedRouteToIGW",
        },
        checkov_ids={"CKV_AWS_88": "AWS::EC2::LaunchTemplate"},
    ),
    "log-group-default-encryption": AcknowledgedRule(
        reason=(
            "A log group must outlive a creation that failed, since it says why, and a key of the cluster's own does "
            "not; it is encrypted with the key of CloudWatch Logs, and with the customer's key when one is passed."
        ),
        nag_ids={
            "NIST.800.53.R5": "CloudWatchLogGroupEncrypted",
            "HIPAA.Security": "CloudWatchLogGroupEncrypted",
            "PCI.DSS.321": "CloudWatchLogGroupEncrypted",
        },
        checkov_ids={"CKV_AWS_158": "AWS::Logs::LogGroup"},
    ),
}


def acknowledge(construct: IConstruct, rule_name: str, *, findings: Sequence[str] = ()) -> None:
    """
    Acknowledge a rule on one resource, for every tool that has it.

    Args:
        construct: The resource, or the construct whose default child it is.
        rule_name: Name of the rule in `ACKNOWLEDGED_RULES`.
        findings: The resources with a wildcard, as they stand in the statements; each is acknowledged by itself.
            Default: none, as for every rule but `wildcard-resources`.

    Raises:
        ValueError: The rule is not in the table, or is granular and has no findings, or is not and has.
    """
    rule = ACKNOWLEDGED_RULES.get(rule_name)
    if rule is None:
        raise ValueError(
            f"rule_name must be one of {', '.join(ACKNOWLEDGED_RULES)}, got {rule_name!r}; mend the finding"
        )
    if rule.is_granular != bool(findings):
        wanted = "name what has the wildcard" if rule.is_granular else "be left out"
        raise ValueError(f"findings must {wanted} for {rule_name}, got {list(findings)!r}; see ACKNOWLEDGED_RULES")
    resource = _find_resource(construct)
    endings = [f"[Resource::{_flatten(Stack.of(resource).resolve(finding))}]" for finding in findings] or [""]
    ids = [f"{pack}::{pack}-{name}{ending}" for pack, name in rule.nag_ids.items() for ending in endings]
    Validations.of(resource).acknowledge(*(Acknowledgment(id=each, reason=rule.reason) for each in ids))
    skip = [
        {"id": each, "comment": rule.reason}
        for each, kind in rule.checkov_ids.items()
        if kind == resource.cfn_resource_type
    ]
    if skip:
        earlier = (resource.get_metadata(_CHECKOV) or {}).get("skip", [])
        resource.add_metadata(_CHECKOV, {"skip": [*earlier, *skip]})


def _find_resource(construct: IConstruct) -> CfnResource:
    child: Any = construct if CfnResource.is_cfn_resource(construct) else construct.node.default_child
    if not isinstance(child, CfnResource):
        raise ValueError(  # noqa: TRY004 - the user's construct is wrong, not its Python type.
            f"construct must be a resource or have one as its child Default or Resource, got {construct.node.path}; "
            "pass the resource"
        )
    return child


def _flatten(value: Any) -> str:
    """Write a resolved text as cdk-nag does, in whose ids it stands: references between angle brackets."""
    if isinstance(value, str):
        return value.replace("${", "<").replace("}", ">")
    if isinstance(value, dict):
        if "Fn::Join" in value:
            delimiter, items = value["Fn::Join"]
            return str(delimiter).join(_flatten(item) for item in items)
        if "Fn::Sub" in value:
            return _flatten(value["Fn::Sub"])
        if "Fn::GetAtt" in value:
            name, attribute = value["Fn::GetAtt"]
            return f"<{_flatten(name)}.{_flatten(attribute)}>"
        if "Ref" in value:
            return f"<{_flatten(value['Ref'])}>"
    return json.dumps(value, separators=(",", ":"))
