"""Rules between properties that no other package has: neither cfn-lint, cdk-preflight nor the service models."""

import base64
import binascii
import functools
import gzip
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import DEFAULT_ACCOUNT
from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, get_map, get_maps, show

_USER_DATA_BYTES = 16384
_INTERFACE = (
    "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplateInstanceNetworkInterfaceSpecificationRequest"
    ".html"
)
_REQUEST = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html"
_KEY_POLICY = "https://docs.aws.amazon.com/kms/latest/APIReference/API_PutKeyPolicy.html"


def judge_launch_templates(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield what EC2 would refuse of launch templates, or of the launches from them."""
    for name, properties in template.list_type("AWS::EC2::LaunchTemplate"):
        data, path = get_map(properties, "LaunchTemplateData"), f"Resources.{name}.Properties.LaunchTemplateData"
        yield from _judge_user_data(data, path)
        yield from _judge_interfaces(data, path)
        yield from _judge_market(data, path)


def _judge_user_data(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    try:
        size = len(base64.b64decode(data.get("UserData", ""), validate=True))
    except (binascii.Error, ValueError, TypeError):
        return
    if size > _USER_DATA_BYTES:
        source = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html"
        remedy = "fetch the rest from S3 at boot"
        yield Violation(f"{path}.UserData", f"{size} or more", "must have at most 16384 bytes", source, remedy)


def _judge_interfaces(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    interfaces = get_maps(data, "NetworkInterfaces")
    facts = get_map(
        _read_moto("ec2", "resources", "instance_types.json.gz"), str(data.get("InstanceType")), "NetworkInfo"
    )
    seen = set()
    for index, interface in enumerate(interfaces):
        here = f"{path}.NetworkInterfaces.{index}"
        kind = str(interface.get("InterfaceType", "interface"))
        card, device = str(interface.get("NetworkCardIndex", 0)), str(interface.get("DeviceIndex", 0))
        if facts and kind.startswith("efa") and not facts.get("EfaSupported"):
            source = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"
            yield Violation(
                f"{here}.InterfaceType", kind, f"must be interface: {data['InstanceType']} has no EFA", source
            )
        if facts and card.isdigit() and int(card) >= facts.get("MaximumNetworkCards", 1):
            rule = f"must be below {facts.get('MaximumNetworkCards', 1)}, the network cards of {data['InstanceType']}"
            yield Violation(f"{here}.NetworkCardIndex", card, rule, _INTERFACE)
        if (card, device) in seen:
            rule = "must be another one than that of an interface on the same network card"
            yield Violation(f"{here}.DeviceIndex", device, rule, _INTERFACE)
        seen.add((card, device))
        if len(interfaces) > 1 and str(interface.get("AssociatePublicIpAddress")).lower() == "true":
            rule = "must be left out with several interfaces, to which EC2 gives no public address"
            yield Violation(f"{here}.AssociatePublicIpAddress", "true", rule, _INTERFACE)
    if interfaces:
        for key in ("SecurityGroupIds", "SecurityGroups"):
            if data.get(key):
                rule = "must be left out beside NetworkInterfaces, each of which has groups of its own"
                yield Violation(f"{path}.{key}", show(data[key]), rule, _REQUEST)


def _judge_market(data: Mapping[str, Any], path: str) -> Iterator[Violation]:
    market = get_map(data, "InstanceMarketOptions").get("MarketType")
    target = get_map(data, "CapacityReservationSpecification").get("CapacityReservationTarget")
    if market == "spot" and target:
        source = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-using.html"
        rule = "must not be spot beside a capacity reservation, which holds on-demand capacity"
        yield Violation(f"{path}.InstanceMarketOptions.MarketType", market, rule, source)
    if market == "capacity-block" and not target:
        source = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html"
        rule = "must come with CapacityReservationSpecification.CapacityReservationTarget, the block's reservation"
        yield Violation(f"{path}.InstanceMarketOptions.MarketType", market, rule, source)


@functools.cache
def _read_moto(*path: str) -> Any:
    """Return a file of what AWS answered to moto's authors."""
    found = importlib.util.find_spec("moto")
    folder = Path(str(found and found.origin)).parent
    return json.loads(gzip.decompress(folder.joinpath(*path).read_bytes()))


def judge_groups(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield groups of which `CreateAutoScalingGroup` refuses the launch template."""
    for name, _ in template.list_type("AWS::AutoScaling::AutoScalingGroup"):
        path = f"Resources.{name}.Properties"
        for other in template.list_references(name, "MixedInstancesPolicy"):
            market = get_map(template.resources[other]["Properties"], "LaunchTemplateData", "InstanceMarketOptions")
            if market.get("MarketType") == "spot":
                guide = "https://docs.aws.amazon.com/autoscaling/ec2/userguide"
                rule = f"must use a launch template without InstanceMarketOptions, got {other}"
                yield Violation(
                    f"{path}.MixedInstancesPolicy",
                    "",
                    rule,
                    f"{guide}/ec2-auto-scaling-mixed-instances-groups.html",
                    "set InstancesDistribution instead",
                )


def judge_keys(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield key policies that name a principal which is not made."""
    for name, properties in template.list_type("AWS::KMS::Key"):
        path = f"Resources.{name}.Properties.KeyPolicy"
        statements = get_maps(get_map(properties, "KeyPolicy"), "Statement")
        for index, entry in enumerate(statements):
            for arn in _list(get_map(entry, "Principal").get("AWS", ())):
                if _is_missing(template, str(arn)):
                    rule = "must be a principal that exists, and this template does not make it"
                    remedy = "make it here, or allow the account's root and let IAM policies decide"
                    yield Violation(f"{path}.Statement.{index}.Principal", show(arn), rule, _KEY_POLICY, remedy)


def _is_missing(template: ResolvedTemplate, arn: str) -> bool:
    """Return whether an ARN is that of a role or user of this account that the template does not make."""
    match = re.fullmatch(rf"arn:[a-z-]+:iam::{DEFAULT_ACCOUNT}:(role|user)/(?:.*/)?([^/]+)", arn)
    if match is None or "/aws-service-role/" in arn:
        return False
    kind, key = ("AWS::IAM::Role", "RoleName") if match[1] == "role" else ("AWS::IAM::User", "UserName")
    return match[2] not in [properties.get(key) for _, properties in template.list_type(kind)]


def judge_volumes(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield volumes of gp3 with more IOPS than EC2 gives, which cfn-lint's older limit would refuse too early."""
    for name, properties in template.list_type("AWS::EC2::LaunchTemplate"):
        for index, mapping in enumerate(get_maps(get_map(properties, "LaunchTemplateData"), "BlockDeviceMappings")):
            volume = get_map(mapping, "Ebs")
            rate = _read_number(volume.get("Iops"))
            if volume.get("VolumeType") == "gp3" and rate is not None and rate > 80000:  # noqa: PLR2004 - in the rule
                path = f"Resources.{name}.Properties.LaunchTemplateData.BlockDeviceMappings.{index}.Ebs.Iops"
                source = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EbsBlockDevice.html"
                yield Violation(path, f"{rate:g}", "must be at most 80000 for gp3", source)


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


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _read_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


RULES: tuple[Callable[[ResolvedTemplate], Iterator[Violation]], ...] = (
    judge_launch_templates,
    judge_groups,
    judge_keys,
    judge_volumes,
)
