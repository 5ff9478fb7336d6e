"""Definition of a job in `job.toml`, and its source folder, packed."""

import argparse
import gzip
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomllib

from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.jobs.source_folder import MOST_PACKED_BYTES, SourceEntry, SourceFolder, scan_source, show
from deeplearning_contract.document import ContractError, read_record
from deeplearning_contract.jobs.job_definition import JobDefinition, read_variables

KEYS = ("name", "program", "launcher", "members", "gpus_per_member", "data", "env", "max_seconds", "retries", "source")
"""Keys of a job file; the other values of a job are options of `submit` and of `deeplearning run`."""


@dataclass(frozen=True)
class JobFile:
    """
    A job file, as its user wrote it.

    Attributes:
        job: The definition, without a source.
        source: The folder to pack; None to run the program from the nodes' own files.
    """

    job: JobDefinition
    source: Path | None


@dataclass(frozen=True)
class PackedSource:
    """Packed source folder, the same bytes for the same files."""

    content: bytes
    sha256: str
    files: int
    left_out: Mapping[str, int]  # Name -> size in bytes


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the job file, and the values that replace those of the file."""
    add = parser.add_argument
    add("job", metavar="JOB.TOML", help="file with the definition of the job")
    add("--name", metavar="JOB", help="replaces name")
    add("--members", type=int, metavar="N", help="replaces members: the nodes of the job")
    add("--env", action="append", default=[], metavar="NAME=VALUE", help="adds to env; may be given again")


def read_job(path: Path, arguments: argparse.Namespace) -> JobFile:
    """
    Read a job file, with the values of the command line.

    Raises:
        UnavailableError: The file cannot be read, or a value cannot work.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UnavailableError(f"job file must exist, got {path}; see deeplearning-cdk submit --help") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnavailableError(f"{path} must be TOML: {error}") from error
    source = document.pop("source", None)
    for key in document:
        if key not in KEYS:
            raise UnavailableError(f"{path}: key must be one of {', '.join(KEYS)}, got {key!r}")
    if source is not None and not isinstance(source, str):
        raise UnavailableError(f"{path}: source must be the path of a folder, got {source!r}")
    try:
        job = _replace_values(read_record(JobDefinition, document, "job"), arguments)
    except ContractError as error:
        raise UnavailableError(f"{path}: {str(error).removeprefix('job.')}") from error
    return JobFile(job, None if source is None else path.parent / source)


def _replace_values(job: JobDefinition, arguments: argparse.Namespace) -> JobDefinition:
    changes: dict[str, Any] = {"env": {**job.env, **read_variables(arguments.env, {})}}
    for name in ("name", "members", "fresh"):
        if getattr(arguments, name, None) is not None:
            changes[name] = getattr(arguments, name)
    return replace(job, **changes)


def pack(folder: Path) -> PackedSource:
    """
    Pack a folder as a gzipped tar: sorted names, no owners, no times.

    `scan_source` decides what is packed, and refuses what the master could not unpack.

    Raises:
        UnavailableError: It cannot be packed, is too large, or changes meanwhile.
    """
    source = scan_source(folder)
    buffer = _PackedBuffer()
    try:
        with (
            gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive,
        ):
            for entry in source.entries:
                _add_entry(archive, source, entry)
    except _TooLargeError:
        raise UnavailableError(source.describe_too_large()) from None
    content = buffer.getvalue()
    files = sum(stat.S_ISREG(entry.mode) for entry in source.entries)
    return PackedSource(content, hashlib.sha256(content).hexdigest(), files, source.left_out)


class _TooLargeError(Exception):
    """The packed folder is too large."""


class _PackedBuffer(io.BytesIO):
    """Memory for a packed folder, and not for more."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > MOST_PACKED_BYTES:
            raise _TooLargeError
        return super().write(data)


def _add_entry(archive: tarfile.TarFile, source: SourceFolder, entry: SourceEntry) -> None:
    member = tarfile.TarInfo(entry.name)
    member.mode = 0o755 if stat.S_ISDIR(entry.mode) or entry.mode & stat.S_IXUSR else 0o644
    if stat.S_ISDIR(entry.mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(entry.mode):
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
        archive.addfile(member)
    else:
        _add_file(archive, member, f"{source.root}/{entry.name}")


def _add_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Add a file with the size that it has when it is opened: a log may grow meanwhile."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            member.size = os.fstat(handle).st_size
            archive.addfile(member, file)
    except OSError as error:
        raise UnavailableError(
            f"source must stay as it is while it is packed, got {show(member.name)}: {error}; submit again"
        ) from error
