"""Checks of a node's disks and of its shared file system."""

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from deeplearning_node.health.findings import Finding, last_line
from deeplearning_node.programs import ProgramError, Programs

DISK = "disk"
FILE_SYSTEM = "file system"
DISKS = ("", "var", "tmp")
"""Folders below the root in which programs need free space."""
LEAST_FREE_BYTES = 64 * 1024 * 1024
LEAST_FREE_INODES = 1000
"""Least free space: with less, logs and programs begin to fail; the agent's own files are a few KiB."""
FILE_SYSTEM_SECONDS = 5

# Runs in a child, since a process that waits for a silent server cannot be killed.
_PROBE = """
import os, sys, tempfile
try:
    os.stat(sys.argv[1])
    with tempfile.NamedTemporaryFile(dir=sys.argv[1], prefix=".deeplearning-health.") as file:
        file.write(b"healthy")
        file.flush()
        os.fsync(file.fileno())
        with open(file.name, "rb") as again:
            found = again.read()
    sys.exit(0 if found == b"healthy" else "a file differs from its written content")
except OSError as error:
    sys.exit(f"{error.strerror}")
"""


def check_disks(root: Path, read: Callable[[Path], os.statvfs_result] = os.statvfs) -> Finding:
    """Check free bytes and inodes of the node's own disks, and that they are writable."""
    complaints: dict[str, list[str]] = {}
    for name in DISKS:
        try:
            complaint = judge_disk(read(root / name))
        except OSError as error:
            complaint = f"cannot be read: {error.strerror}"
        if complaint:
            complaints.setdefault(complaint, []).append(f"/{name}")
    if not complaints:
        return Finding.fit(DISK, f"{', '.join(f'/{name}' for name in DISKS)} have room")
    # Folders of one disk have the same fault.
    detail = "; ".join(f"{', '.join(names)}: {complaint}" for complaint, names in complaints.items())
    return Finding.fault(DISK, detail, "free space, enlarge the disk, or terminate the instance")


def judge_disk(found: os.statvfs_result) -> str:
    """
    Return the fault of a disk; empty when there is none.

    Some file systems have no limit on bytes or inodes and report a total of 0: that is no fault.
    """
    if found.f_flag & os.ST_RDONLY:
        return "is read-only"
    free = found.f_bavail * found.f_frsize
    if found.f_blocks and free < LEAST_FREE_BYTES:
        return f"{free // 2**20} MiB are free, at least {LEAST_FREE_BYTES // 2**20} are needed"
    if found.f_files and found.f_favail < LEAST_FREE_INODES:
        return f"{found.f_favail} inodes are free, at least {LEAST_FREE_INODES} are needed"
    return ""


def check_file_system(programs: Programs, mount_point: Path, timeout_seconds: float = FILE_SYSTEM_SECONDS) -> Finding:
    """
    Write, read and remove a small file `.deeplearning-health.*` at the root of the shared file system.

    Each of two children may take `timeout_seconds`; one that the kernel cannot kill is left behind.
    """
    try:
        programs.run(["mountpoint", "-q", str(mount_point)], timeout_seconds=timeout_seconds)
    except ProgramError as error:
        if error.is_late:
            return _hang(mount_point, timeout_seconds)
        detail = str(error) if error.is_missing else f"nothing is mounted on {mount_point}"
        return Finding.fault(FILE_SYSTEM, detail, "mount it: a reboot does, see the agent's log")
    try:
        programs.run([sys.executable, "-I", "-c", _PROBE, str(mount_point)], timeout_seconds=timeout_seconds)
    except ProgramError as error:
        if error.is_late:
            return _hang(mount_point, timeout_seconds)
        detail = last_line(error.output) or str(error)
        is_full = os.strerror(errno.ENOSPC) in detail or os.strerror(errno.EDQUOT) in detail
        remedy = "free space on it" if is_full else "let the login user write to it"
        return Finding.fault(FILE_SYSTEM, f"{mount_point} cannot be written and read: {detail}", remedy)
    return Finding.fit(FILE_SYSTEM, f"{mount_point} can be written and read")


def _hang(mount_point: Path, seconds: float) -> Finding:
    detail = f"{mount_point} did not respond in {seconds:g} s"
    return Finding.fault(FILE_SYSTEM, detail, "check that port 2049 is open between the node and the file system")
