"""Files that sources contribute to a bundle: of folders, of archives, or the sources themselves."""

import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from deeplearning_cli.data.sources import InputError, Source


@dataclass(frozen=True)
class Entry:
    """One file of the bundle, with its path, bytes, mode and time."""

    name: str
    size: int
    mode: int
    modified: int
    stream: IO[bytes]


def read_entries(source: Source, path: Path) -> Iterator[Entry]:
    """Yield the files of a source, each open until the next is requested; refuse links and paths outside the source."""
    if path.is_dir():
        for file in list_files(path):
            name = f"{source.name}/{file.relative_to(path).as_posix()}"
            yield from _read_file(_join(source.folder, name), file)
    elif not source.is_archive:
        yield from _read_file(_join(source.folder, source.name), path)
    elif source.name.endswith(".zip"):
        yield from _read_zip(source, path)
    else:
        yield from _read_tar(source, path)


def _read_zip(source: Source, path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if stat.S_ISLNK(mode):
                raise InputError(f"{source.name} must contain files only, got the link {info.filename!r}; repack it")
            if not info.is_dir():
                with archive.open(info) as stream:
                    yield Entry(_join(source.folder, info.filename), info.file_size, mode, 0, stream)


def _read_tar(source: Source, path: Path) -> Iterator[Entry]:
    with tarfile.open(path) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                name = _join(source.folder, member.name)
                yield Entry(name, member.size, member.mode, int(member.mtime), stream)
            elif not member.isdir():
                what = f"the link or device {member.name!r}"
                raise InputError(f"{source.name} must contain files only, got {what}; repack it")


def list_files(folder: Path) -> Iterator[Path]:
    """
    Yield the files below a folder, in the same order each time; links to files are followed.

    Raises:
        InputError: A link to a folder, or an entry that is neither file nor folder, is among them.
    """
    for current, folders, files in os.walk(folder, onerror=_complain):
        folders.sort()
        for name in folders:
            if (Path(current) / name).is_symlink():
                link = Path(current) / name
                raise InputError(f"folders must not be links, got {link}; give its target as a source")
        for name in sorted(files):
            file = Path(current) / name
            if not file.is_file():
                raise InputError(f"{file} must be a file, got a broken link or a device; remove it")
            yield file


def _complain(error: OSError) -> None:
    raise error


def _read_file(name: str, file: Path) -> Iterator[Entry]:
    with file.open("rb") as stream:
        found = os.fstat(stream.fileno())
        yield Entry(name, found.st_size, found.st_mode, int(found.st_mtime), stream)


def _join(folder: str, name: str) -> str:
    """Return a path inside the bundle."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or ".." in parts or parts[0].startswith("/") or ":" in parts[0]:
        raise InputError(f"files of an archive must lie within it, got {name!r}; do not use this archive")
    return str(PurePosixPath(folder, *parts))
