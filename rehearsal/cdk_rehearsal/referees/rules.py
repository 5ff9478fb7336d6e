"""Rules that no other package has: neither cfn-lint, cdk-preflight, AWS's engine nor the service models."""

import functools
import gzip
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.assembly import DEFAULT_ACCOUNT
from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import (
    ResolvedTemplate,
    find_values,
    get_map,
    get_maps,
    is_known,
    measure,
    show,
)

_EC2 = "https://docs.aws.amazon.com/AWSEC2/latest"
_INTERFACE = f"{_EC2}/APIReference/API_LaunchTemplateInstanceNetworkInterfaceSpecificationRequest.html"


def judge_limits(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield the properties that break a row of the table."""
    for row in _load_rows():
        owners = (
            (place, owner)
            for name, properties in template.list_type(row["type"])
            for place, owner in find_values(properties, row["object"], f"Resources.{name}.Properties")
            if all(_has(owner, path, wanted) for path, wanted in row.get("with", {}).items())
        )
        for place, owner in owners:
            for path, value in find_values(owner, row["property"], place):
                if not _is_taken(row, value):
                    yield Violation(path, show(value), row["words"], row["source"])


@functools.cache
def _load_rows() -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("own_rules.toml").read_text())["rules"]
    return rows


def _has(owner: Any, path: str, wanted: Any) -> bool:
    """Return whether an object has a property, or has it with a value."""
    found = [value for _, value in find_values(owner, path)]
    return bool(found) == wanted if isinstance(wanted, bool) else wanted in found


def _is_taken(row: Mapping[str, Any], value: Any) -> bool:
    """Return whether a row takes a value; one that a deployment alone knows keeps each limit."""
    limits = {"between", "one_of", "none_of"} & row.keys()
    if not limits or not is_known(value):
        return bool(limits)
    if "between" not in row:
        return str(value) in row["one_of"] if "one_of" in row else str(value).lower() not in row["none_of"]
    try:
        return bool(row["between"][0] <= float(value) <= row["between"][1])
    except (ValueError, TypeError):
        return False


def judge_interfaces(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield interfaces of launch templates that the instance type does not have, or that are at one place."""
    types = _read_moto("ec2", "resources", "instance_types.json.gz")
    for name, properties in template.list_type("AWS::EC2::LaunchTemplate"):
        data = get_map(properties, "LaunchTemplateData")
        kind = str(data.get("InstanceType"))
        facts, seen = get_map(types, kind, "NetworkInfo"), set[tuple[str, str]]()
        for index, interface in enumerate(get_maps(data, "NetworkInterfaces")):
            path = f"Resources.{name}.Properties.LaunchTemplateData.NetworkInterfaces.{index}"
            interface_type = str(interface.get("InterfaceType"))
            card, device = str(interface.get("NetworkCardIndex", 0)), str(interface.get("DeviceIndex", 0))
            if facts and interface_type.startswith("efa") and not facts.get("EfaSupported"):
                rule, source = f"must be interface: {kind} has no EFA", f"{_EC2}/UserGuide/efa.html"
                yield Violation(f"{path}.InterfaceType", interface_type, rule, source)
            if facts and card.isdigit() and int(card) >= facts.get("MaximumNetworkCards", 1):
                rule = f"must be below {facts.get('MaximumNetworkCards', 1)}, the network cards of {kind}"
                yield Violation(f"{path}.NetworkCardIndex", card, rule, _INTERFACE)
            if (card, device) in seen:
                rule = "must be another one than that of an interface on the same network card"
                yield Violation(f"{path}.DeviceIndex", device, rule, _INTERFACE)
            seen.add((card, device))


@functools.cache
def _read_moto(*path: str) -> Any:
    """Return a file of what AWS answered to moto's authors."""
    found = importlib.util.find_spec("moto")
    folder = Path(str(found and found.origin)).parent
    return json.loads(gzip.decompress(folder.joinpath(*path).read_bytes()))


def judge_groups(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield groups of which `CreateAutoScalingGroup` refuses the launch template."""
    guide = "https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-mixed-instances-groups.html"
    for name, _ in template.list_type("AWS::AutoScaling::AutoScalingGroup"):
        for other in template.list_references(name, "MixedInstancesPolicy"):
            data = get_map(template.resources[other]["Properties"], "LaunchTemplateData")
            if get_map(data, "InstanceMarketOptions").get("MarketType") == "spot":
                path = f"Resources.{name}.Properties.MixedInstancesPolicy"
                rule = f"must use a launch template without InstanceMarketOptions, got {other}"
                yield Violation(path, "", rule, guide, "set InstancesDistribution instead")


def judge_sizes(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield what is too large; tokens count as one character, so that nothing is refused which would fit."""
    quotas = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
    for name, properties in template.list_type("AWS::IAM::Role"):
        policies = [
            *get_maps(properties, "Policies"),
            *(
                policy
                for other, policy in template.list_type("AWS::IAM::Policy")
                if name in template.list_references(other, "Roles")
            ),
        ]
        texts = [
            json.dumps(each.get("PolicyDocument", {}), separators=(",", ":"), ensure_ascii=False) for each in policies
        ]
        size = sum(map(measure, texts))
        if size > 10240:  # noqa: PLR2004 - in the rule
            path = f"Resources.{name}.Properties.Policies"
            rule = "must have at most 10240 characters without white space, all inline policies together"
            yield Violation(path, f"{size} or more", rule, quotas, "make managed policies of some of them")


def judge_keys(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield key policies that name a principal which is not made."""
    source = "https://docs.aws.amazon.com/kms/latest/APIReference/API_PutKeyPolicy.html"
    for name, properties in template.list_type("AWS::KMS::Key"):
        place = f"Resources.{name}.Properties.KeyPolicy.Statement"
        for path, arn in find_values(get_map(properties, "KeyPolicy").get("Statement"), "Principal.AWS", place):
            if _is_missing(template, str(arn)):
                rule = "must be a principal that exists, and this template does not make it"
                remedy = "make it here, or allow the account's root and let IAM policies decide"
                yield Violation(path, show(arn), rule, source, remedy)


def _is_missing(template: ResolvedTemplate, arn: str) -> bool:
    """Return whether an ARN is that of a role or user of this account that the template does not make."""
    match = re.fullmatch(rf"arn:[a-z-]+:iam::{DEFAULT_ACCOUNT}:(role|user)/(?:.*/)?([^/]+)", arn)
    if match is None or "/aws-service-role/" in arn:
        return False
    kind, key = ("AWS::IAM::Role", "RoleName") if match[1] == "role" else ("AWS::IAM::User", "UserName")
    return match[2] not in [properties.get(key) for _, properties in template.list_type(kind)]


def judge_parameters(template: Mapping[str, Any]) -> Iterator[Violation]:
    """Yield public parameters of Amazon Linux that did not exist when moto listed them."""
    listed = _read_moto("ssm", "resources", "ami-amazon-linux-latest", "us-east-1.json.gz")
    known = {entry["Name"] for entry in listed}
    for name, declaration in template.get("Parameters", {}).items():
        value = str(declaration.get("Default", ""))
        prefix = "/aws/service/ami-amazon-linux-latest/"
        is_read = str(declaration.get("Type", "")).startswith("AWS::SSM::Parameter::Value<")
        if is_read and value.startswith(prefix) and value not in known:
            source = f"moto {importlib.metadata.version('moto')}, ssm/resources/ami-amazon-linux-latest"
            rule = f"must be one of the {len(known)} public parameters of Amazon Linux"
            yield Violation(f"Parameters.{name}.Default", value, rule, source)


RULES: tuple[Callable[[ResolvedTemplate], Iterator[Violation]], ...] = (
    judge_limits,
    judge_sizes,
    judge_interfaces,
    judge_groups,
    judge_keys,
)
