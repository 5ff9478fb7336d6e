"""Writer of files, folders and links below one folder, with a check of their names."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from deeplearning_contract import names
from deeplearning_contract.document import ContractError
from deeplearning_provision.steps import WrongContentError

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeNameError(WrongContentError):
    """Name that leaves the folder, or is invalid for a file."""

    def __init__(self, cause: str) -> None:
        super().__init__(cause, "make the source without it")


def split_name(name: str) -> tuple[str, ...]:
    """
    Split the name of an archive's member into folders and file; empty for the root itself.

    UnsafeNameError when it leaves the folder, or is no valid name.
    """
    try:
        return names.split_name(name)
    except ContractError as error:
        raise UnsafeNameError(str(error)) from None


def split_key(relative: str) -> tuple[str, ...]:
    """
    Split an object's key, without its prefix; a trailing slash means a folder.

    UnsafeNameError when it is no plain path: two keys must never name the same file.
    """
    parts = split_name(relative)
    if "/".join(parts) != relative.removesuffix("/"):
        raise UnsafeNameError(f"a key must be a plain path below its prefix, got {relative!r}")
    return parts


class TreeWriter:
    """
    Writer into one folder.

    A file is written in place without being emptied first, so that two writers of the same content do no harm. Nothing
    is written through a link, and a folder is never replaced, so that a check stays valid.
    """

    def __init__(self, root: Path) -> None:
        """Bind an existing folder; it is never created again, since another run may have removed it."""
        self._root = str(root)
        self._folders: set[tuple[str, ...]] = set()

    def path(self, parts: tuple[str, ...]) -> str:
        return os.path.join(self._root, *parts)  # noqa: PTH118 - a path a file, a million times

    def make_folder(self, parts: tuple[str, ...]) -> None:
        """Make a folder and its parents; raise UnsafeNameError when a file or a link is in its place."""
        if not parts or parts in self._folders:
            return
        self.make_folder(parts[:-1])
        path = self.path(parts)
        try:
            os.mkdir(path, 0o755)  # noqa: PTH102 - as above
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise self._collision(parts) from None
        self._folders.add(parts)

    def write_file(self, parts: tuple[str, ...], blocks: Iterable[bytes], mode: int = 0o644) -> None:
        """Write a file, executable if its owner may execute it; raise UnsafeNameError for a collision of names."""
        self.make_folder(parts[:-1])
        wanted = 0o755 if mode & 0o100 else 0o644
        handle = self._open(parts, wanted)
        try:
            size = 0
            for block in blocks:
                size += len(block)
                view = memoryview(block)
                while view:
                    view = view[os.write(handle, view) :]
            found = os.fstat(handle)
            if found.st_size != size:
                os.ftruncate(handle, size)
            if stat.S_IMODE(found.st_mode) != wanted:
                os.fchmod(handle, wanted)
        finally:
            os.close(handle)  # A network file system may report only now that it is full.

    def make_link(self, parts: tuple[str, ...], target: str) -> None:
        """Make a symbolic link; raise UnsafeNameError when it leads outside, or a folder is in its place."""
        try:
            names.check_link(parts, target)
        except ContractError as error:
            raise UnsafeNameError(str(error)) from None
        self.make_folder(parts[:-1])
        self._clear(parts)
        os.symlink(target, self.path(parts))  # noqa: PTH211 - as above

    def make_hard_link(self, parts: tuple[str, ...], target: tuple[str, ...]) -> None:
        """Make a second name of an extracted file; raise UnsafeNameError for a missing file, or a collision."""
        self.make_folder(parts[:-1])
        is_below_folders = all(self._is_kind(target[:above], stat.S_ISDIR) for above in range(1, len(target)))
        if not is_below_folders or not self._is_kind(target, stat.S_ISREG):
            raise UnsafeNameError(f"a hard link must name a file before it, got {'/'.join(target)!r}")
        if parts != target:
            self._clear(parts)
            os.link(self.path(target), self.path(parts), follow_symlinks=False)

    def _is_kind(self, parts: tuple[str, ...], check: Callable[[int], bool]) -> bool:
        try:
            return check(os.lstat(self.path(parts)).st_mode)
        except FileNotFoundError:
            return False

    def _open(self, parts: tuple[str, ...], mode: int) -> int:
        path = self.path(parts)
        try:
            handle = os.open(path, _FLAGS, mode)
        except IsADirectoryError:
            raise self._collision(parts) from None
        except OSError:
            if not self._is_kind(parts, stat.S_ISLNK):
                raise
        else:
            if os.fstat(handle).st_nlink == 1:
                return handle
            os.close(handle)
        os.unlink(path)  # noqa: PTH108 - a link, or a file with a second name, which keeps its content
        return os.open(path, _FLAGS, mode)

    def _clear(self, parts: tuple[str, ...]) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path(parts))  # noqa: PTH108 - as above
        except (IsADirectoryError, PermissionError):
            if self._is_kind(parts, stat.S_ISDIR):
                raise self._collision(parts) from None
            raise

    @staticmethod
    def _collision(parts: tuple[str, ...]) -> UnsafeNameError:
        return UnsafeNameError(f"a name must be a file or a folder, not both, got {'/'.join(parts)!r}")
