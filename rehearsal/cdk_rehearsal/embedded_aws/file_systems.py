"""File systems that nodes mount: FSx for Lustre, with the links to buckets that moto lacks, and EFS."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.machine import AccessPoint, LustreTarget, RootOwner
from cdk_rehearsal.place import Place

_SMALLEST, _STEP = 1200, 2400
_PERSISTENT, _SCRATCH = "PERSISTENT_2", "SCRATCH_2"
_THROUGHPUTS = (125, 250, 500, 1000)
_MOST_LINKS = 8


@dataclass(frozen=True)
class LustreLink:
    """A data repository association: a folder that shows the objects below a prefix of a bucket."""

    file_system_id: str
    path: str
    bucket: str
    prefix: str


class LustreFileSystems:
    """The FSx for Lustre file systems of one account and region."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._mount_names: dict[str, str] = {}
        self._links: dict[str, LustreLink] = {}

    def create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Create a file system and return how the API describes it; raise ValueError where FSx has none of the kind."""
        _check(request)
        file_system: dict[str, Any] = self._place.client("fsx").create_file_system(**request)["FileSystem"]
        letters = string.ascii_lowercase + string.digits
        mount_name = "".join(secrets.choice(letters) for _ in range(8))
        self._mount_names[file_system["FileSystemId"]] = mount_name
        return file_system | {"MountName": mount_name}

    def link(self, file_system_id: str, path: str, uri: str) -> str:
        """
        Link a folder of a file system with what is below a prefix of a bucket, and return the association's id.

        ValueError: no such file system, or the link overlaps another one. ClientError: no such bucket.
        """
        if file_system_id not in self._mount_names:
            raise ValueError(f"FileSystemId must name an FSx for Lustre file system, got {file_system_id}")
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        new = LustreLink(file_system_id, path, bucket, prefix)
        others = [link for link in self._links.values() if link.file_system_id == file_system_id]
        if not uri.startswith("s3://") or not path.startswith("/") or any(_overlap(new, other) for other in others):
            raise ValueError(f"FileSystemPath and DataRepositoryPath must not overlap others, got {path} and {uri}")
        if len(others) == _MOST_LINKS:
            raise ValueError(f"a file system must have at most {_MOST_LINKS} associations, got one more")
        self._place.client("s3").head_bucket(Bucket=bucket)
        association_id = f"dra-{secrets.token_hex(8)}1"
        self._links[association_id] = new
        return association_id

    def describe(self) -> dict[str, LustreTarget]:
        """Return what an instance that starts now would find, with the objects that the linked buckets hold."""
        if not self._mount_names:
            return {}
        answer = self._place.client("fsx").describe_file_systems()["FileSystems"]
        names = {entry["FileSystemId"]: entry["DNSName"] for entry in answer}
        return {
            identity: LustreTarget(names[identity], mount_name, self._read(identity))
            for identity, mount_name in self._mount_names.items()
        }

    def _read(self, file_system_id: str) -> dict[str, bytes]:
        s3 = self._place.client("s3")
        files: dict[str, bytes] = {}
        for link in (link for link in self._links.values() if link.file_system_id == file_system_id):
            pages = s3.get_paginator("list_objects_v2").paginate(Bucket=link.bucket, Prefix=link.prefix)
            for entry in (entry for page in pages for entry in page.get("Contents", [])):
                path = f"{link.path.rstrip('/')}/{entry['Key'].removeprefix(link.prefix)}"
                files[path] = s3.get_object(Bucket=link.bucket, Key=entry["Key"])["Body"].read()
        return files


def _check(request: Mapping[str, Any]) -> None:
    """Refuse what FSx refuses (FSx API, CreateFileSystem and CreateFileSystemLustreConfiguration)."""
    size, configuration = int(request["StorageCapacity"]), request.get("LustreConfiguration", {})
    if size != _SMALLEST and (size <= 0 or size % _STEP):
        raise ValueError(f"StorageCapacity must be {_SMALLEST}, {_STEP} or a multiple of {_STEP}, got {size}")
    if len(request["SubnetIds"]) != 1:
        raise ValueError(f"SubnetIds must be one subnet, got {len(request['SubnetIds'])}")
    deployment, throughput = configuration.get("DeploymentType"), configuration.get("PerUnitStorageThroughput")
    if deployment == _PERSISTENT and throughput not in _THROUGHPUTS:
        raise ValueError(f"PerUnitStorageThroughput must be one of {_THROUGHPUTS} with {deployment}, got {throughput}")
    if deployment == _SCRATCH and throughput is not None:
        raise ValueError(f"PerUnitStorageThroughput must be left out with {deployment}, got {throughput}")


def _overlap(one: LustreLink, other: LustreLink) -> bool:
    paths = sorted(f"{link.path.rstrip('/')}/" for link in (one, other))
    prefixes = sorted((one.prefix, other.prefix))
    return paths[1].startswith(paths[0]) or (one.bucket == other.bucket and prefixes[1].startswith(prefixes[0]))


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
