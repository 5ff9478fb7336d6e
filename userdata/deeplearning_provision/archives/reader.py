"""Readers of tar and zip archives, which report an archive that ends too early."""

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

from deeplearning_contract.names import MOST_LINK_BYTES
from deeplearning_provision.steps import WrongContentError

TAR, TAR_GZIP, ZIP = "tar", "tar.gz", "zip"
_SUFFIXES = {".tar": TAR, ".tar.gz": TAR_GZIP, ".tgz": TAR_GZIP, ".zip": ZIP}
_STREAM_BYTES = BLOCK_BYTES = 1 << 20
_ENCRYPTED = 0x1
_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # A compression that zipfile does not support.
    RuntimeError,
    ValueError,
    OverflowError,
)

Kind = Literal["file", "folder", "link", "hard link", "device"]


@dataclass
class Member:
    """Member of an archive; every other kind than file, folder or link is a device."""

    name: str
    kind: Kind
    size: int
    mode: int
    target: str  # Target of a link, as the archive has it
    end: int  # Position in the archive's file behind the member, in bytes
    _open: Any = field(repr=False, default=None)

    def read_blocks(self) -> Iterator[bytes]:
        """Yield a file's content in blocks, before the next member is read; raise WrongContentError for damage."""
        left = self.size
        with name_damage(self.name), self._open() as file:
            while block := file.read(BLOCK_BYTES):
                left -= len(block)
                yield block
            if left:
                raise EOFError(f"{left} bytes are missing")


def find_format(key: str) -> str:
    """Return the format that a key's suffix names; empty when it names none."""
    return next((kind for suffix, kind in _SUFFIXES.items() if key.lower().endswith(suffix)), "")


def read_members(path: Path, kind: str) -> Iterator[Member]:
    """Yield an archive's members in the order of the file; raise WrongContentError when it is damaged."""
    members = _read_zip(path) if kind == ZIP else _read_tar(path, is_gzip=kind == TAR_GZIP)
    while True:
        with name_damage(""):
            member = next(members, None)
        if member is None:
            return
        yield member


@contextlib.contextmanager
def name_damage(name: str) -> Iterator[None]:
    """Convert the errors of all readers to WrongContentError with the member's name."""
    try:
        yield
    except _BROKEN as error:
        where = f" at {name!r}" if name else ""
        raise WrongContentError(
            f"the archive must be whole, got {type(error).__name__}{where}: {error}",
            "create and upload it again",
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
            raise tarfile.ReadError(f"it ends at byte {archive.offset} without an end marker")
        while is_gzip and source.read(_STREAM_BYTES):
            pass  # Reading to the end of the stream verifies the last checksum.


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
    Return a class of members that records the empty block at the end, whose absence tarfile does not report.

    tarfile calls `fromtarfile` for each header. It no longer calls `frombuf` since
    https://github.com/python/cpython/issues/141707 was fixed in updates of every Python that images have.
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
