"""Contents of a source: one archive, or all objects of a prefix."""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives.extraction import extract
from deeplearning_provision.archives.reader import find_format
from deeplearning_provision.archives.tree_writer import TreeWriter, UnsafeNameError, split_key
from deeplearning_provision.data.target import DataTarget
from deeplearning_provision.disk import check_room, render_bytes
from deeplearning_provision.lease import Lease
from deeplearning_provision.s3 import ObjectStore, StoredObject, check_digest, choose_check, map_all
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure

_SHA256 = re.compile(r"\s*([0-9a-fA-F]{64})\b")

Parts = tuple[str, ...]


class LeaseLostError(ProvisionFailure):
    """Another node took over the staging, since this one was silent for too long."""

    def __init__(self) -> None:
        super().__init__("another node has taken over the staging", "no action is needed", is_final=False)


@dataclass(frozen=True)
class StepProgress:
    """Progress of a step in bytes, from any thread; raises LeaseLostError once the lease is lost."""

    status: Status
    step: str
    lease: Lease

    def start(self, detail: str, total: int, done: int = 0) -> None:
        self.status.start(self.step, detail, total, "bytes", done)

    def add(self, count: int) -> None:
        self._check()
        self.status.add(self.step, count)

    def reach(self, done: int) -> None:
        self._check()
        self.status.advance(self.step, done)

    def _check(self) -> None:
        if self.lease.lost.is_set():
            raise LeaseLostError


class ArchiveContent:
    """Archive in S3; `digest` identifies its current version and the settings."""

    def __init__(self, source: DataSettings, store: ObjectStore) -> None:
        self._source = source
        self._store = store
        self._kind = find_format(source.key)
        if not self._kind:
            raise ProvisionFailure(
                f"the key must end with .tar, .tar.gz, .tgz or .zip, or with / for a prefix, got {source.key!r}",
                "correct the key of the source and deploy",
            )
        self._item = store.describe(source.bucket, source.key)
        digest = _begin_digest(source)
        _add(digest, self._item)
        self.digest = digest.hexdigest()
        self._sha256 = source.sha256

    def required_sha256(self) -> str:
        """Return the SHA-256 from the settings or the object `<key>.sha256`; empty without either."""
        beside = f"{self._source.key}.sha256"
        if not self._source.sha256:
            text = self._store.read_text(self._source.bucket, beside)
            found = _SHA256.match(text)
            if text and not found:
                cause = f"s3://{self._source.bucket}/{beside} must begin with a SHA-256 in hex, got {text[:80]!r}"
                raise ProvisionFailure(cause, "write it again in the format of sha256sum, or remove it")
            self._sha256 = found[1].lower() if found else ""
        return self._sha256

    def check_room(self, target: DataTarget) -> None:
        """Require space for twice the archive, since its members are rarely smaller."""
        if not target.filled(self.digest).exists():
            size = self._item.size * (1 if self._item.is_at(target.archive(self.digest)) else 2)
            how = " (the archive, and at least as much for its members)"
            check_room(str(self._item), target.folder, size, 1, how=how)

    def fetch(self, target: DataTarget, progress: StepProgress) -> str:
        """
        Download, verify and extract the archive; return a description for users.

        SourceChangedError when the archive changes meanwhile, WrongContentError when it is damaged or has an unsafe
        member.
        """
        item, archive = self._item, target.archive(self.digest)
        check = choose_check(item, self._sha256)
        said = f"compared with {check.name}" if check else "compared with its size only: it has no usable digest"
        if not item.is_at(archive):
            progress.start(f"fetching {item}, {said}", item.size)
            self._store.fetch(item, archive, progress.add, target.folder)
        if check:
            progress.start(f"comparing {item} with {check.name}", item.size)
            check_digest(archive, item, check, progress.add)
        target.filled(self.digest).mkdir(exist_ok=True)
        progress.start(f"extracting {item}", item.size)
        threads = self._store.settings.threads
        members = extract(archive, self._kind, target.filled(self.digest), threads, progress.reach)
        return f"{members} members of {item} ({render_bytes(item.size)}), {said}"


class PrefixContent:
    """Objects of a prefix, listed into a file, since there may be millions."""

    def __init__(self, source: DataSettings, store: ObjectStore, listing_file: Path) -> None:
        self._what = f"s3://{source.bucket}/{source.key}"
        self._bucket = source.bucket
        self._store = store
        self._file = listing_file
        self._count = self._size = 0
        folders: set[Parts] = set()
        digest = _begin_digest(source)
        listing_file.parent.mkdir(parents=True, exist_ok=True)
        with listing_file.open("w", encoding="utf-8", errors="surrogatepass") as lines:
            for page in store.list_pages(source.bucket, source.key):
                for item in page:
                    relative = item.key[len(source.key) :]
                    if not relative:
                        continue  # The prefix itself, which the console creates.
                    parts = self._check_key(relative, item)
                    is_folder = relative.endswith("/")
                    folders.update(parts[:end] for end in range(1, len(parts) + is_folder))
                    self._count, self._size = self._count + (not is_folder), self._size + item.size
                    _add(digest, item)
                    lines.write(f"{json.dumps([relative, item.key, item.size, item.etag, item.modified])}\n")
        self.digest = digest.hexdigest()
        self._folders = len(folders)
        if not self._count:
            remedy = "upload them, or correct the key of the source"
            raise ProvisionFailure(f"{self._what} must contain objects, got none", remedy)
        for parts, _ in self._files():
            if parts in folders:
                name = "/".join(parts)
                raise UnsafeNameError(f"{self._what}: a name must be a file or a folder, not both, got {name!r}")

    def _check_key(self, relative: str, item: StoredObject) -> Parts:
        try:
            parts = split_key(relative)
        except UnsafeNameError as error:
            raise UnsafeNameError(f"{self._what}: {error.cause}") from error
        if relative.endswith("/") and item.size:
            raise UnsafeNameError(f"{self._what}: a key with content must not end with a slash, got {relative!r}")
        return parts

    def _read(self, *, is_folder: bool) -> Iterator[tuple[Parts, StoredObject]]:
        with self._file.open(encoding="utf-8", errors="surrogatepass") as lines:
            for line in lines:
                relative, key, size, etag, modified = json.loads(line)
                if relative.endswith("/") == is_folder:
                    yield split_key(relative), StoredObject(self._bucket, key, size, etag, modified)

    def required_sha256(self) -> str:
        """Return nothing: botocore compares each object with the checksum of S3."""
        return ""

    def check_room(self, target: DataTarget) -> None:
        if not target.filled(self.digest).exists():
            check_room(self._what, target.folder, self._size, self._count + self._folders)

    def fetch(self, target: DataTarget, progress: StepProgress) -> str:
        """Download missing objects, small ones concurrently, then large ones part by part; return a description."""
        found = f"{self._count} objects of {self._what} ({render_bytes(self._size)})"
        root, threads, step = target.filled(self.digest), self._store.settings.threads, self._store.settings.part_bytes

        def measure(entry: tuple[Parts, StoredObject]) -> int:
            return entry[1].size if entry[1].is_at(root.joinpath(*entry[0])) else 0

        present = sum(map_all(measure, self._files(), threads)) if root.exists() else 0
        root.mkdir(exist_ok=True)
        progress.start(f"fetching {found}", self._size, present)
        writer = TreeWriter(root)
        for parts, _ in self._read(is_folder=True):
            writer.make_folder(parts)

        def fetch(entry: tuple[Parts, StoredObject]) -> None:
            parts, item = entry
            path = root.joinpath(*parts)
            if not item.is_at(path):
                writer.make_folder(parts[:-1])
                self._store.fetch(item, path, progress.add, target.folder)

        for _ in map_all(fetch, (entry for entry in self._files() if entry[1].size <= step), threads):
            pass
        for entry in self._files():
            if entry[1].size > step:
                fetch(entry)
        return found

    def _files(self) -> Iterator[tuple[Parts, StoredObject]]:
        return self._read(is_folder=False)


Content = ArchiveContent | PrefixContent


def read_content(source: DataSettings, store: ObjectStore, listing_file: Path) -> Content:
    if source.key and not source.key.endswith("/"):
        return ArchiveContent(source, store)
    return PrefixContent(source, store, listing_file)


def _begin_digest(source: DataSettings) -> "hashlib._Hash":
    return hashlib.sha256(json.dumps([source.bucket, source.key, source.sha256]).encode())


def _add(found: "hashlib._Hash", item: StoredObject) -> None:
    found.update(json.dumps([item.key, item.size, item.etag]).encode())
