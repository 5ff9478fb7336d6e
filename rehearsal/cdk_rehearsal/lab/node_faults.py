"""Faults of one node: its GPUs, its mounts, its metadata service, its disk, its sshd."""

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from cdk_rehearsal.errors import RehearsalError

MountTrouble = Literal["hang", "unresolvable"]
DRIVER = "580.95.05"
GPU_STATE = "usr/lib/lab/gpus.json"
MOUNT_STATE = "usr/lib/lab/mount-fault.json"
_ENABLED = "etc/systemd/system/multi-user.target.wants"
_MASK = "etc/systemd/system/ssh.service"
_DELAYED_SSHD = """[Unit]
Description=Starts the SSH server late, as a slow image does
[Service]
ExecStart=/bin/sh -c 'sleep {seconds}; rm -f {mask}; systemctl daemon-reload; exec systemctl enable --now ssh'
[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Gpus:
    """
    GPUs as a node's `nvidia-smi` shows them; the troubles are those of GPU 0.

    Attributes:
        count: With 0 the driver finds none.
        ecc_errors: Uncorrected ECC errors, since the driver was loaded and in all.
        has_pending_pages: Whether a page waits for a reboot to be retired.
        has_row_failure: Whether a row could not be remapped.
        driver: Version of the driver.
        answer_seconds: Delay of each answer, with persistence mode too. In truth more than 25 s with eight GPUs and
            without that mode (Azure/aks-gpu#105, Azure/AgentBaker#2829).
    """

    count: int
    ecc_errors: int = 0
    has_pending_pages: bool = False
    has_row_failure: bool = False
    driver: str = DRIVER
    answer_seconds: float = 0.0


@dataclass(frozen=True)
class MountFault:
    """Mounts that `hang`, or whose server is `unresolvable`, for so many seconds from now on."""

    trouble: MountTrouble
    seconds: float = math.inf


@dataclass(frozen=True)
class MetadataFault:
    """Metadata service that answers each request later, or each GET with 401, whatever its token."""

    delay_seconds: float = 0.0
    is_refusing: bool = False


@dataclass(frozen=True)
class NodeFaults:
    """
    Faults of a node from its first boot on; None for none.

    Attributes:
        gpus: Its GPUs. Default: as many as the lab's nodes have, and sound.
        metadata: Fault of its metadata service, which cloud-init meets already.
        disk_bytes: Size of its disk, for what it writes over its image. Default: half of this machine's memory.
        sshd_delay: Seconds after which its SSH server starts; nothing else waits for it. Default: 0.
    """

    gpus: Gpus | None = None
    mount: MountFault | None = None
    metadata: MetadataFault | None = None
    disk_bytes: int | None = None
    sshd_delay: float = 0.0


def write_faults(root: Path, faults: NodeFaults) -> None:
    """Write the faults to the root file system of a node."""
    if faults.gpus is not None:
        write_gpus(root, faults.gpus)
    if faults.mount is not None:
        write_mount_fault(root, faults.mount)
    if faults.sshd_delay:
        # Masked, since cloud-init.service wants it too; the alias is not found until the unit is enabled again.
        (root / "etc/systemd/system/sshd.service").unlink(missing_ok=True)
        (root / _ENABLED / "ssh.service").unlink(missing_ok=True)
        (root / _MASK).symlink_to("/dev/null")
        unit = _DELAYED_SSHD.format(seconds=faults.sshd_delay, mask=f"/{_MASK}")
        (root / _ENABLED).mkdir(parents=True, exist_ok=True)
        (root / "etc/systemd/system/delayed-sshd.service").write_text(unit)
        (root / _ENABLED / "delayed-sshd.service").symlink_to("/etc/systemd/system/delayed-sshd.service")


def write_gpus(root: Path, gpus: Gpus) -> None:
    """Write the state that a node's `nvidia-smi` reads; RehearsalError when the lab's nodes have none."""
    if not (root / "usr/bin/nvidia-smi").exists():
        raise RehearsalError("gpus_per_node must be at least 1 where a node's GPUs are set, got 0; give the lab GPUs")
    _replace(root / GPU_STATE, json.dumps(asdict(gpus)))


def write_mount_fault(root: Path, fault: MountFault | None) -> None:
    """Write what a node's mount helpers do instead of mounting; None mends them, but for mounts that hang."""
    if fault is None:
        (root / MOUNT_STATE).unlink(missing_ok=True)
        return
    until = None if math.isinf(fault.seconds) else time.time() + fault.seconds
    _replace(root / MOUNT_STATE, json.dumps({"trouble": fault.trouble, "until": until}))


def _replace(path: Path, text: str) -> None:
    """Write a file that its reader never sees half."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(path)
