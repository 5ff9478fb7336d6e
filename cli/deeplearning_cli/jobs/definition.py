"""Definition of a job in `job.toml`, and its source folder, packed."""

import argparse
import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import UnavailableError
from deeplearning_contract.document import ContractError, read_record
from deeplearning_contract.job_definition import JobDefinition

MOST_SOURCE_BYTES = 10_000_000
"""Most bytes of a packed source folder; data belongs to the stack's `data`, checkpoints to the job's folder."""
LEFT_OUT = frozenset({".git", ".hg", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "cdk.out"})
_SHOWN = 3


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
    known = [entry.name for entry in fields(JobDefinition) if entry.name != "source"]
    for key in document:
        if key not in known:
            raise UnavailableError(f"{path}: key must be one of {', '.join([*known, 'source'])}, got {key!r}")
    if source is not None and not isinstance(source, str):
        raise UnavailableError(f"{path}: source must be the path of a folder, got {source!r}")
    try:
        job = _replace_values(read_record(JobDefinition, document, "job"), arguments)
    except ContractError as error:
        raise UnavailableError(f"{path}: {str(error).removeprefix('job.')}") from error
    return JobFile(job, None if source is None else path.parent / source)


def _replace_values(job: JobDefinition, arguments: argparse.Namespace) -> JobDefinition:
    changes: dict[str, Any] = {"env": {**job.env, **dict(_split(word) for word in arguments.env)}}
    for name in ("name", "members"):
        if getattr(arguments, name) is not None:
            changes[name] = getattr(arguments, name)
    return replace(job, **changes)


def _split(word: str) -> tuple[str, str]:
    name, is_given, value = word.partition("=")
    if not is_given:
        raise ContractError(f"--env must be NAME=VALUE, got {word!r}")
    return name, value


def pack(folder: Path) -> PackedSource:
    """
    Pack a folder as a gzipped tar: sorted names, no owners, no times.

    Left out are version control, caches and virtual environments (`LEFT_OUT`).

    Raises:
        UnavailableError: It is no folder, has something else than files, folders and links, or is too large.
    """
    if not folder.is_dir():
        raise UnavailableError(f"source must be a folder, got {folder}")
    buffer, sizes = io.BytesIO(), {}
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in _list_files(folder):
            name = path.relative_to(folder).as_posix()
            entry = archive.gettarinfo(str(path), name)
            if not (entry.isreg() or entry.isdir() or entry.issym()):
                raise UnavailableError(f"source must have only files, folders and links, got {name}")
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = 0
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            if entry.isreg():
                sizes[name] = entry.size
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
            if buffer.tell() > MOST_SOURCE_BYTES:
                break
    content = buffer.getvalue()
    if len(content) > MOST_SOURCE_BYTES:
        raise UnavailableError(
            f"source must be at most {MOST_SOURCE_BYTES / 1e6:.0f} MB when packed, got more; its largest files are "
            f"{', '.join(_list_largest(sizes))}; keep data and checkpoints outside of {folder}"
        )
    return PackedSource(content, hashlib.sha256(content).hexdigest(), len(sizes))


def _list_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in LEFT_OUT or path.suffix == ".pyc":
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _list_files(path)


def _list_largest(sizes: dict[str, int]) -> Sequence[str]:
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_SHOWN]
    return [f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in largest]
