"""Atomic writes of files, only when their content changes."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

MARK = "deeplearning cluster (written by deeplearning-agent)"
BEGIN = f"# BEGIN {MARK}"
END = f"# END {MARK}"


def write_file(path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None) -> bool:
    """
    Replace a file's content by a text, creating missing parent folders; return whether anything changed.

    A reader sees the old bytes or the new ones, even when the disk is full or the machine stops. `owner` is a user and
    group id; default: the agent's. OSError names the path.
    """
    if has_content(path, text, mode, owner):
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, encode(text), mode, owner)
    except OSError as error:
        raise OSError(error.errno, f"cannot write {path}: {error.strerror}; free or remount its disk") from error
    return True


def _replace(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if owner:
                os.fchown(file.fileno(), *owner)
            os.fsync(file.fileno())
        _rename(Path(name), path, data)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _rename(draft: Path, path: Path, data: bytes) -> None:
    """Put a draft in a file's place; a file that is mounted by itself, as /etc/hosts in a container, is written."""
    try:
        draft.rename(path)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        path.write_bytes(data)
        draft.unlink()


def encode(text: str) -> bytes:
    """
    Return a text's bytes; bytes of other writers that are not UTF-8 are preserved.

    Half of a surrogate pair, which JSON allows and UTF-8 does not, becomes a question mark.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def has_content(path: Path, text: str, mode: int, owner: tuple[int, int] | None) -> bool:
    """Return whether a file has this text, mode and owner."""
    try:
        status = path.lstat()
        same_owner = owner is None or (status.st_uid, status.st_gid) == owner
        return same_owner and status.st_mode & 0o7777 == mode and path.read_bytes() == encode(text)
    except OSError:
        return False


def replace_block(text: str, block: str, *, at_top: bool = False) -> str:
    """
    Return a text with the block between the agent's markers replaced; an empty block removes it.

    Without such a block it is added at the end, or at the top. Everything outside the markers is preserved.
    """
    lines = text.splitlines(keepends=True)
    marks = [line.rstrip("\n") for line in lines]
    body = f"{BEGIN}\n{block.rstrip(chr(10))}\n{END}\n" if block else ""
    if BEGIN in marks and END in marks[marks.index(BEGIN) :]:
        begin = marks.index(BEGIN)
        return "".join(lines[:begin]) + body + "".join(lines[marks.index(END, begin) + 1 :])
    # A marker without its counterpart must not pair with the new ones.
    rest = "".join(line for line, mark in zip(lines, marks, strict=True) if mark not in (BEGIN, END))
    if at_top:
        return body + rest
    return rest + ("\n" if rest and not rest.endswith("\n") else "") + body


def write_block(
    path: Path, block: str, *, at_top: bool = False, mode: int = 0o644, owner: tuple[int, int] | None = None
) -> bool:
    """Replace the agent's block in a file that others also write, or in a new one; return whether anything changed."""
    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.exists() else ""
    return write_file(path, replace_block(text, block, at_top=at_top), mode, owner)
