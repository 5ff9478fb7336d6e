"""
Installation of AWS's EFA software where the image lacks it: driver, libfabric, aws-ofi-nccl, Open MPI.

A node without it joins nevertheless: its health reports TCP and the cause. The master replaces the node when the
others have EFA; when no node has it, the cluster trains over TCP, and every command reports so.
"""

import hashlib
import http.client
import logging
import shutil
import urllib.request
from pathlib import Path

from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_contract.log_record import MOST_DETAIL_CHARACTERS, OUTPUT, PROVIDER
from deeplearning_contract.web import open_address
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.health.network import FAULT_FILE, REMEDY, find_provider, has_software
from deeplearning_node.node import Node
from deeplearning_node.packages import INSTALL_SECONDS, LOCK_SECONDS, VARIABLES
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
VERSION = "1.47.0"
SHA256 = "2df4201e046833c7dc8160907bee7f52b76ff80ed147376a2d0ed8a0dd66b2db"
"""
Digest that AWS publishes (EC2 user guide, "Verify the EFA installer using a checksum", efa-verify).

The tarball is for all systems and both architectures that AWS supports. To change the version, copy both from there.
"""
URL = f"https://efa-installer.amazonaws.com/aws-efa-installer-{VERSION}.tar.gz"
OPTIONS = ("-y", "--mpi=openmpi4")
"""Options that the same guide recommends for NCCL (efa-start-nccl, step 5)."""
WORK_FOLDER = "/var/lib/deeplearning/efa-installer"
LEAST_FREE_BYTES = 4 * 1024**3
"""The tarball has 0.7 GB, and as much again unpacked and installed."""
CONNECTION_SECONDS = 30
DOWNLOAD_SECONDS = 180
"""Time during which a failed download is started again; one that makes progress may continue."""
LIMITS_FOLDER = "/etc/security/limits.d"
LIMITS = "* soft memlock unlimited\n* hard memlock unlimited\n"
"""EFA registers memory, which counts against this limit; AWS's installer writes the same by default."""
_CHUNK = 1024 * 1024


def prepare_efa(node: Node, deadline: Deadline) -> None:
    """
    Install the EFA software where it is missing, and log the provider that NCCL uses.

    A head node without EFA gets it as well: it needs the workers' Open MPI, and builds software for them.

    Effects: as `install`; /opt/deeplearning/efa-fault while an installation is unfinished or has failed.
    """
    hardware = node.settings.needs.hardware
    if not any(entry.efa_cards for entry in hardware.values()):
        return
    fault = node.path(FAULT_FILE)
    if fault.exists() or not has_software(node.programs, node.root):
        LOG.info("the image lacks the EFA software: installing AWS's %s", VERSION)
        write_file(fault, "its installation was interrupted\n")
        try:
            install(node, deadline.at_most(INSTALL_SECONDS))
        except (StageFailure, ProgramError, OSError) as error:
            output = error.output if isinstance(error, ProgramError) else ""
            cause = f"{error}, output: {last_line(output)}" if output else str(error)
            extra = LogFields(details={OUTPUT: output[-MOST_DETAIL_CHARACTERS:]}).extra
            LOG.warning("the EFA software could not be installed: %s", cause, extra=extra)
            write_file(fault, f"{clean(cause)}\n")
        else:
            fault.unlink()
    provider = find_provider(node.programs, node.root, hardware.get(node.settings.role.value))
    fields = LogFields(details={PROVIDER: provider.detail}, is_urgent=provider.is_fault)
    if provider.is_fault:
        LOG.warning("NCCL will not use the EFA of this node, %s; %s", provider.detail, REMEDY, extra=fields.extra)
    else:
        LOG.info("NCCL uses %s", provider.detail, extra=fields.extra)


def install(node: Node, deadline: Deadline) -> None:
    """
    Download AWS's installer, check its digest, and run it; StageFailure, ProgramError or OSError when that fails.

    Effects: packages of the system, /opt/amazon, a kernel module; a limit of locked memory.
    """
    folder = node.path(WORK_FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        _check_room(folder)
        archive = folder / "installer.tar.gz"
        _download(URL, archive, deadline)
        _run(node, deadline, "tar", "--extract", f"--file={archive}", f"--directory={folder}", "--no-same-owner")
        # The installer calls apt-get by itself, which waits for the image's unattended upgrade only with this option.
        write_file(folder / "apt.conf", f'DPkg::Lock::Timeout "{LOCK_SECONDS}";\n')
        if node.programs.has("apt-get"):
            _run(node, deadline, "apt-get", "update")
        _run(node, deadline, "env", f"--chdir={folder}/aws-efa-installer", "./efa_installer.sh", *OPTIONS)
        _run(node, deadline, "modprobe", "efa")
        _raise_limit(node)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(node: Node, deadline: Deadline, *argv: str) -> None:
    environment = {**VARIABLES, "APT_CONFIG": str(node.path(WORK_FOLDER) / "apt.conf")}
    node.programs.run(argv, timeout_seconds=max(1.0, deadline.remaining), environment=environment)


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < LEAST_FREE_BYTES:
        raise StageFailure(
            f"the EFA software needs {LEAST_FREE_BYTES // 1024**3} GiB of disk, got {free / 1024**3:.1f} GiB free",
            "give nodes a larger workers.volume_size",
        )


def _download(url: str, target: Path, deadline: Deadline) -> None:
    """Download the installer, retrying until the deadline; StageFailure without one of the pinned digest."""
    last: Exception = OSError("no attempt was made")
    for _ in deadline.at_most(DOWNLOAD_SECONDS).attempts():
        try:
            found = _receive(url, target, deadline)
        except (OSError, http.client.HTTPException) as error:
            last = error
            LOG.warning("%s: %s", url, error)
            continue
        if found == SHA256:
            return
        last = OSError(f"its sha256 must be {SHA256}, got {found}; it was not run")
        LOG.warning("%s: %s", url, last)
    raise StageFailure(
        f"could not download {url}: {last}", "let nodes reach it, or use an image that has the EFA software"
    )


def _receive(url: str, target: Path, deadline: Deadline) -> str:
    digest = hashlib.sha256()
    with open_address(urllib.request.Request(url), CONNECTION_SECONDS) as answer, target.open("wb") as file:  # noqa: S310 - HTTPS, and `open_address` takes nothing but the web
        while chunk := answer.read(_CHUNK):
            if deadline.is_over:
                raise OSError("the time limit of the download is over")
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def _raise_limit(node: Node) -> None:
    folder = node.path(LIMITS_FOLDER)
    texts = [path.read_text(errors="replace") for path in folder.glob("*.conf")]
    if not any("memlock" in line and not line.startswith("#") for text in texts for line in text.splitlines()):
        write_file(folder / "02-deeplearning-efa.conf", LIMITS)
