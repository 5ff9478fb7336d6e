"""S3 as the account of a case has it before the stack is created: buckets, and made-up files, plain or archived."""

import hashlib
import io
import json
import random
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdk_rehearsal.assembly import DEFAULT_REGION
from deeplearning_rehearsal.cases.small_data import SMALL_DATA

if TYPE_CHECKING:  # Reading a case needs no embedded AWS.
    from cdk_rehearsal.place import Place
    from deeplearning_rehearsal.software.kept_environments import KeptEnvironments

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
_FOLDERS = 8


@dataclass(frozen=True)
class AccountBucket:
    """
    A bucket: `denies` lists the actions that its policy denies to everybody.

    With `damaged_environments` it holds the environments of earlier rehearsals as the cluster's cache would, with a
    wrong byte in each archive.
    """

    name: str
    denies: Sequence[str] = ()
    damaged_environments: bool = False

    def make_policy(self, partition: str) -> str:
        """Return its policy as JSON."""
        arn = f"arn:{partition}:s3:::{self.name}"
        denial = {"Effect": "Deny", "Principal": "*", "Action": list(self.denies), "Resource": [arn, f"{arn}/*"]}
        return json.dumps({"Version": "2012-10-17", "Statement": [denial]})


@dataclass(frozen=True)
class DataObject:
    """
    Made-up data in a bucket of the account.

    Attributes:
        key: An archive's key, or a prefix that ends with `/`, under which each file is an object.
        kept: Part of the archive that is there; less than 1 for one that was cut off.
        data_set: Known data set whose files it has, made small. None: `files` made-up ones of `file_bytes` each.
    """

    bucket: str
    key: str
    files: int | None = None
    file_bytes: int | None = None
    kept: float = 1.0
    data_set: Literal["coco-2017", "tensorpack"] | None = None

    def __post_init__(self) -> None:
        for name in ("files", "file_bytes"):
            if (getattr(self, name) is None) == (self.data_set is None):
                rule = "given" if self.data_set is None else "left out with data_set, which has its own"
                raise ValueError(f"{name} must be {rule}")
        if not self.is_archive and not self.key.endswith("/"):
            raise ValueError(f"key must end with / or one of {', '.join(ARCHIVE_ENDINGS)}, got {self.key!r}")
        if not 0 < self.kept <= 1 or (self.kept < 1 and not self.is_archive):
            raise ValueError(f"kept must be a part of an archive, more than 0 and at most 1, got {self.kept:g}")

    @property
    def is_archive(self) -> bool:
        """True if it is one object."""
        return self.key.endswith(ARCHIVE_ENDINGS)

    def make_tree(self) -> Mapping[str, bytes]:
        """Return path -> content; the same each time, and such that nothing compresses it."""
        if self.data_set is not None:
            return SMALL_DATA[self.data_set]()
        source = random.Random(f"{self.bucket}/{self.key}")  # noqa: S311 - made-up data, no secret
        return {
            f"part{number % _FOLDERS}/{number:06d}.bin": source.randbytes(self.file_bytes or 0)
            for number in range(self.files or 0)
        }

    def make_objects(self) -> Mapping[str, bytes]:
        """Return key -> content of each object."""
        tree = self.make_tree()
        if not self.is_archive:
            return {self.key + path: content for path, content in tree.items()}
        archive = _zip(tree) if self.key.endswith(".zip") else _tar(tree, is_compressed=not self.key.endswith(".tar"))
        return {self.key: archive[: int(len(archive) * self.kept)]}


def fill_account(
    place: "Place", objects: Iterable[DataObject], buckets: Iterable[AccountBucket], kept: "KeptEnvironments"
) -> None:
    """
    Create the buckets with their policies and content; raises RehearsalError where no environment is kept to damage.
    """
    s3 = place.client("s3")
    location = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
    for name in dict.fromkeys([*(item.bucket for item in objects), *(bucket.name for bucket in buckets)]):
        s3.create_bucket(Bucket=name, **({} if place.region == DEFAULT_REGION else location))
    for item in objects:
        for key, content in item.make_objects().items():
            s3.put_object(Bucket=item.bucket, Key=key, Body=content)
    for bucket in buckets:
        if bucket.denies:
            s3.put_bucket_policy(Bucket=bucket.name, Policy=bucket.make_policy(place.partition))
        for key, content in kept.list_damaged() if bucket.damaged_environments else ():
            s3.put_object(Bucket=bucket.name, Key=key, Body=content)


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
