"""Limits of single properties that neither cfn-lint, cdk-preflight nor the service models know; a row each."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, get_maps, is_known, measure, show

_EC2 = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference"


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


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: str(value) in choices


LIMITS = (
    Limit(
        "AWS::EC2::LaunchTemplate",
        "LaunchTemplateData.BlockDeviceMappings.*.Ebs.Throughput",
        "must be 125 to 2000 MiB/s",
        _between(125, 2000),
        "https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html",
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
        "AWS::EC2::PlacementGroup",
        "PartitionCount",
        "must be 1 to 7",
        _between(1, 7),
        f"{_EC2}/API_CreatePlacementGroup.html",
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


def _measure_policy(document: Any) -> int:
    return measure(json.dumps(document, separators=(",", ":"), ensure_ascii=False))
