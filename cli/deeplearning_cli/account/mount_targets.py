"""Mount targets of an EFS file system of the account that nodes mount."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from deeplearning_cli.account.answers import Answers, Refused, ask, find, read_pages
from deeplearning_cli.account.demand import NodeDemand, Zone, find_zone
from deeplearning_cli.account.finding import Finding
from deeplearning_rehearsal.intrinsics import read_literals

_SOURCE = re.compile(r'"file_system":\s*\{"kind":\s*"(?:nfs4|efs)",\s*"source":\s*"(fs-[0-9a-f]+)')
"""Id of a file system in the settings of a node."""


@dataclass(frozen=True)
class FileSystem:
    """A file system of the account, and the zones in which the stack adds a mount target to it."""

    id: str
    added: tuple[Zone | None, ...] = ()


@dataclass(frozen=True)
class MountTarget:
    """A mount target: its zone, VPC and state."""

    zone: str
    vpc: str
    state: str


def list_file_systems(templates: Sequence[Mapping[str, Any]]) -> tuple[FileSystem, ...]:
    """Return the file systems of the account that nodes mount or that the stack adds mount targets to."""
    added: dict[str, list[Zone | None]] = {}
    for resources in (template.get("Resources", {}) for template in templates):
        for resource in resources.values():
            properties = resource.get("Properties", {})
            if resource["Type"] == "AWS::EFS::MountTarget" and isinstance(properties["FileSystemId"], str):
                zone = find_zone([properties["SubnetId"]], resources)
                added.setdefault(properties["FileSystemId"], []).append(zone)
            elif resource["Type"] == "AWS::EC2::LaunchTemplate":
                settings = read_literals(properties["LaunchTemplateData"].get("UserData", ""))
                for name in _SOURCE.findall(settings):
                    added.setdefault(name, [])
    return tuple(FileSystem(name, tuple(zones)) for name, zones in added.items())


def read_mount_targets(
    clients: Callable[[str], Any], file_systems: Sequence[FileSystem]
) -> dict[str, tuple[MountTarget, ...] | Refused | None]:
    """Return file system -> mount targets; None where the account does not have it."""
    return {each.id: ask(partial(_read, clients("efs"), each.id)) for each in file_systems}


def _read(efs: Any, name: str) -> tuple[MountTarget, ...] | None:
    entries = find(
        lambda: read_pages(efs, "describe_mount_targets", "MountTargets", FileSystemId=name), "FileSystemNotFound"
    )
    if entries is None:
        return None
    return tuple(MountTarget(each["AvailabilityZoneName"], each["VpcId"], each["LifeCycleState"]) for each in entries)


def judge_file_systems(
    file_systems: Sequence[FileSystem],
    found: Mapping[str, tuple[MountTarget, ...] | Refused | None],
    demands: Sequence[NodeDemand],
    answers: Answers,
) -> Iterator[Finding]:
    """Judge each file system by the zones and the VPC of the nodes."""
    for each in file_systems:
        subject, targets = f"file system {each.id}", found[each.id]
        if isinstance(targets, Refused):
            yield Finding.refused(subject, targets, "elasticfilesystem:DescribeMountTargets")
        elif targets is None:
            yield Finding(subject, "wrong", "the account has none of that id in this region", "correct the id")
        else:
            yield _judge(subject, each, targets, demands, answers)


def _judge(
    subject: str,
    file_system: FileSystem,
    targets: Sequence[MountTarget],
    demands: Sequence[NodeDemand],
    answers: Answers,
) -> Finding:
    """
    Judge mount targets: all are in one VPC, and a zone has one at most.

    Sources: EFS User Guide, "Creating mount targets"; EFS API, `CreateMountTarget`.
    """
    zones = [demand.zone for demand in demands]
    for zone in (*zones, *file_system.added):
        if refusal := answers.find_refusal(zone):
            return Finding.refused(subject, refusal, "ec2:DescribeAvailabilityZones and ec2:DescribeSubnets")
    there = {target.zone: target for target in targets}
    vpcs = {demand.vpc for demand in demands} - {""}
    if other := min({target.vpc for target in targets if vpcs} - vpcs, default=""):
        remedy = "launch the nodes there, or choose a file system of their VPC"
        return Finding(subject, "wrong", f"its mount targets are in {other}, the nodes in {min(vpcs)}", remedy)
    added = {answers.place(zone) for zone in file_system.added} - {""}
    if taken := min(added & there.keys(), default=""):
        remedy = "pass the file system with its security group"
        return Finding(subject, "wrong", f"a zone takes one mount target, and {taken} has one already", remedy)
    needed = {answers.place(zone) for zone in zones} - {""} - added
    states = {zone: there[zone].state if zone in there else "missing" for zone in sorted(needed)}
    if bad := [f"{zone} {state}" for zone, state in states.items() if state != "available"]:
        remedy = "add a mount target there and wait until it is available, or choose another zone"
        return Finding(subject, "wrong", f"its mount targets must be available where nodes are, got {bad[0]}", remedy)
    if not needed | added:
        return Finding(subject, "unknown", "the zone of the nodes is not known", "name the zone")
    return Finding(subject, "ok", f"it has, or gets, a mount target in {', '.join(sorted(needed | added))}")
