"""What a source holds: the objects below a prefix, checked before the first is fetched."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives.extraction import refuse_member
from deeplearning_provision.archives.safe_path import UnsafeNameError, split_key
from deeplearning_provision.s3.object_store import ObjectStore, StoredObject
from deeplearning_provision.steps import ProvisionFailure


@dataclass(frozen=True)
class Listing:
    """
    The objects of a source, in a file: there may be millions.

    Attributes:
        digest: Changes with any key, size or content, and with what the settings ask of the source.
        count: How many files there are.
        size: Their bytes.
        folders: How many folders they need.
        file: One object a line.
        bucket: Where they are.
    """

    digest: str
    count: int
    size: int
    folders: int
    file: Path
    bucket: str

    def read(self) -> Iterator[tuple[tuple[str, ...], StoredObject]]:
        """Return where each object goes, and the object; those whose keys end with a slash are folders."""
        with self.file.open(encoding="utf-8", errors="surrogatepass") as lines:
            for line in lines:
                relative, key, size, etag = json.loads(line)
                yield split_key(relative), StoredObject(self.bucket, key, size, etag)


def digest_object(source: DataSettings, item: StoredObject) -> str:
    """Return what names a source that is one object."""
    found = _begin_digest(source)
    _add(found, item)
    return found.hexdigest()


def list_source(source: DataSettings, store: ObjectStore, file: Path) -> Listing:
    """
    List a prefix.

    Effects: the listing's file.

    Raises:
        ProvisionFailure: It cannot be listed, is empty, or a key could not be a file's name.
    """
    what = f"s3://{source.bucket}/{source.key}"
    found = _begin_digest(source)
    count = size = 0
    folders: set[tuple[str, ...]] = set()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", errors="surrogatepass") as lines:
        for page in store.list_pages(source.bucket, source.key):
            for item in page:
                relative = item.key[len(source.key) :]
                if not relative:
                    continue  # The prefix itself, which the console makes.
                parts = _check_key(what, relative, item)
                folders.update(parts[:end] for end in range(1, len(parts) + relative.endswith("/")))
                count, size = count + (not relative.endswith("/")), size + item.size
                _add(found, item)
                lines.write(f"{json.dumps([relative, item.key, item.size, item.etag])}\n")
    if not count:
        raise ProvisionFailure(f"{what} must hold objects, got none", "upload them, or correct the key of the source")
    listing = Listing(found.hexdigest(), count, size, len(folders), file, source.bucket)
    _check_collisions(what, listing, folders)
    return listing


def _check_key(what: str, relative: str, item: StoredObject) -> tuple[str, ...]:
    try:
        parts = split_key(relative)
    except UnsafeNameError as error:
        raise refuse_member(f"{what}: {error}") from error
    if relative.endswith("/") and item.size:
        raise refuse_member(f"{what}: a key with content must not end with a slash, got {relative!r}")
    return parts


def _check_collisions(what: str, listing: Listing, folders: set[tuple[str, ...]]) -> None:
    for parts, item in listing.read():
        if parts in folders and not item.key.endswith("/"):
            raise refuse_member(f"{what}: a name must be a file or a folder, not both, got {'/'.join(parts)!r}")


def _begin_digest(source: DataSettings) -> "hashlib._Hash":
    return hashlib.sha256(json.dumps([source.bucket, source.key, source.sha256]).encode())


def _add(found: "hashlib._Hash", item: StoredObject) -> None:
    found.update(json.dumps([item.key, item.size, item.etag]).encode())
