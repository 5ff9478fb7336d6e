"""
What some images have and others have not, as layers over the one of all images.

An interpreter or a program that an image is not known to have is not there, as on AWS.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from deeplearning_rehearsal.lab.image_layer import StandIn, make_launchers, write_files
from deeplearning_rehearsal.machine import ImagePart

PART_STAND_INS: Mapping[ImagePart, StandIn] = {
    "pytorch": StandIn(
        "/opt/pytorch/bin/python",
        "the Python of the PyTorch images",
        "a virtual environment over the base root's Python, which sees the packages of the base root",
    ),
    "python3.12": StandIn("/usr/bin/python3.12", "the Python of the base images", "the base root's Python"),
    "amazon-linux": StandIn(
        "dnf, mount.efs",
        "Amazon Linux 2023 and efs-utils",
        "dnf knows one package, amazon-efs-utils, whose mount.efs checks zone and options and binds a folder, without "
        "TLS and IAM; all else is the base root's Debian",
    ),
}
"""What each part is instead."""

PACKAGES = "usr/lib/lab/packages"
"""Below it each package that dnf can install, as a tree of files."""

_INTERPRETER = "/usr/bin/python3"
_SYSTEM_PACKAGES = ("/usr/local/lib/{version}/dist-packages", "/usr/lib/python3/dist-packages")


def write_image_part(folder: Path, part: ImagePart, base_root: Path) -> None:
    """
    Write the layer of a part.

    Args:
        folder: Where to; made when absent.
        part: Which part.
        base_root: What the layer is laid over.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if part == "pytorch":
        _write_environment(folder, base_root)
    elif part == "python3.12":
        _link(folder / "usr/bin/python3.12", _INTERPRETER)
    else:
        _write_amazon_linux(folder)


def _write_environment(folder: Path, base_root: Path) -> None:
    """Make a virtual environment without the system's packages, which it gets as packages of its own."""
    (library,) = base_root.glob("usr/lib/python3.*")
    calls = "; ".join(f"site.addsitedir({path.format(version=library.name)!r})" for path in _SYSTEM_PACKAGES)
    files = {
        "opt/pytorch/pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\n",
        f"opt/pytorch/lib/{library.name}/site-packages/base-root.pth": f"import site; {calls}\n",
    }
    write_files(folder, files)
    for name in ("python", "python3"):
        _link(folder / "opt/pytorch/bin" / name, _INTERPRETER)


def _write_amazon_linux(folder: Path) -> None:
    launchers = {
        "usr/bin/dnf": ("dnf", "sys.argv[1:]"),
        f"{PACKAGES}/amazon-efs-utils/usr/sbin/mount.efs": ("mount_helper", '"mount.efs", sys.argv[1:]'),
    }
    write_files(folder, make_launchers(launchers))
    # A whiteout: overlayfs shows nothing where an upper layer has this device.
    os.mknod(folder / "usr/bin/apt-get", stat.S_IFCHR, os.makedev(0, 0))


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
