"""Compares an archive with its digest while it is being fetched: right behind the last part that is complete."""

import base64
import hashlib
import os
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deeplearning_provision.s3.object_store import BLOCK_BYTES, StoredObject


class Hash(Protocol):
    """What a digest is computed with."""

    def update(self, data: bytes, /) -> None:
        """Take more."""

    def digest(self) -> bytes:
        """Return the digest."""


class Crc32:
    """The checksum of gzip and zip, which S3 can keep too."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._value = 0

    def update(self, data: bytes, /) -> None:
        """Take more."""
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        """Return the checksum, most significant byte first."""
        return self._value.to_bytes(4, "big")


@dataclass(frozen=True)
class Check:
    """
    What an archive must be.

    Attributes:
        name: Of the digest, and who says it.
        expected: The digest.
        make: Begins to compute it.
    """

    name: str
    expected: bytes
    make: Callable[[], Hash]


_MADE: dict[str, Callable[[], Hash]] = {
    "SHA256": hashlib.sha256,
    "SHA1": lambda: hashlib.sha1(usedforsecurity=False),
    "CRC32": Crc32,
}


def choose_check(item: StoredObject, sha256: str) -> Check | None:
    """
    Choose the strongest digest that is known and that this node can compute.

    Args:
        item: What S3 says of the object. It also knows CRC64NVME and CRC32C, which Python cannot compute fast enough.
        sha256: In hex, from the user; empty when there is none.

    Returns:
        None when there is none: then size and what the archive itself holds must do.
    """
    if sha256:
        return Check("sha256", bytes.fromhex(sha256), hashlib.sha256)
    found = dict(item.checksums)
    for name, make in _MADE.items():
        if name in found:
            return Check(f"S3's {name}", base64.b64decode(found[name]), make)
    if item.is_etag_md5:
        return Check("S3's MD5", bytes.fromhex(item.etag.strip('"')), lambda: hashlib.md5(usedforsecurity=False))
    return None


class Follower:
    """Reads the parts of a file in order, each as soon as it is complete: from memory, most of the time."""

    def __init__(self, path: Path, check: Check, ends: list[int]) -> None:
        """Prepare; `ends` are the offsets at which the parts end."""
        self._path = path
        self._check = check
        self._ends = ends
        self._complete = [False] * len(ends)
        self._changed = threading.Condition()
        self._is_stopped = False
        self._found = b""
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._follow, name="verification", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def tell(self, index: int) -> None:
        """Say that a part is complete."""
        with self._changed:
            self._complete[index] = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Give up what is not complete."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()

    def finish(self) -> bytes:
        """
        Wait for the end.

        Returns:
            The digest that was found.

        Raises:
            OSError: The file cannot be read.
        """
        self._thread.join()
        if self._error:
            raise self._error
        return self._found

    def _follow(self) -> None:
        made, position = self._check.make(), 0
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for index, end in enumerate(self._ends):
                    if not self._wait(index):
                        return
                    while position < end:
                        block = os.pread(handle, min(BLOCK_BYTES, end - position), position)
                        if not block:
                            raise OSError(f"{self._path} became shorter while it was read")
                        made.update(block)
                        position += len(block)
            finally:
                os.close(handle)
            self._found = made.digest()
        except OSError as error:
            self._error = error

    def _wait(self, index: int) -> bool:
        with self._changed:
            while not self._complete[index] and not self._is_stopped:
                self._changed.wait()
            return self._complete[index]
