"""The lab's EFS and FSx for Lustre: the folders behind file systems, and a node's mount targets among them."""

import os
import threading
from pathlib import Path

from cdk_rehearsal.machine import AccessPoint, LustreTarget, Machine


class FileSystems:
    """Folders of all file systems, each made on demand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Machines that boot at once use the same access point.
        self._lock = threading.Lock()

    def open(self, file_system_id: str) -> Path:
        """Return the folder behind a file system; a new one belongs to root with mode 0755, as on AWS."""
        folder = self._folder / file_system_id
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return folder

    def find_roots(self, machine: Machine) -> tuple[Path, ...]:
        """Return the folders that a machine may mount of EFS; roots of access points are made as EFS makes them."""
        self.describe_targets(machine)
        points = [
            self.open(point.file_system_id) / point.path.lstrip("/")
            for point in machine.access_points.values()
            if point.file_system_id in machine.mount_targets
        ]
        return tuple(dict.fromkeys(path for path in (*map(self.open, machine.mount_targets), *points) if path.is_dir()))

    def describe_targets(self, machine: Machine) -> dict[str, object]:
        """
        Return the mount targets for the mount helpers of a machine.

        Roots of access points are made where EFS would, and files of linked buckets where nobody has written one.
        """
        addresses = machine.mount_targets
        points = {name: point for name, point in machine.access_points.items() if point.file_system_id in addresses}
        for point in points.values():
            self._make_root(point)
        for name, target in machine.lustre.items():
            self.fill(name, target)
        return {
            "region": machine.region,
            "addresses": dict(addresses),
            "access_points": {
                name: {"file_system_id": point.file_system_id, "path": point.path} for name, point in points.items()
            },
            "lustre": {
                name: {"dns_name": target.dns_name, "mount_name": target.mount_name}
                for name, target in machine.lustre.items()
            },
        }

    def fill(self, file_system_id: str, target: LustreTarget) -> None:
        """Copy the files of linked buckets to a file system, where nobody has written one."""
        folder = self.open(file_system_id)
        for name, content in target.files.items():
            path = folder / name.lstrip("/")
            # The key of a folder itself ends with a slash.
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(content)

    def _make_root(self, point: AccessPoint) -> None:
        folder = self.open(point.file_system_id) / point.path.lstrip("/")
        with self._lock:
            if point.owner is not None and not folder.exists():
                folder.mkdir(parents=True)
                os.chown(folder, point.owner.uid, point.owner.gid)
                folder.chmod(point.owner.mode)
