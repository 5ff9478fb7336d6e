"""What was finished, a line each, so that an interrupted run is gone on with."""

import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType


class Journal:
    """
    Lines that are only ever added.

    Each run writes a file of its own, so two at once, of which one does not know yet that it was succeeded, cannot mix
    their lines; all files of the same name are read together.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Name the journal; `name` says of what it is, so that another content has another journal."""
        self._folder = folder
        self._name = name
        self._lock = threading.Lock()
        self._handle = -1

    def __enter__(self) -> None:
        """Begin this run's file."""
        path = self._folder / f"{self._name}.{secrets.token_hex(6)}.journal"
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; it stays."""
        os.close(self._handle)

    def read(self) -> Iterator[str]:
        """Return the lines of all runs; half a line, where one was interrupted, is none."""
        for path in sorted(self._folder.glob(f"{self._name}.*.journal")):
            with path.open(encoding="ascii", errors="replace", newline="\n") as file:
                for line in file:
                    if line.endswith("\n"):
                        yield line[:-1]

    def append(self, lines: Iterable[str], *, is_durable: bool = True) -> None:
        """
        Add lines.

        Args:
            lines: What was finished.
            is_durable: Whether they must be on the disk when this returns. Default: they must; without, they may be
                lost by a machine that stops, but not by a process that does.
        """
        data = "".join(f"{line}\n" for line in lines).encode("ascii")
        with self._lock:
            os.write(self._handle, data)
            if is_durable:
                os.fsync(self._handle)

    def forget(self) -> None:
        """Remove what all runs wrote."""
        for path in self._folder.glob(f"{self._name}.*.journal"):
            path.unlink(missing_ok=True)
