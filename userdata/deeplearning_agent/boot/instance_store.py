"""
Scratch folder on the node's instance store: /opt/deeplearning/local, with or without declared data.

AWS's Deep Learning images combine the instance store's devices themselves and mount them on /opt/dlami/nvme. On other
images the devices have no file system. On EMR they belong to EMR, for HDFS, logs and scratch below /mnt (EMR management
guide, "Instance storage" and "Using a custom AMI"). They lose their content when the instance stops
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/add-instance-store-volumes.html). Several become one RAID 0, as
AWS's guide to RAID describes (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/raid-config.html).
"""

import logging
import os
import secrets
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from deeplearning_agent.boot.mounts import is_mounted
from deeplearning_contract.names import EMR_INFO_DIRECTORY
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.packages import install_optional
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
LOCAL_LINK = "/opt/deeplearning/local"
IMAGE_MOUNT = "/opt/dlami/nvme"
EMR_FOLDER = "/mnt/deeplearning"
OWN_MOUNT = "/mnt/deeplearning-local"
ROOT_FOLDER = "/var/lib/deeplearning/local"
PROBE_SECONDS = 30
DEVICE_FOLDER = "/dev/disk/by-id"
DEVICE_PREFIX = "nvme-Amazon_EC2_NVMe_Instance_Storage_"
LABEL = "deeplearning"
ARRAY = f"/dev/md/{LABEL}"
"""The array's name: `--homehost=any` makes udev assemble it under this name on every machine (mdadm(8), md(4))."""
ARRAY_SECONDS = 120
NOTHING_FOUND = 2
"""Status of `blkid -p` for a device without content that it recognizes."""
FORMAT_SECONDS = 300
INSTALL_SECONDS = 120
_FORMATS = (("mkfs.ext4", ("-q", "-m", "0", "-E", "nodiscard", "-L", LABEL)), ("mkfs.xfs", ("-q", "-K", "-L", LABEL)))


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
    words: str = ""  # Description of the content, for the log; empty for an empty device


def prepare_local_disk(node: Node, deadline: Deadline) -> str:
    """
    Prepare the scratch folder on the instance store, or on the root volume where there is none, and return it.

    On EMR it is below /mnt, and the devices are EMR's unless the image has mounted them.

    Effects: one file system over all empty instance-store devices, as a RAID 0 when there are several; its mount; the
    folder, which belongs to the login user; the link /opt/deeplearning/local to it. A device with any content is
    never written to. Installs mdadm where several devices need it and the image lacks it.
    """
    if is_mounted(node, IMAGE_MOUNT):
        folder = f"{IMAGE_MOUNT}/deeplearning"
    elif node.path(EMR_INFO_DIRECTORY).is_dir():
        folder = EMR_FOLDER
    elif is_mounted(node, OWN_MOUNT) or _mount_store(node, deadline):
        folder = f"{OWN_MOUNT}/deeplearning"
    else:
        level = logging.WARNING if find_devices(node) else logging.INFO
        LOG.log(level, "no instance store can be used: %s is on the root volume", LOCAL_LINK)
        folder = ROOT_FOLDER
    path = node.path(folder)
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, *node.login_user().owner)
    _point(node.path(LOCAL_LINK), path)
    return folder


def _mount_store(node: Node, deadline: Deadline) -> bool:
    """Mount the instance store, formatting it if it is empty; return whether it is mounted."""
    devices = []
    for name in find_devices(node):
        try:
            devices.append(read_device(node, name))
        except ProgramError as error:  # noqa: PERF203 - a device each
            LOG.warning("%s cannot be used: %s", name, error)
    for device in devices:
        if device.holding is Holding.OTHER:
            LOG.warning("%s is not used: %s", device.name, device.words)
    try:
        target = _choose(node, devices, deadline)
        return target is not None and _mount(node, target)
    except (ProgramError, StageFailure) as error:
        LOG.warning("the instance store cannot be used: %s", error)
        return False


def _choose(node: Node, devices: list[StoreDevice], deadline: Deadline) -> str | None:
    """
    Return the device to mount; None without any.

    A file system of an earlier boot comes first. After a stop of the instance all devices are empty.
    """
    held = {kind: [device.name for device in devices if device.holding is kind] for kind in Holding}
    if held[Holding.MEMBER]:
        return assemble_array(node, held[Holding.MEMBER])
    if held[Holding.OWN]:
        return held[Holding.OWN][0]
    empty = held[Holding.NOTHING]
    if len(empty) > 1:
        if install_optional(node, "mdadm", ["mdadm"], deadline.at_most(INSTALL_SECONDS)):
            return create_array(node, empty)
        LOG.warning(
            "the image lacks mdadm, so only %s of %d instance-store devices is used; use an image that has it",
            empty[0],
            len(empty),
        )
    return empty[0] if empty else None


def _mount(node: Node, name: str) -> bool:
    device = read_device(node, name)
    if device.holding is Holding.NOTHING:
        _format(node, name)
    elif device.holding is not Holding.OWN:
        LOG.warning("%s is not used: %s", name, device.words)
        return False
    node.programs.run(["mkdir", "-p", str(node.path(OWN_MOUNT))], timeout_seconds=PROBE_SECONDS)
    node.programs.run(["mount", name, str(node.path(OWN_MOUNT))], timeout_seconds=FORMAT_SECONDS)
    return True


def _format(node: Node, name: str) -> None:
    for program, options in _FORMATS:
        if node.programs.has(program):
            node.programs.run([program, *options, name], timeout_seconds=FORMAT_SECONDS)
            return
    raise StageFailure("the image has neither mkfs.ext4 nor mkfs.xfs", "use an image that has one")


def find_devices(node: Node) -> list[str]:
    """Return the instance-store devices without their partitions, each once: a namespace has two names."""
    folder = node.path(DEVICE_FOLDER)
    names = sorted(folder.glob(f"{DEVICE_PREFIX}*")) if folder.is_dir() else []
    found = {str(name.resolve()): str(name) for name in reversed(names) if "-part" not in name.name}
    return sorted(found.values())


def read_device(node: Node, name: str) -> StoreDevice:
    """Read the content from the device, since the system's list may be stale; ProgramError if it is unreadable."""
    try:
        found = node.programs.run(["blkid", "-p", "-o", "export", name], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.status == NOTHING_FOUND and not error.output.strip():
            return _see_unused(node, name)
        raise
    facts = dict(line.split("=", 1) for line in found.splitlines() if "=" in line)
    is_member = facts.get("TYPE") == "linux_raid_member"
    if facts.get("LABEL", "").rpartition(":")[2] == LABEL:
        return StoreDevice(name, Holding.MEMBER if is_member else Holding.OWN, "it belongs to this program")
    return StoreDevice(name, Holding.OTHER, f"it is not empty: {' '.join(found.split())[:200]}")


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
    """Return an empty device unless it is in use; blkid ends with the same status when it cannot see the device."""
    real = Path(name).resolve().name
    holders = node.path(f"/sys/class/block/{real}/holders")
    if holders.is_dir() and any(holders.iterdir()):
        return StoreDevice(name, Holding.OTHER, "it is part of another device")
    mounts = node.path("/proc/mounts")
    is_mounted = mounts.exists() and any(line.split()[0] == f"/dev/{real}" for line in mounts.read_text().splitlines())
    return StoreDevice(name, Holding.OTHER, "it is mounted") if is_mounted else StoreDevice(name, Holding.NOTHING)


def _point(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    link.parent.mkdir(parents=True, exist_ok=True)
    new.symlink_to(target)
    new.rename(link)
