"""Reads archives from their beginning to their end, whatever their format, and notices when a part is missing."""

import contextlib
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from deeplearning_provision.s3.download import WrongContentError
from deeplearning_provision.s3.object_store import BLOCK_BYTES

TAR, TAR_GZIP, ZIP = "tar", "tar.gz", "zip"
_SUFFIXES = {".tar": TAR, ".tar.gz": TAR_GZIP, ".tgz": TAR_GZIP, ".zip": ZIP}
_STREAM_BYTES = 1 << 20
_ENCRYPTED = 0x1
MOST_LINK_BYTES = 4096
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # A way of packing that Python's zipfile does not know.
    RuntimeError,
    ValueError,
    OverflowError,
)

Kind = Literal["file", "folder", "link", "hard link", "device"]


@dataclass
class Member:
    """
    One thing in an archive.

    Attributes:
        name: As the archive has it.
        kind: What it is; everything that is none of the others is a device.
        size: Of a file, in bytes.
        mode: Permissions.
        target: Of a link, as the archive has it.
        end: How far into the archive's file one is with it, in bytes.
    """

    name: str
    kind: Kind
    size: int
    mode: int
    target: str
    end: int
    _open: Any = field(repr=False, default=None)

    def read_blocks(self) -> Iterator[bytes]:
        """
        Return a file's content in blocks; only before the next member is asked for.

        Raises:
            WrongContentError: The archive is damaged here.
        """
        left = self.size
        with name_damage(self.name), self._open() as file:
            while block := file.read(BLOCK_BYTES):
                left -= len(block)
                yield block
            if left:
                raise EOFError(f"{left} bytes are missing")


def find_format(key: str) -> str:
    """Return the format that a key's name promises; empty when it is no archive's."""
    return next((kind for suffix, kind in _SUFFIXES.items() if key.lower().endswith(suffix)), "")


def read_members(path: Path, kind: str) -> Iterator[Member]:
    """
    Return an archive's members in the order of the file.

    Raises:
        WrongContentError: It is damaged, or ends too early.
    """
    members = _read_zip(path) if kind == ZIP else _read_tar(path, is_gzip=kind == TAR_GZIP)
    while True:
        with name_damage(""):
            member = next(members, None)
        if member is None:
            return
        yield member


@contextlib.contextmanager
def name_damage(name: str) -> Iterator[None]:
    """
    Turn what the readers of archives raise into one error.

    Raises:
        WrongContentError: One of them raised something.
    """
    try:
        yield
    except _BROKEN as error:
        where = f" at {name!r}" if name else ""
        raise WrongContentError(
            f"the archive must be whole, got {type(error).__name__}{where}: {error}",
            "make and upload it again",
        ) from error


def _read_zip(path: Path) -> Iterator[Member]:
    done = 0
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            done += entry.compress_size
            if entry.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile(f"{entry.filename!r} is encrypted")
            mode = entry.external_attr >> 16
            kind: Kind = "folder" if entry.is_dir() else "file"
            target = ""
            if stat.S_ISLNK(mode) and entry.file_size > MOST_LINK_BYTES:
                raise zipfile.BadZipFile(f"{entry.filename!r} is a link of {entry.file_size} bytes")
            if stat.S_ISLNK(mode):
                kind, target = "link", archive.read(entry).decode("utf-8", "surrogateescape")
            elif stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                kind = "device"
            yield Member(
                entry.filename, kind, entry.file_size, mode, target, done, lambda entry=entry: archive.open(entry)
            )


def _read_tar(path: Path, *, is_gzip: bool) -> Iterator[Member]:
    watched = _watch_end()
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(path.open("rb"))
        options: dict[str, Any] = {"tarinfo": watched, "encoding": "utf-8", "errors": "surrogateescape"}
        if is_gzip:
            source: Any = stack.enter_context(gzip.GzipFile(fileobj=raw))
            archive = stack.enter_context(tarfile.open(fileobj=source, mode="r|", bufsize=_STREAM_BYTES, **options))
        else:
            source = raw
            archive = stack.enter_context(tarfile.open(fileobj=raw, mode="r:", **options))
        while (entry := archive.next()) is not None:
            yield Member(
                entry.name,
                _tar_kind(entry),
                entry.size,
                entry.mode,
                entry.linkname,
                raw.tell(),
                lambda entry=entry: archive.extractfile(entry),
            )
            archive.members = []  # type: ignore[attr-defined] # It would keep every member in memory.
        if not watched.is_ended:
            raise tarfile.ReadError(f"it ends at byte {archive.offset} without the mark of an end")
        while is_gzip and source.read(_STREAM_BYTES):
            pass  # What compares the last checksum.


def _tar_kind(entry: tarfile.TarInfo) -> Kind:
    if entry.isdir():
        return "folder"
    if entry.issym():
        return "link"
    if entry.islnk():
        return "hard link"
    return "file" if entry.isreg() else "device"


def _watch_end() -> Any:
    """
    Return a class of members that notices the empty block at the end: without it tarfile reports nothing.

    `fromtarfile` is what tarfile calls for each header. `frombuf` is not, since https://github.com/python/cpython/issues/141707
    was mended in updates of every Python that images have.
    """

    class WatchedInfo(tarfile.TarInfo):
        is_ended = False

        @classmethod
        def fromtarfile(cls, archive: Any) -> Any:
            try:
                return super().fromtarfile(archive)
            except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # typeshed leaves it out
                cls.is_ended = True
                raise

    return WatchedInfo
