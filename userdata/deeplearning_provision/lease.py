"""
Lease of one node on work on the shared file system.

The owner creates a file and touches it every 15 seconds. A node that waits measures on its own clock for how long the
file has not changed; clocks of nodes are not compared. Two concurrent owners do no harm: they make the result twice,
and each renames a complete one into place.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_node.deadline import Clock

BEAT_SECONDS = 15.0
STALE_SECONDS = 120.0
"""Longer than the minute for which an NFS client may cache a file's attributes."""
LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Lease:
    """Lease with this node's claim to it."""

    path: Path  # File that names the owner
    instance: str  # This node; `status.lock_file` admits one process, so a file that names it is from a dead process
    clock: Clock
    lost: threading.Event = field(default_factory=threading.Event)  # Set when another node took over the lease

    @contextlib.contextmanager
    def hold(self, is_done: Callable[[], bool], on_wait: Callable[[str], None]) -> Iterator[bool]:
        """
        Wait until this node owns the lease or the work is done; yield whether work is left, and renew the lease
        meanwhile.

        `on_wait` is called with the owner's instance id at every poll.
        """
        self.lost.clear()
        if not self._acquire(is_done, on_wait):
            yield False
            return
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(ended,), daemon=True)
        beat.start()
        try:
            yield not is_done()
        finally:
            ended.set()
            beat.join()
            if self._read()[0] == self.instance:
                self.path.unlink(missing_ok=True)

    def is_lost(self) -> bool:
        """Return whether another node owns the lease, and set `lost`."""
        if self._read()[0] not in {"", self.instance}:
            self.lost.set()
        return self.lost.is_set()

    def _acquire(self, is_done: Callable[[], bool], on_wait: Callable[[str], None]) -> bool:
        last: tuple[str, int] = ("", 0)
        since = self.clock.read()
        while not is_done():
            if self._create():
                return True
            found = self._read()
            if found != last:
                last, since = found, self.clock.read()
            if found[0] == self.instance or self.clock.read() - since >= STALE_SECONDS:
                self._remove()
                continue
            on_wait(found[0])
            self.clock.wait(LOOK_SECONDS)
        return False

    def _create(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps({"instance": self.instance}) + "\n")
        return True

    def _read(self) -> tuple[str, int]:
        """Return the owner and the file's time; opening it revalidates the cache of an NFS client."""
        try:
            with self.path.open() as file:
                document = json.loads(file.read() or "{}")
                return str(document.get("instance", "")), os.fstat(file.fileno()).st_mtime_ns
        except (OSError, ValueError, AttributeError):
            return "", 0

    def _remove(self) -> None:
        """Remove a dead node's file; the rename succeeds on one node only."""
        aside = self.path.with_name(f"{self.path.name}.{self.instance}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            aside.unlink()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                if not self.is_lost():
                    os.utime(self.path)
