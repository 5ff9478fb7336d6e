"""
Makes the node's instance store one scratch folder, /opt/deeplearning/local, with or without declared data.

AWS's Deep Learning images join the instance store themselves and mount it on /opt/dlami/nvme. Elsewhere its devices
come without a file system, and lose what is on them when the instance stops
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/add-instance-store-volumes.html). Several become one RAID 0, as
AWS's guide to RAID describes (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/raid-config.html).
"""

import logging
import os
import secrets
from pathlib import Path

from deeplearning_agent.boot.instance_store_devices import (
    LABEL,
    Holding,
    StoreDevice,
    assemble_array,
    create_array,
    find_devices,
    read_device,
)
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.packages import install_optional
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
LOCAL_LINK = "/opt/deeplearning/local"
IMAGE_MOUNT = "/opt/dlami/nvme"
OWN_MOUNT = "/mnt/deeplearning-local"
ROOT_FOLDER = "/var/lib/deeplearning/local"
PROBE_SECONDS = 30
FORMAT_SECONDS = 300
INSTALL_SECONDS = 120
_FORMATS = (("mkfs.ext4", ("-q", "-m", "0", "-E", "nodiscard", "-L", LABEL)), ("mkfs.xfs", ("-q", "-K", "-L", LABEL)))


def prepare_local_disk(node: Node, deadline: Deadline) -> str:
    """
    Prepare the scratch folder on the instance store, or on the root volume where there is none, and return it.

    Effects: one file system over all empty instance-store devices, as a RAID 0 when there are several; its mount; the
    folder, which belongs to the login user; the link /opt/deeplearning/local to it. A device that holds anything is
    never written to. Installs mdadm where several devices need it and the image lacks it.
    """
    if _is_mounted(node, IMAGE_MOUNT):
        folder = f"{IMAGE_MOUNT}/deeplearning"
    elif _is_mounted(node, OWN_MOUNT) or _mount_store(node, deadline):
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
    """Mount the instance store, made into one file system if it holds nothing; return whether it is mounted."""
    devices = [device for name in find_devices(node) if (device := _read(node, name))]
    for device in devices:
        if device.holding is Holding.OTHER:
            LOG.warning("%s is left alone: %s", device.name, device.words)
    try:
        target = _choose(node, devices, deadline)
        return target is not None and _mount(node, target)
    except (ProgramError, StageFailure) as error:
        LOG.warning("the instance store cannot be used: %s", error)
        return False


def _choose(node: Node, devices: list[StoreDevice], deadline: Deadline) -> str | None:
    """
    Return the device that is to be mounted; None without any.

    What an earlier boot made comes first. Stopping an instance blanks all of its store, so then all are empty.
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
            "the image lacks mdadm, so only %s is used of %d instance-store devices; give an image that has it",
            empty[0],
            len(empty),
        )
    return empty[0] if empty else None


def _read(node: Node, name: str) -> StoreDevice | None:
    try:
        return read_device(node, name)
    except ProgramError as error:
        LOG.warning("%s cannot be used: %s", name, error)
        return None


def _mount(node: Node, name: str) -> bool:
    device = read_device(node, name)
    if device.holding is Holding.NOTHING:
        _format(node, name)
    elif device.holding is not Holding.OWN:
        LOG.warning("%s is left alone: %s", name, device.words)
        return False
    node.programs.run(["mkdir", "-p", str(node.path(OWN_MOUNT))], timeout_seconds=PROBE_SECONDS)
    node.programs.run(["mount", name, str(node.path(OWN_MOUNT))], timeout_seconds=FORMAT_SECONDS)
    return True


def _format(node: Node, name: str) -> None:
    for program, options in _FORMATS:
        if node.programs.has(program):
            node.programs.run([program, *options, name], timeout_seconds=FORMAT_SECONDS)
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
