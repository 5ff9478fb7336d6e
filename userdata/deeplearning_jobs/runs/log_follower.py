"""Follower of growing log files."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1 << 20


class LogFollower:
    """
    Follower of a growing file, from its beginning or from its last lines.

    The file need not exist yet. It stays open: a replaced file is followed in its old version.
    """

    def __init__(self, path: Path, write: Callable[[bytes], None], last_lines: int | None = None) -> None:
        """Bind the file without opening it; begins at its start, or `last_lines` before its end."""
        self.path = path
        self._write = write
        self._last_lines = last_lines
        self._file: BinaryIO | None = None

    def poll(self) -> bool:
        """Copy what was appended; return whether anything was."""
        if self._file is None:
            try:
                self._file = self.path.open("rb")
            except OSError:
                return False
            if self._last_lines is not None:
                self._file.seek(find_last_lines(self._file, self._last_lines))
        has_more = False
        while data := self._file.read(CHUNK_BYTES):
            has_more = True
            self._write(data)
        return has_more

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def find_last_lines(file: BinaryIO, count: int) -> int:
    """
    Return the offset of a file's last lines; reads it backwards, as far as needed.

    It is inside of a line that is longer than `CHUNK_BYTES`: a progress bar has rewritten what is before it.
    """
    position = file.seek(0, 2)
    wanted, is_end = count, True
    while position > 0 and count > 0:
        size = min(CHUNK_BYTES, position)
        position -= size
        file.seek(position)
        data = file.read(size)
        end = len(data) - (1 if is_end and data.endswith(b"\n") else 0)
        is_end = False
        while wanted:
            end = data.rfind(b"\n", 0, end)
            if end < 0:
                break
            wanted -= 1
        if not wanted:
            return position + end + 1
        if size == CHUNK_BYTES and b"\n" not in data:
            return position
    return 0 if count > 0 else file.seek(0, 2)


def read_last_lines(path: Path, count: int) -> list[str]:
    """Return a file's last lines without line ends, progress bars with their last refresh; none without the file."""
    try:
        with path.open("rb") as file:
            file.seek(find_last_lines(file, count))
            lines = file.read().decode("utf-8", "replace").removesuffix("\n").split("\n")
    except OSError:
        return []
    return [_find_refresh(line) for line in lines] if lines != [""] else []


def _find_refresh(line: str) -> str:
    return next((text for text in reversed(line.split("\r")) if text.strip()), "")
