"""Objects in S3: descriptions, listings, resumed downloads, digests, and errors for users."""

import base64
import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError

from deeplearning_node.aws_clients import METADATA_SECONDS, AwsError
from deeplearning_node.aws_errors import error_code, is_denied, is_passing
from deeplearning_node.deadline import Clock
from deeplearning_provision.steps import ProvisionFailure, WrongContentError

T = TypeVar("T")
R = TypeVar("R")

CONNECT_SECONDS = 5
ANSWER_SECONDS = 60
ATTEMPTS = 4
"""Attempts of botocore in each attempt of `ObjectStore.call`."""
MOST_FAILURES = 8
"""Most failures in a row without a new byte."""
DENIED_PAUSES = 5
"""Number of denials that are retried: IAM propagates a new role for up to a minute."""
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 30.0
BLOCK_BYTES = 1 << 20
_BATCH = 1000
_HIDING = frozenset({"403", "AccessDenied"})
"""Codes of S3 for a missing key, to a role that may not list the whole bucket."""
_CHANGED = frozenset({"PreconditionFailed", "InvalidRange", "412", "416"})
_RULES = {
    "NoSuchKey": ("must exist", "upload it, or correct the key of the source and deploy"),
    "NoSuchBucket": ("must be in an existing bucket", "correct the bucket of the source and deploy"),
}
"""Code of a missing object or bucket -> rule and remedy."""
_DENIED = "allow the node role s3:GetObject on it and s3:ListBucket on its bucket"


class SourceChangedError(Exception):
    """An object changed since it was described."""


class MissingObjectError(ProvisionFailure):
    """An object or its bucket does not exist."""


class BrokenAnswerError(Exception):
    """Connection that ended within an object."""


@dataclass(frozen=True)
class TransferSettings:
    """Size of a part in bytes, and number of concurrent calls."""

    part_bytes: int = 64 * 1024 * 1024
    threads: int = 16


@dataclass(frozen=True)
class StoredObject:
    """An object as S3 describes it."""

    bucket: str
    key: str
    size: int
    etag: str  # Identifies the content, in quotes as S3 has it
    modified: int = 0  # Seconds since the epoch
    checksums: tuple[tuple[str, str], ...] = ()  # Algorithm and base64 value, of the whole object
    is_etag_md5: bool = False

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def is_at(self, path: Path) -> bool:
        """Return whether a file has the object's size and time, as `aws s3 sync` does; `fetch` sets the time last."""
        try:
            found = path.lstat()
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (self.size, self.modified * 10**9)


class Crc32:
    """CRC32 with the interface of hashlib."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, data: bytes, /) -> None:
        self._value = zlib.crc32(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(4, "big")


@dataclass(frozen=True)
class Check:
    """Digest that a file must have."""

    name: str  # In messages
    expected: bytes
    make: Callable[[], Any]  # Its algorithm


_ALGORITHMS: dict[str, Callable[[], Any]] = {
    "SHA256": hashlib.sha256,
    "SHA1": partial(hashlib.sha1, usedforsecurity=False),
    "CRC32": Crc32,
}


def choose_check(item: StoredObject, sha256: str) -> Check | None:
    """
    Return the strongest known digest, except CRC64NVME and CRC32C, which Python computes too slowly; None without one.

    `sha256` is the user's, in hex; empty for none.
    """
    if sha256:
        return Check("sha256", bytes.fromhex(sha256), hashlib.sha256)
    found = dict(item.checksums)
    for name, make in _ALGORITHMS.items():
        if name in found:
            return Check(f"S3's {name}", base64.b64decode(found[name]), make)
    if item.is_etag_md5:
        return Check("S3's MD5", bytes.fromhex(item.etag.strip('"')), partial(hashlib.md5, usedforsecurity=False))
    return None


def check_digest(path: Path, item: StoredObject, check: Check, on_bytes: Callable[[int], None]) -> None:
    """Compare a file with its digest; if they differ, remove it and raise WrongContentError."""
    made = check.make()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            made.update(block)
            on_bytes(len(block))
    if made.digest() != check.expected:
        path.unlink()
        raise WrongContentError(
            f"{check.name} of {item} must be {check.expected.hex()}, got {made.digest().hex()}",
            "upload the archive again, or correct the digest of the source and deploy",
        )


def map_all(action: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield the results of an action on each item, in order; read a thousand items at a time."""
    left = iter(items)
    with ThreadPoolExecutor(threads, "transfer") as pool:
        while batch := list(islice(left, _BATCH)):
            yield from pool.map(action, batch)


class ObjectStore:
    """S3 in one region, with the rights of the node's role."""

    def __init__(self, region: str, clock: Clock, settings: TransferSettings | None = None) -> None:
        self.settings = settings or TransferSettings()
        self._region = region
        self._clock = clock

    @cached_property
    def client(self) -> Any:
        session = botocore.session.Session()
        session.set_config_variable("ec2_metadata_v1_disabled", "true")
        session.set_config_variable("metadata_service_timeout", METADATA_SECONDS)
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=self.settings.threads,
            s3={"addressing_style": "path" if "AWS_ENDPOINT_URL" in os.environ else "auto"},
        )
        return session.create_client("s3", region_name=self._region, config=config)

    def describe(self, bucket: str, key: str) -> StoredObject:

        def head() -> Any:
            try:
                return self.client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
            except ClientError as error:
                self.refuse_missing(bucket, key, error)
                if error_code(error).isdigit():  # The response to a refused HEAD has no code; that to the same GET has.
                    self.client.get_object(Bucket=bucket, Key=key)["Body"].close()
                raise

        found = self.call(head, f"s3://{bucket}/{key}")
        is_whole = found.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        names = [name for name in found if name.startswith("Checksum") and name != "ChecksumType"]
        checksums = tuple((n.removeprefix("Checksum"), found[n]) for n in sorted(names) if "-" not in found[n])
        is_plain = found.get("ServerSideEncryption", "AES256") == "AES256" and "SSECustomerAlgorithm" not in found
        is_md5, modified = is_plain and "-" not in found["ETag"], int(found["LastModified"].timestamp())
        return StoredObject(
            bucket, key, found["ContentLength"], found["ETag"], modified, checksums if is_whole else (), is_md5
        )

    def refuse_missing(self, bucket: str, key: str, error: ClientError) -> None:
        """Raise ClientError with NoSuchKey where S3 denies access to a key that the listing lacks."""
        if error_code(error) not in _HIDING:
            return
        try:
            page = self.client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        except ClientError:
            return
        if key not in [entry["Key"] for entry in page.get("Contents", [])]:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no such key is listed"}}, "HeadObject")

    def list_pages(self, bucket: str, prefix: str) -> Iterator[list[StoredObject]]:
        """Yield the objects of a prefix, a page at a time, in S3's order."""
        request: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
        while True:
            page = self.call(partial(self.client.list_objects_v2, **request), f"s3://{bucket}/{prefix}")
            yield [
                StoredObject(bucket, e["Key"], e["Size"], e["ETag"], int(e["LastModified"].timestamp()))
                for e in page.get("Contents", [])
            ]
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def read_text(self, bucket: str, key: str) -> str:
        """Return the first 1,024 bytes of an object; empty when it is missing or denied."""

        def read() -> str:
            try:
                answer = self.client.get_object(Bucket=bucket, Key=key, Range="bytes=0-1023")
            except ClientError as error:
                if is_passing(error):
                    raise
                return ""
            return b"".join(_read_body(answer["Body"], answer["ContentLength"])).decode("utf-8", "replace")

        return self.call(read, f"s3://{bucket}/{key}")

    def fetch(self, item: StoredObject, path: Path, on_bytes: Callable[[int], None], folder: Path) -> None:
        """
        Download an object to a temporary file in `folder`, on the same file system as `path`, then rename it.

        Concurrent calls download and write the parts of a large object: s3transfer writes with one thread.
        SourceChangedError when the object changed since it was described.
        """
        part = folder / f".part.{secrets.token_hex(8)}"
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            try:
                self._fill(item, handle, on_bytes)
            finally:
                os.close(handle)  # A network file system may report only now that it is full.
            part.rename(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def fetch_verified(self, bucket: str, key: str, sha256: str, path: Path, on_bytes: Callable[[int], None]) -> None:
        """Download an object whose SHA-256 is known, in hex; WrongContentError, and no file, when it differs."""
        item = self.describe(bucket, key)
        self.fetch(item, path, on_bytes, path.parent)
        check_digest(path, item, Check("sha256", bytes.fromhex(sha256), hashlib.sha256), lambda _: None)

    def _fill(self, item: StoredObject, handle: int, on_bytes: Callable[[int], None]) -> None:
        os.ftruncate(handle, item.size)
        fetch = partial(self._fetch_part, item, handle, on_bytes)
        if item.size <= self.settings.part_bytes:
            fetch(0)
        else:
            for _ in map_all(fetch, range(0, item.size, self.settings.part_bytes), self.settings.threads):
                pass
        os.utime(handle, ns=(item.modified * 10**9,) * 2)

    def _fetch_part(self, item: StoredObject, handle: int, on_bytes: Callable[[int], None], start: int) -> None:
        position = start
        for block in self.read_blocks(item, start, min(start + self.settings.part_bytes, item.size)):
            view = memoryview(block)
            while view:
                written = os.pwrite(handle, view, position)
                position, view = position + written, view[written:]
            on_bytes(len(block))

    def read_blocks(self, item: StoredObject, start: int, end: int) -> Iterator[bytes]:
        """
        Yield a range of an object; another call resumes after a broken connection.

        botocore compares a whole object with the checksum that S3 sends, if any.
        """
        position = start
        while position < end:
            blocks = self.call(partial(self._open, item, position, end), str(item))
            try:
                for block in blocks:
                    position += len(block)
                    yield block
            except FlexibleChecksumError as error:  # Wrong bytes were yielded already.
                raise explain_error(error, str(item)) from error
            except (*AwsError, BrokenAnswerError):
                self._clock.wait(FIRST_PAUSE_SECONDS)

    def _open(self, item: StoredObject, start: int, end: int) -> Iterator[bytes]:
        """Return the blocks of a range, after the first has arrived."""
        limits = {"Range": f"bytes={start}-{end - 1}"} if start > 0 or end < item.size else {}
        answer = self.client.get_object(Bucket=item.bucket, Key=item.key, IfMatch=item.etag, **limits)
        blocks = _read_body(answer["Body"], end - start)
        return chain([next(blocks)], blocks)

    def call(self, action: Callable[[], T], what: str) -> T:
        """Return an action's result; retry temporary errors, else raise ProvisionFailure or SourceChangedError."""
        failures = 0
        while True:
            try:
                return action()
            except (*AwsError, BrokenAnswerError) as error:  # noqa: PERF203 - waiting dwarfs it
                failures += 1
                is_new_role = is_denied(error) and failures <= DENIED_PAUSES
                may_pass = is_new_role or isinstance(error, BrokenAnswerError) or is_passing(error)
                if error_code(error) in _CHANGED:
                    raise SourceChangedError(f"{what} changed while it was read") from error
                if failures >= MOST_FAILURES or not may_pass:
                    raise explain_error(error, what) from error
                self._clock.wait(min(FIRST_PAUSE_SECONDS**failures, LONGEST_PAUSE_SECONDS))


def _read_body(body: Any, expected: int) -> Iterator[bytes]:
    with body:
        while True:
            try:
                block = body.read(BLOCK_BYTES)
            except AwsError:
                raise
            except Exception as error:  # Errors of sockets and TLS, which the HTTP library does not convert.
                raise BrokenAnswerError(f"{type(error).__name__}: {error}") from error
            if not block:
                break
            expected -= len(block)
            yield block
    if expected:
        raise BrokenAnswerError(f"the response was {expected} bytes too short")


def explain_error(error: Exception, what: str) -> ProvisionFailure:
    """Return an error of botocore, or a broken connection, as a failure for users."""
    code = error_code(error)
    if code in _RULES:
        rule, remedy = _RULES[code]
        return MissingObjectError(f"{what} {rule}, got {code}: {error}", remedy)
    if code == "InvalidObjectState":
        cause = f"{what} must not be archived, got {code}: {error}"
        return ProvisionFailure(cause, "restore it from its storage class first")
    if is_denied(error):
        return ProvisionFailure(f"{what} must be readable by the nodes, got {code}: {error}", _DENIED)
    if code and not is_passing(error):
        return ProvisionFailure(f"{what} must be readable, got {code}: {error}", "correct the cause and stage again")
    cause = f"could not read {what}: {error}"
    return ProvisionFailure(cause, "retrying; check that the nodes can reach S3", is_final=False)
