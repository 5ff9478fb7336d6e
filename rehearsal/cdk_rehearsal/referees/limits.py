"""Limits of single properties that neither cfn-lint nor the service models know; a row each."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, get_maps, is_known, measure, show

_SQS = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html"
_LAMBDA = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
_EBS = "https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html"
_EC2 = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"
_ASG = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference"
_SSM = "https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html"


@dataclass(frozen=True)
class Limit:
    """
    A row of `LIMITS`.

    Attributes:
        type: The resource type.
        path: The property, by keys that are joined with dots; `*` is each entry of a list.
        rule: The sentence after the path.
        holds: Returns whether a known value keeps it; ValueError and TypeError count as no.
        source: The page that states it.
        remedy: What to do. Default: the rule says it.
    """

    type: str
    path: str
    rule: str
    holds: Callable[[Any], bool]
    source: str
    remedy: str = ""


def _between(lowest: float, highest: float) -> Callable[[Any], bool]:
    return lambda value: lowest <= float(value) <= highest


def _characters(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: lowest <= len(str(value)) <= highest


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: str(value) in choices


def _is_block(lowest: int, highest: int) -> Callable[[Any], bool]:
    return lambda value: lowest <= int(str(value).partition("/")[2]) <= highest


def _is_json(value: Any) -> bool:
    return isinstance(json.loads(str(value)), dict)


LIMITS = (
    Limit("AWS::SQS::Queue", "QueueName", "must have 1 to 80 characters", _characters(1, 80), _SQS),
    Limit("AWS::Lambda::Function", "MemorySize", "must be 128 to 10240", _between(128, 10240), _LAMBDA),
    Limit(
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateData.BlockDeviceMappings.*.Ebs.Throughput",
        "must be 125 to 2000 MiB/s",
        _between(125, 2000),
        _EBS,
    ),
    Limit(
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateData.NetworkInterfaces.*.InterfaceType",
        "must be interface, efa or efa-only",
        _one_of("interface", "efa", "efa-only"),
        f"{_EC2}/API_LaunchTemplateInstanceNetworkInterfaceSpecificationRequest.html",
    ),
    Limit(
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit",
        "must be 1 to 64",
        _between(1, 64),
        f"{_EC2}/API_LaunchTemplateInstanceMetadataOptionsRequest.html",
    ),
    Limit(
        "AWS::EC2::VPC",
        "CidrBlock",
        "must be a block of /16 to /28",
        _is_block(16, 28),
        "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html",
    ),
    Limit(
        "AWS::EC2::Subnet",
        "CidrBlock",
        "must be a block of /16 to /28",
        _is_block(16, 28),
        "https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html",
    ),
    Limit(
        "AWS::EC2::PlacementGroup",
        "PartitionCount",
        "must be 1 to 7",
        _between(1, 7),
        f"{_EC2}/API_CreatePlacementGroup.html",
    ),
    Limit(
        "AWS::AutoScaling::AutoScalingGroup",
        "MaxInstanceLifetime",
        "must be 0, or 86400 to 31536000 seconds",
        lambda value: int(value) == 0 or 86400 <= int(value) <= 31536000,  # noqa: PLR2004 - in the rule
        f"{_ASG}/API_CreateAutoScalingGroup.html",
    ),
    Limit(
        "AWS::AutoScaling::AutoScalingGroup",
        "MetricsCollection.*.Granularity",
        "must be 1Minute",
        _one_of("1Minute"),
        f"{_ASG}/API_EnableMetricsCollection.html",
    ),
    Limit(
        "AWS::AutoScaling::LifecycleHook",
        "HeartbeatTimeout",
        "must be 30 to 7200 seconds",
        _between(30, 7200),
        f"{_ASG}/API_PutLifecycleHook.html",
    ),
    Limit(
        "AWS::DynamoDB::Table",
        "TableName",
        "must have 3 to 255 characters",
        _characters(3, 255),
        "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateTable.html",
    ),
    Limit(
        "AWS::SNS::Subscription",
        "Protocol",
        "must be a protocol of SNS",
        _one_of("http", "https", "email", "email-json", "sms", "sqs", "application", "lambda", "firehose"),
        "https://docs.aws.amazon.com/sns/latest/api/API_Subscribe.html",
    ),
    Limit(
        "AWS::CloudWatch::Dashboard",
        "DashboardBody",
        "must be a JSON object",
        _is_json,
        "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutDashboard.html",
    ),
    Limit(
        "AWS::SSM::Parameter",
        "Name",
        "must not begin with aws or ssm",
        lambda value: re.match(r"(aws|ssm)|/(aws|ssm)(/|$)", str(value), re.IGNORECASE) is None,
        _SSM,
    ),
    *(
        Limit(
            kind,
            f"{prefix}{port}",
            "must be -1 to 65535",
            _between(-1, 65535),
            f"{_EC2}/API_AuthorizeSecurityGroupIngress.html",
        )
        for kind, prefix in (
            ("AWS::EC2::SecurityGroup", "SecurityGroupIngress.*."),
            ("AWS::EC2::SecurityGroup", "SecurityGroupEgress.*."),
            ("AWS::EC2::SecurityGroupIngress", ""),
            ("AWS::EC2::SecurityGroupEgress", ""),
        )
        for port in ("FromPort", "ToPort")
    ),
)


def judge_limits(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield the properties that are outside of a limit."""
    for limit in LIMITS:
        for name, properties in template.list_type(limit.type):
            for path, value in find_values(properties, limit.path.split("."), f"Resources.{name}.Properties"):
                if is_known(value) and not _holds(limit, value):
                    yield Violation(path, show(value), limit.rule, limit.source, limit.remedy)


def find_values(value: Any, keys: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """Yield path and value of each property below a value that the keys lead to."""
    if not keys:
        yield path, value
    elif keys[0] == "*" and isinstance(value, list):
        for index, entry in enumerate(value):
            yield from find_values(entry, keys[1:], f"{path}.{index}")
    elif isinstance(value, Mapping) and keys[0] in value:
        yield from find_values(value[keys[0]], keys[1:], f"{path}.{keys[0]}")


def _holds(limit: Limit, value: Any) -> bool:
    try:
        return limit.holds(value)
    except (ValueError, TypeError):
        return False


def judge_sizes(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield what is too large; tokens count as one character, so that nothing is refused which would fit."""
    iam = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
    for name, properties in template.list_type("AWS::IAM::ManagedPolicy"):
        size = _measure_policy(properties.get("PolicyDocument", {}))
        if size > 6144:  # noqa: PLR2004 - in the rule
            path = f"Resources.{name}.Properties.PolicyDocument"
            rule = "must have at most 6144 characters without white space"
            yield Violation(path, f"{size} or more", rule, iam, "split it into several managed policies")
    for name, properties in template.list_type("AWS::IAM::Role"):
        inline = [policy.get("PolicyDocument", {}) for policy in get_maps(properties, "Policies")]
        inline += [
            policy.get("PolicyDocument", {})
            for other, policy in template.list_type("AWS::IAM::Policy")
            if name in template.list_references(other, "Roles")
        ]
        size = sum(map(_measure_policy, inline))
        if size > 10240:  # noqa: PLR2004 - in the rule
            path = f"Resources.{name}.Properties.Policies"
            rule = "must have at most 10240 characters without white space, all inline policies together"
            yield Violation(path, f"{size} or more", rule, iam, "make managed policies of some of them")
    for name, properties in template.list_type("AWS::SSM::Parameter"):
        size = measure(str(properties.get("Value", "")))
        highest = 8192 if properties.get("Tier") in ("Advanced", "Intelligent-Tiering") else 4096
        if size > highest:
            path = f"Resources.{name}.Properties.Value"
            yield Violation(
                path, f"{size} or more", f"must have at most {highest} characters", _SSM, "use Tier: Advanced"
            )


def _measure_policy(document: Any) -> int:
    return measure(json.dumps(document, separators=(",", ":"), ensure_ascii=False))
