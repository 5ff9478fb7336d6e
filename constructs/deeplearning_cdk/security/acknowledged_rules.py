"""
Rules of security gates that a cluster does not follow, each with the reason.

Teams run cdk-nag, checkov and others on the stacks that they deploy. Their findings in a cluster are fixed. Those that
cannot be fixed are acknowledged here, each on one resource, so that users of the library need not acknowledge them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Acknowledgment, CfnResource, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import IConstruct

from deeplearning_cdk.props.check import is_token

_CHECKOV = ("checkov", "skip")
_NAG_2 = ("cdk_nag", "rules_to_suppress")
"""Key and list of cdk-nag 2, whose packs are aspects; cdk-nag 3 reads the CDK's own acknowledgements."""


@dataclass(frozen=True, kw_only=True)
class AcknowledgedRule:
    """
    A rule that a cluster does not follow.

    Attributes:
        reason: Reason not to follow the rule, and the protection used instead.
        nag_ids: Its ids in cdk-nag, by pack, without the pack's prefix.
        checkov_ids: Its ids in checkov, each with the type of the resources that it checks.
        is_granular: True if cdk-nag reports each finding separately, so that each is acknowledged separately.
    """

    reason: str
    nag_ids: Mapping[str, str] = field(default_factory=dict)
    checkov_ids: Mapping[str, type[CfnResource]] = field(default_factory=dict)
    is_granular: bool = False


ACKNOWLEDGED_RULES: Mapping[str, AcknowledgedRule] = {
    "wildcard-resources": AcknowledgedRule(
        reason=(
            "These actions take no resource in IAM, such as describing groups or opening a session's channel, "
            "or apply to resources that are created or named only later, such as a log stream, or Auto Scaling's "
            "role in a key's policy; a condition or the prefix of the name then limits the match."
        ),
        nag_ids={"AwsSolutions": "IAM5"},
        checkov_ids={"CKV_AWS_33": kms.CfnKey},
        is_granular=True,
    ),
    "queue-without-redrive": AcknowledgedRule(
        reason=(
            "Every worker must receive every notification, so none is deleted: it is received many times and "
            "expires after five minutes, and a redrive would remove it before all workers have received it. On EMR, "
            "the queue is itself the dead-letter queue of a rule, which the check does not see."
        ),
        nag_ids={"AwsSolutions": "SQS3"},
    ),
    "function-concurrency": AcknowledgedRule(
        reason=(
            "A timer and few events invoke the functions, which write with conditions, so that concurrent invocations "
            "do no harm; a reservation would reduce the concurrency of the account's other functions, and is refused "
            "in an account with the smallest quota, where the deployment would then fail."
        ),
        nag_ids={"NIST.800.53.R5": "LambdaConcurrency", "HIPAA.Security": "LambdaConcurrency"},
        checkov_ids={"CKV_AWS_115": lambda_.CfnFunction},
    ),
    "function-outside-vpc": AcknowledgedRule(
        reason=(
            "The functions call only AWS, over TLS and with roles of few actions, and connect to nothing in the VPC; "
            "in the VPC they would need a route to endpoints that an existing VPC may lack, and would share the "
            "network of the nodes, whose failures they must report."
        ),
        nag_ids={
            "NIST.800.53.R5": "LambdaInsideVPC",
            "HIPAA.Security": "LambdaInsideVPC",
            "PCI.DSS.321": "LambdaInsideVPC",
        },
        checkov_ids={"CKV_AWS_117": lambda_.CfnFunction},
    ),
    "member-traffic": AcknowledgedRule(
        reason=(
            "MPI, NCCL and Gloo choose their ports at run time, and EFA needs all traffic within its security group; "
            "the rule allows only members of that group, no addresses, and SSH among them requires a key."
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
            "cluster is in that group, and it allows only its own members, of which there are none."
        ),
        nag_ids={
            "NIST.800.53.R5": "VPCDefaultSecurityGroupClosed",
            "HIPAA.Security": "VPCDefaultSecurityGroupClosed",
            "PCI.DSS.321": "VPCDefaultSecurityGroupClosed",
        },
    ),
    "public-route": AcknowledgedRule(
        reason=(
            "The public subnet of a new VPC contains the NAT gateway, and the master if SSH is open to a peer; both "
            "need a route to the Internet and a public address. It never contains workers, it assigns no public "
            "addresses by itself, and isolated clusters have no such subnet."
        ),
        nag_ids={
            "NIST.800.53.R5": "VPCNoUnrestrictedRouteToIGW",
            "HIPAA.Security": "VPCNoUnrestrictedRouteToIGW",
            "PCI.DSS.321": "VPCNoUnrestrictedRouteToIGW",
        },
        checkov_ids={"CKV_AWS_88": ec2.CfnLaunchTemplate},
    ),
    "log-group-default-encryption": AcknowledgedRule(
        reason=(
            "A log group must outlive a failed creation, whose cause it contains, and a key of the cluster's own does "
            "not; it is encrypted with the key of CloudWatch Logs, and with the customer's key when one is passed."
        ),
        nag_ids={
            "NIST.800.53.R5": "CloudWatchLogGroupEncrypted",
            "HIPAA.Security": "CloudWatchLogGroupEncrypted",
            "PCI.DSS.321": "CloudWatchLogGroupEncrypted",
        },
        checkov_ids={"CKV_AWS_158": logs.CfnLogGroup},
    ),
    "emr-disk-encryption": AcknowledgedRule(
        reason=(
            "The security configuration encrypts volumes and instance stores with the cluster's key, below "
            "EncryptionConfiguration, where EMR requires it; the rule looks for it at the top (cdk-nag 3.0.2)."
        ),
        nag_ids={"AwsSolutions": "EMR4"},
    ),
    "emr-in-transit": AcknowledgedRule(
        reason=(
            "EMR's encryption in transit needs certificates of the user and covers Hadoop's protocols, which carry no "
            "training data: ranks communicate over NCCL or MPI within the security groups, which it does not cover, "
            "files are on EFS over TLS, and logs go to S3 over TLS."
        ),
        nag_ids={"AwsSolutions": "EMR5"},
    ),
    "emr-login": AcknowledgedRule(
        reason=(
            "Nobody logs in with a key pair or Kerberos: users log in through Session Manager with their IAM identity, "
            "and members connect to each other with keys that the cluster makes."
        ),
        nag_ids={
            "AwsSolutions": "EMR6",
            "HIPAA.Security": "EMRKerberosEnabled",
            "PCI.DSS.321": "EMRKerberosEnabled",
        },
    ),
    "log-bucket-access": AcknowledgedRule(
        reason=(
            "The bucket contains only EMR's logs, which expire, or models of training jobs; a log of who reads them "
            "would need another bucket, and CloudTrail records its data events for an account that wants them."
        ),
        nag_ids={
            "AwsSolutions": "S1",
            "NIST.800.53.R5": "S3BucketLoggingEnabled",
            "HIPAA.Security": "S3BucketLoggingEnabled",
            "PCI.DSS.321": "S3BucketLoggingEnabled",
        },
        checkov_ids={"CKV_AWS_18": s3.CfnBucket},
    ),
    "log-bucket-copy": AcknowledgedRule(
        reason=(
            "The bucket contains only EMR's logs, which expire, or models, whose checkpoints are on the shared file "
            "system; a copy in another region would need a bucket, a role and a key there, and would leave the region "
            "that the user chose."
        ),
        nag_ids={
            "NIST.800.53.R5": "S3BucketReplicationEnabled",
            "HIPAA.Security": "S3BucketReplicationEnabled",
            "PCI.DSS.321": "S3BucketReplicationEnabled",
        },
    ),
}


def acknowledge(construct: IConstruct, *rule_names: str, findings: Sequence[Any] = ()) -> None:
    """
    Acknowledge rules once on one resource, or on the default child of a construct, for every tool that has the rules.

    The findings of a granular rule are the resources with a wildcard, resolved or as they are in the statements; other
    rules have none.

    Raises:
        ValueError: A rule is not in the table, or its findings are missing or superfluous.
    """
    rules = [_find_rule(name, findings) for name in rule_names]
    resource = _find_resource(construct)
    # Requests to jsii slow every synthesis down, and most findings are resolved already.
    is_resolved = all(isinstance(finding, dict) or not is_token(finding) for finding in findings)
    resolved = list(findings) if is_resolved else Stack.of(resource).resolve(list(findings))
    places = [f"Resource::{text}" for text in dict.fromkeys(map(_flatten, resolved))]
    nag = [(pack, f"{pack}-{name}", rule.reason) for rule in rules for pack, name in rule.nag_ids.items()]
    endings = [f"[{place}]" for place in places] or [""]
    Validations.of(resource).acknowledge(
        *(
            Acknowledgment(id=f"{pack}::{each}{ending}", reason=reason)
            for pack, each, reason in nag
            for ending in endings
        )
    )
    applies_to = {"applies_to": places} if places else {}
    _add_metadata(resource, _NAG_2, [{"id": each, "reason": reason, **applies_to} for _, each, reason in nag])
    skip = [
        {"id": each, "comment": rule.reason}
        for rule in rules
        for each, kind in rule.checkov_ids.items()
        if isinstance(resource, kind)
    ]
    if skip:
        _add_metadata(resource, _CHECKOV, skip)


def _add_metadata(resource: CfnResource, tool: tuple[str, str], entries: list[dict[str, Any]]) -> None:
    """Add entries to the list that a tool reads in the metadata of a resource."""
    key, name = tool
    present = resource.get_metadata(key) or {}
    resource.add_metadata(key, {**present, name: [*present.get(name, []), *entries]})


def _find_rule(name: str, findings: Sequence[Any]) -> AcknowledgedRule:
    rule = ACKNOWLEDGED_RULES.get(name)
    if rule is None:
        raise ValueError(f"rule_name must be one of {', '.join(ACKNOWLEDGED_RULES)}, got {name!r}; fix the finding")
    if rule.is_granular != bool(findings):
        wanted = "name what has the wildcard" if rule.is_granular else "be left out"
        raise ValueError(f"findings must {wanted} for {name}, got {list(findings)!r}; see ACKNOWLEDGED_RULES")
    return rule


def _find_resource(construct: IConstruct) -> CfnResource:
    child: Any = construct if isinstance(construct, CfnResource) else construct.node.default_child
    if not isinstance(child, CfnResource):
        raise ValueError(  # noqa: TRY004 - the user's construct is wrong, not its Python type.
            f"construct must be a resource or have one as its child Default or Resource, got {construct.node.path}; "
            "pass the resource"
        )
    return child


def _flatten(value: Any) -> str:
    """Return a resolved text as cdk-nag writes it in its ids: references between angle brackets."""
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
