"""Fetches one large object in parts, many at once, and goes on where an earlier run was interrupted."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deeplearning_provision.resume_journal import Journal
from deeplearning_provision.s3.object_store import ObjectStore, StoredObject
from deeplearning_provision.s3.verification import Check, Follower
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.thread_pool import run_crew

VERIFIED = "verified"


@dataclass(frozen=True)
class Pace:
    """
    How much is done at once.

    Attributes:
        part_bytes: Size of a part; an object of at most this size is fetched by one call.
        threads: Calls at the same time.
    """

    part_bytes: int = 64 * 1024 * 1024
    threads: int = 16


class WrongContentError(ProvisionFailure):
    """The content of a source is not what it must be; the same content never will be."""


class Download:
    """
    One object on its way to a file.

    The file and its journals are named after the content, so what was fetched of another content never mixes with it.
    """

    def __init__(self, store: ObjectStore, item: StoredObject, folder: Path, pace: Pace) -> None:
        """Look at nothing yet; `folder` is where the file is kept until it is whole."""
        self._store = store
        self._item = item
        self._folder = folder
        self._pace = pace
        content = hashlib.sha256(f"{item} {item.etag} {item.size}".encode()).hexdigest()[:16]
        self._stem = f"object-{content}"
        self.path = folder / f"{self._stem}.part"
        self._journal = Journal(folder, f"{self._stem}-{pace.part_bytes}")
        self._ends = [min(start + pace.part_bytes, item.size) for start in range(0, max(item.size, 1), pace.part_bytes)]

    def read_finished(self) -> set[int]:
        """Return which parts earlier runs finished."""
        try:
            if self.path.stat().st_size != self._item.size:
                return set()
        except FileNotFoundError:
            return set()
        return {int(line) for line in self._journal.read() if line.isdigit() and int(line) < len(self._ends)}

    def is_verified(self) -> bool:
        """Tell whether an earlier run fetched all of it and compared it."""
        return len(self.read_finished()) == len(self._ends) and VERIFIED in self._journal.read()

    def count_finished(self) -> int:
        """Return the bytes that earlier runs fetched."""
        return sum(self._ends[index] - self._start(index) for index in self.read_finished())

    def remove_others(self) -> None:
        """Remove what was fetched of other contents."""
        for path in self._folder.glob("object-*"):
            if not path.name.startswith(self._stem):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the file and its journals."""
        for path in self._folder.glob(f"{self._stem}*"):
            path.unlink(missing_ok=True)

    def run(self, check: Check | None, on_bytes: Callable[[int], None]) -> None:
        """
        Fetch what is missing, and compare the whole with its digest meanwhile.

        Args:
            check: What the content must be; None when it is not known.
            on_bytes: Told how many bytes came, by several threads.

        Raises:
            SourceChangedError: The object is another one by now.
            WrongContentError: Its digest is wrong; the file is removed.
            ProvisionFailure: It cannot be read.
            OSError: The disk refuses.
        """
        finished = self.read_finished()
        if not finished:
            self._journal.forget()
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        follower = Follower(self.path, check, self._ends) if check else None
        try:
            os.ftruncate(handle, self._item.size)
            if follower:
                follower.start()
                for index in finished:
                    follower.tell(index)
            self._fetch(handle, finished, follower, on_bytes)
        except BaseException:
            if follower:
                follower.stop()
            raise
        finally:
            os.close(handle)
        if check and follower:
            self._compare(check, follower.finish())
        with self._journal:
            self._journal.append([VERIFIED])

    def _fetch(
        self, handle: int, finished: set[int], follower: Follower | None, on_bytes: Callable[[int], None]
    ) -> None:
        with self._journal:

            def fetch(index: int) -> None:
                position = self._start(index)
                for block in self._store.read_blocks(self._item, position, self._ends[index]):
                    view = memoryview(block)
                    while view:
                        written = os.pwrite(handle, view, position)
                        position, view = position + written, view[written:]
                    on_bytes(len(block))
                os.fsync(handle)
                self._journal.append([str(index)])
                if follower:
                    follower.tell(index)

            missing = (index for index in range(len(self._ends)) if index not in finished)
            run_crew(missing, fetch, min(self._pace.threads, len(self._ends)))

    def _compare(self, check: Check, found: bytes) -> None:
        if found != check.expected:
            self.remove()
            raise WrongContentError(
                f"{check.name} of {self._item} must be {check.expected.hex()}, got {found.hex()}",
                "upload the archive again, or correct the digest of the source and deploy",
            )

    def _start(self, index: int) -> int:
        return index * self._pace.part_bytes
