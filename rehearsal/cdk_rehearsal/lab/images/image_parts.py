"""
What some images have and others have not, as layers over the one of all images.

An interpreter or a program that an image is not known to have is not there, as on AWS. What is large is in
`image_software`.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from cdk_rehearsal.lab.images.stand_in_layer import StandIn, make_launchers, write_files
from cdk_rehearsal.machine import ImagePart

PART_STAND_INS: Mapping[ImagePart, StandIn] = {
    "compilers": StandIn(
        "g++, make, python3-dev, pip, OpenMPI",
        "what Deep Learning AMIs have beside their driver",
        "Debian's packages of them, OpenMPI in /usr/bin and not in /opt/amazon/openmpi; no CUDA toolkit, no NCCL",
    ),
    "pytorch": StandIn(
        "/opt/pytorch",
        "the Python of the PyTorch images",
        "a virtual environment with PyTorch for the CPU, of the version that this machine's package index had; Python "
        "3.11 where the image has a later one",
    ),
    "python3.12": StandIn("/usr/bin/python3.12", "the Python of the base images", "the base root's Python"),
    "amazon-linux": StandIn(
        "dnf, mount.efs, cfn-signal",
        "Amazon Linux 2023, efs-utils and aws-cfn-bootstrap",
        "dnf knows one package, amazon-efs-utils, whose mount.efs checks zone and options and binds a folder, without "
        "TLS and IAM; cfn-signal signals resources and wait conditions; all else is the base root's Debian",
    ),
}
"""What each part is instead."""

PACKAGES = "usr/lib/lab/packages"
"""Below it each package that dnf can install, as a tree of files."""

_INTERPRETER = "/usr/bin/python3"


def write_image_part(folder: Path, part: ImagePart) -> None:
    """
    Write the layer of a part that is none of `image_software`'s.

    Args:
        folder: Where to; made when absent.
        part: Which part.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if part == "python3.12":
        _link(folder / "usr/bin/python3.12", _INTERPRETER)
    elif part == "amazon-linux":
        _write_amazon_linux(folder)


def _write_amazon_linux(folder: Path) -> None:
    launchers = {
        "usr/bin/dnf": ("dnf", "sys.argv[1:]"),
        "opt/aws/bin/cfn-signal": ("cfn_signal", "sys.argv[1:]"),
        f"{PACKAGES}/amazon-efs-utils/usr/sbin/mount.efs": ("mount_helper", '"mount.efs", sys.argv[1:]'),
    }
    write_files(folder, make_launchers(launchers))
    # A whiteout: overlayfs shows nothing where an upper layer has this device.
    os.mknod(folder / "usr/bin/apt-get", stat.S_IFCHR, os.makedev(0, 0))


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
