"""The devices of the instance store: which there are, what each holds, and the RAID 0 that is made of empty ones."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

DEVICE_FOLDER = "/dev/disk/by-id"
DEVICE_PREFIX = "nvme-Amazon_EC2_NVMe_Instance_Storage_"
LABEL = "deeplearning"
ARRAY = f"/dev/md/{LABEL}"
"""The array's name: `--homehost=any` makes udev assemble it under this name on every machine (mdadm(8), md(4))."""
PROBE_SECONDS = 30
ARRAY_SECONDS = 120
NOTHING_FOUND = 2
"""The status of `blkid -p` for a device that holds nothing that it knows."""


class Holding(Enum):
    """The content of a device."""

    NOTHING = "nothing"
    OWN = "the file system that this program made"
    MEMBER = "a part of the array that this program made"
    OTHER = "anything else"


@dataclass(frozen=True)
class StoreDevice:
    """A device of the instance store, or the array of them."""

    name: str  # Its path
    holding: Holding  # Its content
    words: str = ""  # The content in words, for the log; empty when it holds nothing


def find_devices(node: Node) -> list[str]:
    """Return the instance-store devices, each once: a namespace has two names. Partitions are none."""
    folder = node.path(DEVICE_FOLDER)
    names = sorted(folder.glob(f"{DEVICE_PREFIX}*")) if folder.is_dir() else []
    found = {str(name.resolve()): str(name) for name in reversed(names) if "-part" not in name.name}
    return sorted(found.values())


def read_device(node: Node, name: str) -> StoreDevice:
    """
    Read a device's content from the device itself, because the system's list may be older; ProgramError if unreadable.
    """
    try:
        found = node.programs.run(["blkid", "-p", "-o", "export", name], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.status == NOTHING_FOUND and not error.output.strip():
            return _see_unused(node, name)
        raise
    facts = dict(line.split("=", 1) for line in found.splitlines() if "=" in line)
    is_member = facts.get("TYPE") == "linux_raid_member"
    if facts.get("LABEL", "").rpartition(":")[2] == LABEL:
        return StoreDevice(name, Holding.MEMBER if is_member else Holding.OWN, "it is this program's own")
    return StoreDevice(name, Holding.OTHER, f"it holds something: {' '.join(found.split())[:200]}")


def create_array(node: Node, names: list[str]) -> str:
    """Create one RAID 0 of empty devices, and return its path."""
    options = ["--run", "--level=0", "--metadata=1.2", f"--name={LABEL}", "--homehost=any"]
    array = str(node.path(ARRAY))
    argv = ["mdadm", "--create", array, *options, f"--raid-devices={len(names)}", *names]
    node.programs.run(argv, timeout_seconds=ARRAY_SECONDS)
    return array


def assemble_array(node: Node, names: list[str]) -> str:
    """Assemble the array of an earlier boot, unless udev has done so, and return its path."""
    array = node.path(ARRAY)
    if not array.exists():
        node.programs.run(["mdadm", "--assemble", str(array), *names], timeout_seconds=ARRAY_SECONDS)
    return str(array)


def _see_unused(node: Node, name: str) -> StoreDevice:
    """Return an empty device unless it is part of anything; blkid also ends so when it sees nothing at all."""
    real = Path(name).resolve().name
    holders = node.path(f"/sys/class/block/{real}/holders")
    if holders.is_dir() and any(holders.iterdir()):
        return StoreDevice(name, Holding.OTHER, "it is part of another device")
    mounts = node.path("/proc/mounts")
    is_mounted = mounts.exists() and any(line.split()[0] == f"/dev/{real}" for line in mounts.read_text().splitlines())
    return StoreDevice(name, Holding.OTHER, "it is mounted") if is_mounted else StoreDevice(name, Holding.NOTHING)
