"""
Finds the fastest disk of the node for data that is staged on each node by itself, and prepares it.

AWS's Deep Learning images join the instance store themselves and mount it on /opt/dlami/nvme. Elsewhere its devices
come without a file system, and lose what is on them when the instance stops
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/add-instance-store-volumes.html).
"""

import logging
import os
import secrets
from pathlib import Path

from deeplearning_agent.failure import StageFailure
from deeplearning_agent.node import Node
from deeplearning_agent.programs import ProgramError

LOG = logging.getLogger(__name__)
LOCAL_LINK = "/opt/deeplearning/local"
IMAGE_MOUNT = "/opt/dlami/nvme"
OWN_MOUNT = "/mnt/deeplearning-local"
ROOT_FOLDER = "/var/lib/deeplearning/local"
DEVICE_FOLDER = "/dev/disk/by-id"
DEVICE_PREFIX = "nvme-Amazon_EC2_NVMe_Instance_Storage_"
PROBE_SECONDS = 30
FORMAT_SECONDS = 300
NOTHING_FOUND = 2
"""The status of `blkid -p` for a device that holds nothing that it knows."""
LABEL = "deeplearning"
_FORMATS = (("mkfs.ext4", ("-q", "-m", "0", "-E", "nodiscard", "-L", LABEL)), ("mkfs.xfs", ("-q", "-K", "-L", LABEL)))


def prepare_local_disk(node: Node) -> str:
    """
    Prepare the folder for local data on the fastest disk that there is.

    Effects: a file system on an instance-store device that holds nothing; its mount; the folder, which is given to the
    login user; the link /opt/deeplearning/local to it. A device that holds anything is never touched.

    Returns:
        The folder.

    Raises:
        StageFailure: The image has no login user.
        OSError: The folder cannot be made.
    """
    if _is_mounted(node, IMAGE_MOUNT):
        folder = f"{IMAGE_MOUNT}/deeplearning"
    elif _is_mounted(node, OWN_MOUNT) or any(_take(node, device) for device in find_devices(node)):
        folder = f"{OWN_MOUNT}/deeplearning"
    else:
        LOG.warning("no instance store can be used: local data goes to %s on the root volume", ROOT_FOLDER)
        folder = ROOT_FOLDER
    path = node.path(folder)
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, *node.login_user().owner)
    _point(node.path(LOCAL_LINK), path)
    return folder


def find_devices(node: Node) -> list[str]:
    """Return the instance-store devices, each once: a namespace has two names. Partitions are none."""
    folder = node.path(DEVICE_FOLDER)
    names = sorted(folder.glob(f"{DEVICE_PREFIX}*")) if folder.is_dir() else []
    found = {str(name.resolve()): str(name) for name in reversed(names) if "-part" not in name.name}
    return sorted(found.values())


def _take(node: Node, device: str) -> bool:
    """Mount a device that this program made earlier, or that holds nothing; tell whether it did."""
    try:
        label = _read_label(node, device)
        if label not in {"", LABEL}:
            LOG.warning("%s is left alone: %s", device, label)
            return False
        if not label:
            _format(node, device)
        node.programs.run(["mkdir", "-p", str(node.path(OWN_MOUNT))], timeout_seconds=PROBE_SECONDS)
        node.programs.run(["mount", device, str(node.path(OWN_MOUNT))], timeout_seconds=FORMAT_SECONDS)
    except (ProgramError, StageFailure) as error:
        LOG.warning("%s cannot be used: %s", device, error)
        return False
    return True


def _read_label(node: Node, device: str) -> str:
    """
    Return what a device holds: nothing, the label of this program's own file system, or words for anything else.

    The device is read itself, because the system's own list may be older than what was written to it.

    Raises:
        ProgramError: It cannot be read.
    """
    try:
        found = node.programs.run(["blkid", "-p", "-o", "export", device], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.status == NOTHING_FOUND and not error.output.strip():
            return _see_unused(node, device)
        raise
    return LABEL if f"LABEL={LABEL}" in found.splitlines() else f"it holds something: {' '.join(found.split())[:200]}"


def _see_unused(node: Node, device: str) -> str:
    """Return nothing for a device that is not part of anything; blkid also ends so when it sees nothing at all."""
    name = Path(device).resolve().name
    holders = node.path(f"/sys/class/block/{name}/holders")
    if holders.is_dir() and any(holders.iterdir()):
        return "it is part of another device"
    mounts = node.path("/proc/mounts")
    is_mounted = mounts.exists() and any(line.split()[0] == f"/dev/{name}" for line in mounts.read_text().splitlines())
    return "it is mounted" if is_mounted else ""


def _format(node: Node, device: str) -> None:
    for program, options in _FORMATS:
        if node.programs.has(program):
            node.programs.run([program, *options, device], timeout_seconds=FORMAT_SECONDS)
            return
    raise StageFailure("the image has neither mkfs.ext4 nor mkfs.xfs", "give an image that has one")


def _is_mounted(node: Node, mount_point: str) -> bool:
    try:
        node.programs.run(["mountpoint", "-q", str(node.path(mount_point))], timeout_seconds=PROBE_SECONDS)
    except ProgramError:
        return False
    return True


def _point(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    new = link.with_name(f".{link.name}.{secrets.token_hex(4)}")
    link.parent.mkdir(parents=True, exist_ok=True)
    new.symlink_to(target)
    new.rename(link)
