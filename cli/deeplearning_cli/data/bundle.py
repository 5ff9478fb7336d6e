"""One archive of all sources, written in one pass over each, without whole files in memory."""

import hashlib
import io
import json
import shutil
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from deeplearning_cli.data.download import Report
from deeplearning_cli.data.entries import Entry, list_files, read_entries
from deeplearning_cli.data.sources import InputError, PreparationError, Source

COPY_BYTES = 1 << 20
SPARE_BYTES = 64 << 20
EXECUTABLE = 0o111


@dataclass(frozen=True)
class Bundle:
    """Archive on the local disk."""

    file: Path
    size: int
    sha256: str


class _Writer(Protocol):
    def add(self, entry: Entry) -> None:
        """Write a file."""

    def close(self) -> None:
        """Write the end of the archive."""


def make_bundle(sources: list[tuple[Source, Path]], file: Path, report: Report) -> Bundle:
    """
    Write the archive, unless one of the same sources exists already.

    The contents of archives go into the bundle, not the archives themselves; the file's ending decides its kind.

    Effects: writes the file, and `<file>.json` with its digest; `<file>.part` while it is incomplete.

    Raises:
        PreparationError: A source cannot be read, two contain the same path, or the disk is too small.
    """
    fingerprint = _describe(sources)
    found = _read_bundle(file, fingerprint)
    if found:
        report(file.name, found.size, found.size)
        return found
    size = sum(_measure(path) for _, path in sources)
    if size + SPARE_BYTES > shutil.disk_usage(file.parent).free:
        raise PreparationError(
            f"{file.parent} must have {size + SPARE_BYTES} bytes free; choose --work on another disk"
        )
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as stream:
            counted = _HashedStream(stream)
            _write(sources, counted, is_zip=file.name.endswith(".zip"), report=report)
        part.rename(file)
    except (OSError, tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        cause = " ".join(str(error).split())
        raise PreparationError(f"could not write {file.name}: {cause}; check that each source is complete") from error
    finally:
        part.unlink(missing_ok=True)
    bundle = Bundle(file, counted.count, counted.sha256.hexdigest())
    note = {"size": bundle.size, "sha256": bundle.sha256, "sources": fingerprint}
    _note(file).write_text(json.dumps(note), encoding="utf-8")
    return bundle


class _HashedStream(io.RawIOBase):
    """Stream that passes bytes on, counts and hashes them; it cannot seek, so nothing is hashed twice."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()
        self.count = 0

    def writable(self) -> bool:
        """Return whether it accepts bytes."""
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write bytes."""
        self._stream.write(data)
        self.sha256.update(data)
        self.count += len(data)
        return len(data)


def _write(sources: list[tuple[Source, Path]], stream: _HashedStream, *, is_zip: bool, report: Report) -> None:
    writer: _Writer = _ZipWriter(stream) if is_zip else _TarWriter(stream)
    seen: set[str] = set()
    total = sum(_measure(path) for _, path in sources)
    done = 0
    try:
        for source, path in sources:
            for entry in read_entries(source, path):
                if entry.name in seen:
                    raise InputError(
                        f"sources must contain different files, got {entry.name!r} twice; drop or rename one"
                    )
                seen.add(entry.name)
                writer.add(entry)
                done += entry.size
                report("bundle", done, max(total, done))
    finally:
        writer.close()


class _TarWriter:
    def __init__(self, stream: _HashedStream) -> None:
        self._archive = tarfile.open(fileobj=stream, mode="w|", bufsize=COPY_BYTES)  # noqa: SIM115 - `close` ends it

    def add(self, entry: Entry) -> None:
        info = tarfile.TarInfo(entry.name)
        info.size, info.mtime = entry.size, entry.modified
        info.mode = 0o755 if entry.mode & EXECUTABLE else 0o644
        self._archive.addfile(info, entry.stream)

    def close(self) -> None:
        self._archive.close()


class _ZipWriter:
    def __init__(self, stream: _HashedStream) -> None:
        self._archive = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)

    def add(self, entry: Entry) -> None:
        info = zipfile.ZipInfo(entry.name)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, entry.size
        info.external_attr = (stat.S_IFREG | (0o755 if entry.mode & EXECUTABLE else 0o644)) << 16
        with self._archive.open(info, "w", force_zip64=True) as target:
            shutil.copyfileobj(entry.stream, target, COPY_BYTES)

    def close(self) -> None:
        self._archive.close()


def _measure(path: Path) -> int:
    """Return the number of bytes in a source, without reading them; for a compressed tar, its size on disk."""
    if path.is_dir():
        return sum(file.stat().st_size for file in list_files(path))
    if path.name.endswith(".zip") and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return sum(info.file_size for info in archive.infolist())
    return path.stat().st_size


def _describe(sources: list[tuple[Source, Path]]) -> list[list[object]]:
    """Return a fingerprint of the sources: names, sizes and times of their files."""
    found: list[list[object]] = []
    for source, path in sources:
        for file in list_files(path) if path.is_dir() else [path]:
            status = file.stat()
            found.append([source.folder, str(file), status.st_size, status.st_mtime_ns])
    return found


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _read_bundle(file: Path, fingerprint: list[list[object]]) -> Bundle | None:
    try:
        note = json.loads(_note(file).read_text(encoding="utf-8"))
        is_same = note["sources"] == fingerprint and file.stat().st_size == note["size"]
        return Bundle(file, note["size"], note["sha256"]) if is_same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
