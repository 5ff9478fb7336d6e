"""Free space on disks, and disk errors for users."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from deeplearning_provision.steps import ProvisionFailure

RESERVE_BYTES = 256 * 1024 * 1024
"""Reserve for logs and programs; below 64 MiB a node is unfit and leaves the cluster."""
RESERVE_INODES = 2000
REMEDY = "free space, enlarge the disk, or stage the source elsewhere (target efs)"
STAGE_REMEDY = "free space or enlarge the disk, then run: deeplearning data --stage"
_FULL = {errno.ENOSPC: "no space is left", errno.EDQUOT: "the quota is used up", errno.EFBIG: "a file is too large"}
_WRONG = {
    errno.EACCES: "give the folder to the login user",
    errno.EPERM: "give the folder to the login user",
    errno.EROFS: "mount the file system for writing",
    errno.ENAMETOOLONG: "shorten the name in the source",
    errno.EISDIR: "let no name in the source be both a file and a folder",
    errno.ENOTDIR: "let no name in the source be both a file and a folder",
}


def read_room(folder: Path) -> os.statvfs_result:
    return os.statvfs(folder)


class FullDiskError(ProvisionFailure):
    """The disk is full; the files of the source are removed, so that the node keeps working."""


def check_room(what: str, folder: Path, size: int, files: int, *, how: str = "", remedy: str = REMEDY) -> None:
    """
    Raise ProvisionFailure unless `size` bytes in `files` files and folders fit; EFS reports no limit.

    The error names `what` is written, and `how` its size was computed.
    """
    found = read_room(folder)
    free = found.f_bavail * found.f_frsize
    if found.f_blocks and free < size + RESERVE_BYTES:
        need = f"{render_bytes(size + RESERVE_BYTES)} must be free on {folder} before anything is fetched"
        raise ProvisionFailure(f"{what}: {need}{how}, got {render_bytes(free)}", remedy)
    if found.f_files and found.f_favail < files + RESERVE_INODES:
        need = f"{files + RESERVE_INODES} inodes must be free on {folder} before anything is fetched"
        raise ProvisionFailure(f"{what}: {need}, got {found.f_favail}", remedy)


@contextlib.contextmanager
def explain_disk_errors(what: str, remedy: str = STAGE_REMEDY) -> Iterator[None]:
    """Convert errors of writing `what` to ProvisionFailure; `remedy` is for a full disk."""
    try:
        yield
    except OSError as error:
        raise _explain(what, error, remedy) from error


def _explain(what: str, error: OSError, remedy: str) -> ProvisionFailure:
    where = f" at {error.filename}" if error.filename else ""
    cause = f"could not write {what}{where}: {error.strerror or error}"
    if error.errno in _FULL:
        return FullDiskError(
            f"{what}: {_FULL[error.errno]} on its disk: {error.strerror}; its files were removed", remedy
        )
    if error.errno in _WRONG:
        return ProvisionFailure(cause, _WRONG[error.errno])
    return ProvisionFailure(cause, "retrying; see the kernel's log of the node", is_final=False)


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


def switch_link(link: Path, target: Path | str, scratch: Path | None = None) -> None:
    """
    Point a symbolic link, which may exist, to a target by one rename, so that it always has the old or the new target.

    An interruption may leave a hidden link in `scratch`, a folder of the same file system. Default: the link's folder.
    """
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink() and link.readlink() == Path(target):
        return
    fresh = (scratch or link.parent) / f".{link.name}.{secrets.token_hex(4)}"
    fresh.symlink_to(target)
    fresh.rename(link)


def remove_tree(folder: Path) -> None:
    """Remove a folder, a file or a link, if it exists."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink(missing_ok=True)
    elif folder.exists():
        shutil.rmtree(folder)


def render_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:  # noqa: PLR2004 - the step of the units
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
