"""The objects that S3 holds in a case before its stack is created: trees of made-up files, plain or as an archive."""

import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

from deeplearning_rehearsal.cases.format.small_data import SMALL_DATA

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_FOLDERS = 8


@dataclass(frozen=True)
class DataObject:
    """
    Made-up data in S3.

    Attributes:
        bucket: Its bucket, which the account has already.
        key: An archive's key, or a prefix that ends with `/`, under which each file is an object.
        files: How many files. Default: those of the data set.
        file_bytes: Size of each.
        kept: Which part of the archive is there; less than 1 for one that was cut off.
        data_set: Known data set whose files it has, made small. Default: none.
    """

    bucket: str
    key: str
    files: int = 0
    file_bytes: int = 0
    kept: float = 1.0
    data_set: str = ""

    @property
    def is_archive(self) -> bool:
        """Whether it is one object."""
        return self.key.endswith(ARCHIVE_ENDINGS)

    def make_tree(self) -> Mapping[str, bytes]:
        """Return path -> content; the same each time, and such that nothing compresses it."""
        if self.data_set:
            return SMALL_DATA[self.data_set]()
        source = random.Random(f"{self.bucket}/{self.key}")  # noqa: S311 - made-up data, no secret
        return {
            f"part{number % _FOLDERS}/{number:06d}.bin": source.randbytes(self.file_bytes)
            for number in range(self.files)
        }

    def make_objects(self) -> Mapping[str, bytes]:
        """Return key -> content of each object."""
        tree = self.make_tree()
        if not self.is_archive:
            return {self.key + path: content for path, content in tree.items()}
        archive = _zip(tree) if self.key.endswith(".zip") else _tar(tree, is_compressed=not self.key.endswith(".tar"))
        return {self.key: archive[: int(len(archive) * self.kept)]}


def digest_tree(tree: Mapping[str, bytes]) -> str:
    """Return what `DIGEST_COMMAND` prints in a folder that holds exactly these files."""
    lines = sorted(f"{hashlib.sha256(content).hexdigest()}  ./{path}\n" for path, content in tree.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


DIGEST_COMMAND = "find . -type f -exec sha256sum {} + | LC_ALL=C sort | sha256sum | cut -d ' ' -f 1"


def _tar(tree: Mapping[str, bytes], *, is_compressed: bool) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if is_compressed else "w") as archive:
        for path, content in tree.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _zip(tree: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in tree.items():
            archive.writestr(path, content)
    return buffer.getvalue()
