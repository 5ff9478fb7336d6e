"""Downloads over HTTP that resume after an interruption, and are kept only with the expected digest and size."""

import errno
import hashlib
import http.client
import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deeplearning_cli.data.sources import PreparationError, Source

CHUNK_BYTES = 1 << 20
RESPONSE_SECONDS = 60
ATTEMPTS = 5
"""Consecutive attempts that fetched nothing."""
LEAST_PASSING = 500
"""First status code of server errors, which may pass."""
SPARE_BYTES = 64 << 20
Report = Callable[[str, int, int], None]
"""Callback with a name, the bytes done and the bytes in all; 0 if not known."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True)
class Finished:
    """Record of a complete download."""

    url: str
    size: int
    sha256: str


def download(source: Source, folder: Path, report: Report, pause: Callable[[float], None] = time.sleep) -> Path:
    """
    Download a source into a folder, unless it is there already.

    Effects: writes `<name>`, and `<name>.json` with its digest; `<name>.part` and `<name>.part.json` meanwhile.

    Raises:
        PreparationError: It cannot be fetched, or has another digest or size; a wrong file is deleted.
    """
    file = folder / source.name
    found = _read_finished(file, source)
    if found:
        report(source.name, found.size, found.size)
        return file
    folder.mkdir(parents=True, exist_ok=True)
    failures = 0
    while True:
        before = _size(_part(file))
        try:
            _fetch(source, file, report)
            break
        except urllib.error.HTTPError as error:
            if error.code < LEAST_PASSING:
                raise PreparationError(f"{source.url} returned {error.code} {error.reason}; check the URL") from error
            cause = f"{error.code} {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and (error.filename or error.errno in {errno.ENOSPC, errno.EDQUOT}):
                raise PreparationError(f"{folder}: {error.strerror}; free the disk or choose --work") from error
            cause = str(getattr(error, "reason", error)) or type(error).__name__
        failures = 0 if _size(_part(file)) > before else failures + 1
        if failures == ATTEMPTS:
            raise PreparationError(f"{source.url}: {cause}; run the same command again: it resumes the download")
        pause(2.0**failures)
    return _finish(source, file)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _part(file: Path) -> Path:
    return file.with_name(f"{file.name}.part")


def _note(file: Path) -> Path:
    return file.with_name(f"{file.name}.json")


def _read_finished(file: Path, source: Source) -> Finished | None:
    """Return the record of a complete file; None if there is none, or it is of another file."""
    try:
        found = Finished(**json.loads(_note(file).read_text(encoding="utf-8")))
        is_whole = file.stat().st_size == found.size and found.url == source.url
    except (OSError, ValueError, TypeError):
        return None
    is_wanted = source.digest in {"", found.sha256} or len(source.digest) != len(found.sha256)
    return found if is_whole and is_wanted and source.size in {0, found.size} else None


def _open(request: urllib.request.Request) -> Any:
    """Open a URL over HTTP; redirections to files are not followed."""
    opener = urllib.request.OpenerDirector()
    for kind in ("Proxy", "Unknown", "HTTP", "HTTPS", "HTTPDefaultError", "HTTPRedirect"):
        opener.add_handler(getattr(urllib.request, f"{kind}Handler")())
    opener.add_handler(urllib.request.HTTPErrorProcessor())
    return opener.open(request, timeout=RESPONSE_SECONDS)


def _fetch(source: Source, file: Path, report: Report) -> None:
    """Fetch the missing part of a file; an interruption leaves it for the next attempt."""
    part, note = _part(file), _note(_part(file))
    known = _read_note(note, source)
    done = part.stat().st_size if known is not None and part.exists() else 0
    headers = {"Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        validator = (known or {}).get("validator")
        headers |= {"If-Range": validator} if validator else {}
    request = urllib.request.Request(source.url, headers=headers)  # noqa: S310 - `read_url` lets only http pass
    try:
        response = _open(request)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if done and done == (known or {}).get("total"):
            return
        note.unlink(missing_ok=True)  # It is longer than the server's file now: start again.
        raise http.client.HTTPException("the file changed on the server") from error
    with response:
        done, total = _locate(response, done)
        if source.size and total and total != source.size:
            raise PreparationError(f"{source.url} must have {source.size} bytes, got {total}; check the URL")
        _require_space(file.parent, total - done)
        validator = _strong(response.headers.get("ETag")) or response.headers.get("Last-Modified")
        note.write_text(json.dumps({"url": source.url, "total": total, "validator": validator}), encoding="utf-8")
        with part.open("r+b" if part.exists() else "wb") as stream:
            stream.truncate(done)
            stream.seek(done)
            while chunk := response.read(CHUNK_BYTES):
                stream.write(chunk)
                done += len(chunk)
                report(source.name, done, total)
    if total and done != total:
        raise http.client.IncompleteRead(b"", total - done)


def _locate(response: Any, done: int) -> tuple[int, int]:
    """Return the offset at which the response begins, and the size of the whole file; 0 when it is not known."""
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if found is None or int(found[1]) != done:
            raise http.client.HTTPException("the server sent another part than the requested one")
        return done, 0 if found[2] == "*" else int(found[2])
    return 0, int(response.headers.get("Content-Length") or 0)


def _read_note(note: Path, source: Source) -> dict[str, Any] | None:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("url") == source.url else None


def _strong(tag: str | None) -> str | None:
    """Return the tag if it is strong: If-Range accepts no weak one."""
    return tag if tag and not tag.startswith("W/") else None


def _require_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size + SPARE_BYTES > free:
        raise PreparationError(f"{folder} must have {size + SPARE_BYTES} bytes free, got {free}; choose --work")


def _finish(source: Source, file: Path) -> Path:
    """Keep a download under its name if digest and size match, else remove it."""
    part = _part(file)
    algorithms = {"sha256": hashlib.sha256(), "md5": hashlib.md5(usedforsecurity=False)}
    with part.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            for algorithm in algorithms.values():
                algorithm.update(chunk)
    size = part.stat().st_size
    found = {name: algorithm.hexdigest() for name, algorithm in algorithms.items()}
    _note(part).unlink(missing_ok=True)
    expected = source.digest
    if (expected and expected not in found.values()) or source.size not in {0, size}:
        part.unlink()
        wanted = expected or f"{source.size} bytes"
        got = found["md5" if len(expected) == len(found["md5"]) else "sha256"] if expected else f"{size} bytes"
        raise PreparationError(f"{source.url} must have {wanted}, got {got}; it was not kept, check URL and digest")
    part.rename(file)
    _note(file).write_text(json.dumps(asdict(Finished(source.url, size, found["sha256"]))), encoding="utf-8")
    return file
