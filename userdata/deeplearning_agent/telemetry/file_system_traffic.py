"""How much a node reads from and writes to the shared file system, as the kernel's NFS client counts it."""

import re
from dataclasses import dataclass

from deeplearning_node.node import Node

MOUNT_STATISTICS = "/proc/self/mountstats"
MIB = 1024 * 1024
_MOUNT = re.compile(r"device (\S+) mounted on (\S+) with fstype nfs4?(?: |$)")
_BYTES = re.compile(r"\s*bytes:\s+([0-9]+(?: [0-9]+){7})\s*")
_SERVER_READ, _SERVER_WRITE = 4, 5
"""Of the eight numbers: bytes that went over the network, whatever the page cache spared or added."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that were read and written since the file system was mounted, and when they were counted, in seconds."""

    at: float
    read: int
    written: int

    def rates_since(self, before: "Traffic") -> tuple[float, float] | None:
        """Return MiB read and written a second since an earlier count; None when it was of another mount."""
        seconds = self.at - before.at
        read, written = self.read - before.read, self.written - before.written
        return None if seconds <= 0 or read < 0 or written < 0 else (read / MIB / seconds, written / MIB / seconds)


def read_traffic(node: Node) -> Traffic | None:
    """
    Count what the shared file system has carried so far.

    efs-utils mounts NFS too, from a proxy on the node itself. None where it is no NFS, or is not mounted.
    """
    try:
        text = node.path(MOUNT_STATISTICS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    counted = parse_mount_statistics(text).get(node.settings.file_system.mount_point)
    return Traffic(node.clock.read(), *counted) if counted else None


def parse_mount_statistics(text: str) -> dict[str, tuple[int, int]]:
    """Return the bytes that each mounted NFS read from and wrote to its server, by mount point."""
    found: dict[str, tuple[int, int]] = {}
    mount_point = ""
    for line in text.splitlines():
        if line.startswith("device "):
            match = _MOUNT.match(line)
            mount_point = match[2] if match else ""
            continue
        counts = _BYTES.fullmatch(line) if mount_point else None
        if counts:
            numbers = [int(number) for number in counts[1].split()]
            found[mount_point] = numbers[_SERVER_READ], numbers[_SERVER_WRITE]
    return found
