"""How large an archive will be when it is extracted, as far as it says so before it is fetched."""

import errno
import io
import os
import struct
import zipfile
from dataclasses import dataclass

from deeplearning_provision.archives.reader import TAR, TAR_GZIP, name_damage
from deeplearning_provision.s3.object_store import ObjectStore, StoredObject

BUFFER_BYTES = 1 << 20
_TRAILER_BYTES = 4


@dataclass(frozen=True)
class ExtractedSize:
    """
    What the members of an archive will take.

    Attributes:
        size: Bytes.
        files: How many there are; 1 when that is not known.
        how: How it is known, for an error.
    """

    size: int
    files: int
    how: str


def measure_archive(store: ObjectStore, item: StoredObject, kind: str) -> ExtractedSize:
    """
    Ask an archive in S3 what it will take.

    Never more than it will: a source that fits is never refused. A zip lists its members at its end, a plain tar is not
    smaller than its members, and gzip says at its end what it held, modulo 4 GiB.

    Raises:
        WrongContentError: It is no zip.
        SourceChangedError: It is another one by now.
        ProvisionFailure: It cannot be read.
    """
    if kind == TAR:
        return ExtractedSize(item.size, 1, " (the archive, and as much again for its members)")
    if kind == TAR_GZIP:
        ends = item.size >= _TRAILER_BYTES
        trailer = b"".join(store.read_blocks(item, item.size - _TRAILER_BYTES, item.size)) if ends else b"\0" * 4
        size = max(item.size, struct.unpack("<I", trailer)[0])
        return ExtractedSize(size, 1, " (the archive, and at least as much for its members: gzip does not say it all)")
    with name_damage(""), zipfile.ZipFile(io.BufferedReader(RemoteFile(store, item), BUFFER_BYTES)) as archive:
        entries = archive.infolist()
        return ExtractedSize(
            sum(entry.file_size for entry in entries), len(entries), f" (the archive, and its {len(entries)} members)"
        )


class RemoteFile(io.RawIOBase):
    """An object of S3 as a file that is read where it is looked at."""

    def __init__(self, store: ObjectStore, item: StoredObject) -> None:
        """Begin at its beginning."""
        super().__init__()
        self._store = store
        self._item = item
        self._position = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._item.size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))  # As of a real file: zipfile relies on it.
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return where one is."""
        return self._position

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill a buffer."""
        end = min(self._position + len(buffer), self._item.size)
        found = b"".join(self._store.read_blocks(self._item, self._position, end))
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)
