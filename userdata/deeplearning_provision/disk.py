"""Room on disks, and errors of writing in users' words."""

import contextlib
import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from deeplearning_provision.steps import ProvisionFailure

RESERVE_BYTES = 256 * 1024 * 1024
"""Room that stays free for logs and programs; below 64 MiB a node is unfit and leaves the cluster."""
RESERVE_INODES = 2000
REMEDY = "free the disk, give it more room, or stage the source elsewhere (target efs)"
STAGE_REMEDY = "free the disk or give it more room, then run: deeplearning data --stage"
_FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up", errno.EFBIG: "a file is too large"}
_WRONG = {
    errno.EACCES: "give the folder to the login user",
    errno.EPERM: "give the folder to the login user",
    errno.EROFS: "mount the file system for writing",
    errno.ENAMETOOLONG: "shorten the name in the source",
    errno.EISDIR: "let no name in the source be both a file and a folder",
    errno.ENOTDIR: "let no name in the source be both a file and a folder",
}

StatVfs = Callable[[Path], os.statvfs_result]


def read_room(folder: Path) -> os.statvfs_result:
    """Return the room of a folder's file system."""
    return os.statvfs(folder)


class FullDiskError(ProvisionFailure):
    """The disk is full; the files of the source are removed, so that the node can go on."""


def check_room(
    what: str,
    folder: Path,
    size: int,
    files: int,
    *,
    how: str = "",
    read: StatVfs = read_room,
    remedy: str = REMEDY,
) -> None:
    """
    Refuse to begin what cannot fit. A file system without a limit, such as EFS, has room for everything.

    Args:
        what: The source, for the error.
        size: Bytes that will be written.
        files: Files and folders that will be made.
        how: Source of the size, for the error.
        read: Reads the room of a file system.
        remedy: Default: the remedy for data.

    Raises:
        ProvisionFailure: There is no room.
    """
    found = read(folder)
    free = found.f_bavail * found.f_frsize
    if found.f_blocks and free < size + RESERVE_BYTES:
        need = f"{render_bytes(size + RESERVE_BYTES)} must be free on {folder} before anything is fetched"
        raise ProvisionFailure(f"{what}: {need}{how}, got {render_bytes(free)}", remedy)
    if found.f_files and found.f_favail < files + RESERVE_INODES:
        need = f"{files + RESERVE_INODES} inodes must be free on {folder} before anything is fetched"
        raise ProvisionFailure(f"{what}: {need}, got {found.f_favail}", remedy)


def explain_disk_error(what: str, error: OSError, remedy: str = STAGE_REMEDY) -> ProvisionFailure:
    """Turn an error of writing `what` into a failure; `remedy` is for a full disk. Other errors may pass."""
    where = f" at {error.filename}" if error.filename else ""
    cause = f"{what} could not be written{where}: {error.strerror or error}"
    if error.errno in _FULL:
        return FullDiskError(
            f"{what}: {_FULL[error.errno]} on its disk: {error.strerror}; nothing of it is kept", remedy
        )
    if error.errno in _WRONG:
        return ProvisionFailure(cause, _WRONG[error.errno])
    return ProvisionFailure(cause, "it is tried again; see the kernel's log of the node", is_final=False)


@contextlib.contextmanager
def explain_disk_errors(what: str, remedy: str) -> Iterator[None]:
    """Turn errors of writing, within a block, into ProvisionFailure."""
    try:
        yield
    except OSError as error:
        raise explain_disk_error(what, error, remedy) from error


def sync_disk(folder: Path) -> None:
    """Flush the file system of a folder to its disk or server."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.syncfs(handle):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(handle)


def remove_tree(folder: Path) -> None:
    """Remove a folder with its content, a file or a link, if it exists."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
    elif folder.exists():
        shutil.rmtree(folder)


def render_bytes(count: float) -> str:
    """Return a number of bytes with its unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:  # noqa: PLR2004 - the step of the units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
