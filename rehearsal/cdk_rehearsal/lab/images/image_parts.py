"""
Parts that some images have and others have not, as layers over the one of all images.

An interpreter or a program that an image is not known to have is not there, as on AWS. Software is made once over the
base root, the rest is written for each lab; no image has Horovod.

| software | images | content |
|---|---|---|
| compilers | every Deep Learning AMI | g++, make, Python's headers, pip, venv; OpenMPI, which EFA's installer brings |
| pytorch | the Deep Learning AMI with PyTorch | the virtual environment /opt/pytorch, with PyTorch for the CPU |
"""

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import (
    COMPILER_PACKAGES,
    DEBIAN_PYTHON,
    ENCLOSED,
    MPI_PACKAGES,
    NODE_PYTHON,
    BaseRoot,
)
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
    "python3.12": StandIn("/usr/bin/python3.12", "the Python of the base images", f"Debian's Python {NODE_PYTHON}"),
    "ubuntu-22.04": StandIn("Debian's pip", "the pip of Ubuntu 22.04", "installs for the whole system without asking"),
    "amazon-linux": StandIn(
        "python3, dnf, mount.efs, cfn-signal",
        "Amazon Linux 2023, efs-utils and aws-cfn-bootstrap",
        f"python3 and its virtual environments are Debian's Python {NODE_PYTHON}, which says that it is 3.9 and for "
        "which pip installs nothing that needs a later one; no headers but those of dnf's packages for each Python; "
        "dnf knows Debian's compilers by the names of Amazon Linux, and amazon-efs-utils, whose mount.efs checks zone, "
        "options and the rights of the role, and binds a folder without TLS; cfn-signal signals resources and wait "
        "conditions; all else is the base root's Debian",
    ),
    "emr": StandIn(
        "emr-instance-controller, yarn",
        "EMR's AMI, its instance controller, and Hadoop",
        "the user hadoop, the files below /mnt/var/lib/info, bootstrap actions, and steps of command-runner and "
        "script-runner; logs reach S3 at once, where EMR takes minutes; no Hadoop, no HDFS, no other application, no "
        "AWS CLI; yarn lists the running core nodes and nothing else, and a dead one no more, where YARN waits ten "
        "minutes; each node knows the names of the others from /etc/hosts; the key of the disks is used, and encrypts "
        "none",
    ),
}
"""Stand-in of each part."""

HADOOP_YARN = "usr/lib/lab/hadoop/yarn"
"""The program `yarn`, which comes to a node's path when EMR has installed Hadoop."""
_EMR_CONTROLLER = """[Unit]
Description=emr-instance-controller
After=network.target
[Service]
ExecStart=/usr/lib/lab/emr-instance-controller
Restart=always
[Install]
WantedBy=multi-user.target
"""

_PYTHON_39 = f"""#!/bin/bash
# Stands in for the Python 3.9 of Amazon Linux; the system's own programs run on Debian's.
case ${{1-}} in
    /usr/* | /bin/* | /sbin/* | /lib/* | /etc/*) ;;
    *) export LAB_PYTHON_39=$$ ;;
esac
exec -a "$0" {DEBIAN_PYTHON} "$@"
"""
_SITE_CUSTOMIZE = """import os
import sys

# Only in the process that the stand-in became: its children are what they are.
if os.environ.pop("LAB_PYTHON_39", "") == str(os.getpid()):
    import collections
    import site

    version = collections.namedtuple("version_info", "major minor micro releaselevel serial")(3, 9, 25, "final", 0)
    sys.version = sys.version.replace(sys.version.split()[0], "3.9.25", 1)
    sys.version_info = sys.implementation.version = version
    sys.hexversion = 0x030919F0
    site.addsitedir(f"{sys.prefix}/lib/python3.9/site-packages")
"""
"""Debian's Python imports it at its start, also in a virtual environment and with `-I`."""

PACKAGES = "usr/lib/lab/packages"
"""Below it each package that dnf can install, as a tree of files."""

COMPILERS: ImagePart = "compilers"
PYTORCH: ImagePart = "pytorch"
SOFTWARE = frozenset({COMPILERS, PYTORCH})

_SCRIPT = Path(__file__).with_name("make_layer.sh")
_APT = ("apt-get", "--quiet", "-o", "Dir::Etc::SourceList=/tmp/sources.list")
_INSTALL = f"""
echo 'deb [trusted=yes] file:/srv/archive ./' > /tmp/sources.list
{" ".join(_APT)} update
{" ".join(_APT)} install --yes --no-install-recommends {" ".join((*COMPILER_PACKAGES, *MPI_PACKAGES))}
find /var/lib/apt/lists /var/cache/apt -type f -delete
"""
_ENVIRONMENT = """
python3.11 -m venv /opt/pytorch
/opt/pytorch/bin/pip install --quiet --no-index --find-links /srv/wheels --disable-pip-version-check torch numpy
/opt/pytorch/bin/python -c 'import numpy, torch'
"""
"""As the image has it: at the release notes' `python_location`, /opt/pytorch/bin/python, with packages of its own."""


def write_image_part(folder: Path, part: ImagePart) -> None:
    """Write the layer of a part that is no software to a folder, made when absent."""
    folder.mkdir(parents=True, exist_ok=True)
    if part == "python3.12":
        (folder / "usr/bin").mkdir(parents=True, exist_ok=True)
        (folder / "usr/bin/python3.12").symlink_to(DEBIAN_PYTHON)
    elif part == "ubuntu-22.04":
        _hide(folder, f"usr/lib/python{NODE_PYTHON}/EXTERNALLY-MANAGED")  # of PEP 668, which Ubuntu has since 23.04
    elif part == "amazon-linux":
        _write_amazon_linux(folder)
    elif part == "emr":
        _write_emr(folder)


def _write_amazon_linux(folder: Path) -> None:
    launchers = {
        "usr/bin/dnf": ("dnf", "sys.argv[1:]"),
        "usr/bin/yum": ("dnf", "sys.argv[1:]"),  # the same program (AL2023 user guide, "Package management tool")
        "opt/aws/bin/cfn-signal": ("cfn_signal", "sys.argv[1:]"),
        f"{PACKAGES}/amazon-efs-utils/usr/sbin/mount.efs": ("mount_helper", '"mount.efs", sys.argv[1:]'),
    }
    files = {
        "usr/bin/python3": _PYTHON_39,
        f"etc/python{NODE_PYTHON}/sitecustomize.py": _SITE_CUSTOMIZE,
        f"{PACKAGES}/python3-devel/usr/include/python3.9/Python.h": "#error a stand-in for the headers of Python 3.9\n",
    }
    write_files(folder, {**files, **make_launchers(launchers)})
    _hide(folder, "usr/bin/apt-get", f"usr/include/python{NODE_PYTHON}/Python.h")


def _hide(folder: Path, *paths: str) -> None:
    """Write whiteouts: overlayfs shows nothing where an upper layer has this device."""
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(folder / path, stat.S_IFCHR, os.makedev(0, 0))


def _write_emr(folder: Path) -> None:
    launchers = {"usr/lib/lab/emr-instance-controller": ("emr_controller", ""), HADOOP_YARN: ("yarn", "sys.argv[1:]")}
    unit = "usr/lib/systemd/system/emr-instance-controller.service"
    write_files(folder, {**make_launchers(launchers), unit: _EMR_CONTROLLER})


def prepare_layers(
    parts: Collection[ImagePart], base: BaseRoot, wheels: Path | None, cache: Path, report: Callable[[str], None]
) -> dict[ImagePart, Path]:
    """
    Return the layers of the parts that are software, each made when the cache has it not.

    The wheels are PyTorch and what it needs; None where no image has it. UnavailableError when a layer cannot be made.
    """
    layers: dict[ImagePart, Path] = {}
    if SOFTWARE & set(parts):
        what = "installing what Deep Learning AMIs have beside their driver: compilers and OpenMPI"
        layers[COMPILERS] = _prepare(
            COMPILERS, what, _INSTALL, (base.root,), {"archive": base.archive}, cache=cache, report=report
        )
    if PYTORCH in parts and wheels is not None:
        what, lower = "making the environment of the images with PyTorch", (layers[COMPILERS], base.root)
        layers[PYTORCH] = _prepare(PYTORCH, what, _ENVIRONMENT, lower, {"wheels": wheels}, cache=cache, report=report)
    return layers


def _prepare(
    part: ImagePart,
    what: str,
    script: str,
    lower: tuple[Path, ...],
    folders: Mapping[str, Path],
    *,
    cache: Path,
    report: Callable[[str], None],
) -> Path:
    """Return a layer, made by a shell script over lower layers, which finds folders in /srv."""

    def fill(work: Path) -> Path:
        report(f"{what}, once (a minute)")
        made, srv = work / "layer", work / "srv"
        made.mkdir()
        srv.mkdir()
        for name, folder in folders.items():
            (srv / name).symlink_to(folder)
        command = [*ENCLOSED, "sh", str(_SCRIPT), str(made), ":".join(map(str, lower)), str(srv), script]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            last = " | ".join((answer.stdout + answer.stderr).splitlines()[-8:])
            raise UnavailableError(f"the layer {part} of the nodes' image could not be made: {last}")
        return made

    below = [(path.parent.name, path.name) for path in (*lower, *folders.values())]
    recipe = (script, below, NODE_PYTHON, _SCRIPT.read_text())
    return fill_once(cache, f"{part}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}", fill, report)
