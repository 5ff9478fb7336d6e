"""The lab's EFS and FSx for Lustre: the folders behind file systems, and what a node may mount of them."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_rehearsal.machine import LustreTarget, Machine


@dataclass(frozen=True)
class AccessPoint:
    """
    An EFS access point.

    Attributes:
        file_system_id: Its file system.
        path: Its root directory, made with owner and mode when absent.
        uid: Owner.
        gid: Owning group.
        mode: Permission bits.
    """

    file_system_id: str
    path: str
    uid: int
    gid: int
    mode: int


class FileSystems:
    """
    Keeps the folders of all file systems.

    Args:
        folder: Where they are; made when the first one is asked for.
        access_points: Access point id -> what it is; read anew for each machine.
    """

    def __init__(self, folder: Path, access_points: Mapping[str, AccessPoint]) -> None:
        self._folder = folder
        self._access_points = access_points

    def open(self, file_system_id: str) -> Path:
        """Return the folder behind a file system; a new one belongs to root with mode 0755, as on AWS."""
        folder = self._folder / file_system_id
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return folder

    def describe_targets(self, machine: Machine) -> dict[str, object]:
        """
        Return what the mount helpers of a machine may mount.

        Roots of access points are made, and files that linked buckets hold are written where nobody has written one.
        """
        addresses = machine.mount_targets
        points = {name: point for name, point in self._access_points.items() if point.file_system_id in addresses}
        for point in points.values():
            self._make_root(point)
        for name, target in machine.lustre.items():
            self._fill(self.open(name), target)
        return {
            "region": machine.region,
            "addresses": dict(addresses),
            "access_points": {name: asdict(point) for name, point in points.items()},
            "lustre": {
                name: {"dns_name": target.dns_name, "mount_name": target.mount_name}
                for name, target in machine.lustre.items()
            },
        }

    def _fill(self, folder: Path, target: LustreTarget) -> None:
        for name, content in target.files.items():
            path = folder / name.lstrip("/")
            # The key of a folder itself ends with a slash.
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(content)

    def _make_root(self, point: AccessPoint) -> None:
        folder = self.open(point.file_system_id) / point.path.lstrip("/")
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, point.uid, point.gid)
            folder.chmod(point.mode)
