"""
Who makes something on the shared file system: one node at a time, and another when that one has died.

Nothing breaks when two believe that they own it, since what they make is renamed into place when it is whole; it would
be made twice. A file that only one node can create says who owns it, and the owner touches it every 15 seconds. Clocks
of nodes are not compared: who waits measures, on its own clock, how long the file has not changed.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deeplearning_node.deadline import Clock

BEAT_SECONDS = 15.0
STALE_SECONDS = 120.0
"""More than the minute for which an NFS client may believe what it knew of a file."""
LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Ownership:
    """A claim to make something."""

    path: Path  # The file that says who owns it
    # This node. Of its own processes only one may try at a time, see `status.lock_file`: so a claim of this node that
    # is found is a dead process's.
    instance: str
    clock: Clock  # Measures how long another's claim has not changed

    @contextlib.contextmanager
    def hold(self, is_done: Callable[[], bool], on_wait: Callable[[str], None]) -> Iterator[bool]:
        """
        Wait until this node owns it or it is done, and keep the claim for the block.

        Args:
            is_done: Whether somebody has made it meanwhile.
            on_wait: Told the instance for which this one waits, at every look.

        Yields:
            Whether it is left to do.
        """
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
        """Return the owner and when it last touched its claim; opening the file asks an NFS server anew."""
        try:
            with self.path.open() as file:
                document = json.loads(file.read() or "{}")
                return str(document.get("instance", "")), os.fstat(file.fileno()).st_mtime_ns
        except (OSError, ValueError, AttributeError):
            return "", 0

    def _remove(self) -> None:
        """Remove a dead node's claim: of several that try, the rename lets one succeed."""
        aside = self.path.with_name(f"{self.path.name}.{self.instance}")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(aside)
            aside.unlink()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                if self._read()[0] == self.instance:
                    os.utime(self.path)
