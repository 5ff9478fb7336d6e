"""The mount targets and access points of EFS that an instance finds."""

from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.place import Place
from cdk_rehearsal.machine import AccessPoint, RootOwner


def find_mount_targets(place: Place, zone: str) -> dict[str, str]:
    """Return the address of each file system's mount target in a zone, by file-system id."""
    efs = place.client("efs")
    return {
        target["FileSystemId"]: target["IpAddress"]
        for file_system in efs.describe_file_systems()["FileSystems"]
        for target in efs.describe_mount_targets(FileSystemId=file_system["FileSystemId"])["MountTargets"]
        if target["AvailabilityZoneName"] == zone
    }


def find_access_points(place: Place) -> dict[str, AccessPoint]:
    """Return the access points by id."""
    points = place.client("efs").describe_access_points()["AccessPoints"]
    return {point["AccessPointId"]: _read_access_point(point) for point in points}


def _read_access_point(point: Mapping[str, Any]) -> AccessPoint:
    root = point.get("RootDirectory", {})
    info = root.get("CreationInfo")
    owner = RootOwner(info["OwnerUid"], info["OwnerGid"], int(info["Permissions"], 8)) if info else None
    return AccessPoint(point["FileSystemId"], root.get("Path", "/"), owner)
