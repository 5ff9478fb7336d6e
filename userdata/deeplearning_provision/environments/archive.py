"""
Archives of finished environments, for other nodes and clusters.

They are plain tar files: packages are compressed already, and reading 30,000 small files over NFS takes far longer than
one large file. The digest is computed during writing and reading; a folder gets its name only after its archive was
read to the end and had the right digest.
"""

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from deeplearning_provision.archives.tree_writer import TreeWriter, UnsafeNameError, split_name

BLOCK_BYTES = 1 << 20
READ_BYTES = 1 << 16
"""Size of a read; small, since tarfile copies the rest of its buffer at each small read."""
DISK_BLOCK_BYTES = 4096
"""Least space of a file on a disk; an environment has tens of thousands of small ones."""

OnBytes = Callable[[int], None]


class DamagedArchiveError(Exception):
    """Archive that differs from the packed one; the message names the difference."""


@dataclass(frozen=True)
class Archive:
    sha256: str  # Of the file, in hex
    size: int  # Of the file, in bytes
    unpacked_bytes: int  # Room of its content on a disk
    files: int  # Files, folders and links in it


def measure(folder: Path, leave_out: str) -> int:
    """Return the bytes that a folder takes on a disk, without its entry `leave_out`."""
    return sum(_measure_entry(status) for _, status in _walk(folder, leave_out))


def _measure_entry(status: os.stat_result) -> int:
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return -(-size // DISK_BLOCK_BYTES) * DISK_BLOCK_BYTES


def pack(folder: Path, target: Path, leave_out: str, on_bytes: OnBytes) -> Archive:
    """
    Write a folder's files, folders and links, without its entry `leave_out`, to an archive, and flush it to the disk.

    `on_bytes` is called with the number of bytes written so far.
    """
    unpacked = files = 0
    with target.open("wb") as raw:
        writer = _Counting(raw, on_bytes)
        with tarfile.open(
            fileobj=cast("IO[bytes]", writer), mode="w|", format=tarfile.GNU_FORMAT, bufsize=BLOCK_BYTES
        ) as archive:
            for path, status in _walk(folder, leave_out):
                _add(archive, path, str(path.relative_to(folder)), status)
                unpacked += _measure_entry(status)
                files += 1
        raw.flush()
        os.fsync(raw.fileno())
    return Archive(writer.digest, writer.count, unpacked, files)


def unpack(path: Path, expected: Archive, folder: Path, on_bytes: OnBytes) -> None:
    """
    Extract an archive to a new folder, and compare its digest.

    All files belong to the user of this process; an error leaves a partial folder. `on_bytes` is called with the number
    of bytes read so far. DamagedArchiveError for a different archive, or entries that no environment has.
    """
    folder.mkdir(parents=True)
    with path.open("rb") as raw:
        reader = _Counting(raw, on_bytes)
        try:
            with tarfile.open(fileobj=cast("IO[bytes]", reader), mode="r|", bufsize=READ_BYTES) as archive:
                _extract_all(archive, folder)
        except (tarfile.TarError, EOFError, UnsafeNameError, UnicodeError) as error:
            raise DamagedArchiveError(f"it cannot be unpacked: {error}") from error
        _compare(reader, expected)


def verify(path: Path, expected: Archive, on_bytes: OnBytes) -> None:
    """Read an archive to its end and compare its digest; DamagedArchiveError if it differs."""
    with path.open("rb") as raw:
        _compare(_Counting(raw, on_bytes), expected)


class _Counting:
    """File that computes the digest of the bytes read or written."""

    def __init__(self, raw: IO[bytes], on_bytes: OnBytes) -> None:
        self._raw = raw
        self._on_bytes = on_bytes
        self._digest = hashlib.sha256()
        self.count = 0

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def read(self, size: int) -> bytes:
        data = self._raw.read(size)
        self._pass(data)
        return data

    def write(self, data: bytes) -> int:
        written = self._raw.write(data)
        self._pass(data)
        return written

    def _pass(self, data: bytes) -> None:
        self._digest.update(data)
        self.count += len(data)
        self._on_bytes(self.count)


def _compare(reader: _Counting, expected: Archive) -> None:
    while reader.read(BLOCK_BYTES):
        pass
    if reader.count != expected.size:
        raise DamagedArchiveError(f"it must have {expected.size} bytes, got {reader.count}")
    if reader.digest != expected.sha256:
        raise DamagedArchiveError(f"its sha256 must be {expected.sha256}, got {reader.digest}")


def _walk(folder: Path, leave_out: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the entries of a folder in a fixed order, folders before their content."""
    for path in sorted(folder.iterdir()):
        if path.name == leave_out:
            continue
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            yield path, status
            yield from _walk(path)
        elif stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield path, status


def _add(archive: tarfile.TarFile, path: Path, name: str, status: os.stat_result) -> None:
    info = tarfile.TarInfo(name)
    # Python uses a compiled file only if it names the second in which its source was written.
    info.mtime, info.mode = int(status.st_mtime), stat.S_IMODE(status.st_mode)
    if stat.S_ISREG(status.st_mode):
        info.size = status.st_size
        with path.open("rb") as file:
            archive.addfile(info, file)
        return
    info.type = tarfile.DIRTYPE
    if stat.S_ISLNK(status.st_mode):
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115 - as it is written
    archive.addfile(info)


def _extract_all(archive: tarfile.TarFile, folder: Path) -> None:
    """
    Extract safely without tarfile's own filters, which the oldest Python of the images lacks.

    A virtual environment has links that lead out of it, to its interpreter; the writer puts nothing below a link. An
    entry that occurs twice is refused, so every file is new.
    """
    writer = TreeWriter(folder)
    made: set[tuple[str, ...]] = {()}
    for info in archive:
        parts = split_name(info.name)
        if parts in made:
            raise UnsafeNameError(f"an entry must be there once and have a name, got {info.name!r}")
        made.add(parts)
        if info.isdir():
            writer.make_folder(parts)
        elif info.issym():
            writer.make_folder(parts[:-1])
            Path(writer.path(parts)).symlink_to(info.linkname)
        elif info.isreg():
            _write(archive, info, writer, parts)
        else:
            raise UnsafeNameError(f"an entry must be a file, a folder or a link, got {info.name!r}")


def _write(archive: tarfile.TarFile, info: tarfile.TarInfo, writer: TreeWriter, parts: tuple[str, ...]) -> None:
    source = cast("IO[bytes]", archive.extractfile(info))
    writer.write_file(parts, iter(lambda: source.read(BLOCK_BYTES), b""), info.mode)
    os.utime(writer.path(parts), (info.mtime, info.mtime))
