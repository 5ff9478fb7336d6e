"""Reads objects of S3: what they are, which there are, and ranges of them through broken connections."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError

from deeplearning_node.aws_clients import METADATA_SECONDS, AwsError
from deeplearning_node.aws_errors import error_code, is_denied, is_passing
from deeplearning_node.deadline import Clock
from deeplearning_provision.s3.errors import SourceChangedError, explain_error

T = TypeVar("T")

CONNECT_SECONDS = 5
ANSWER_SECONDS = 60
ATTEMPTS = 4
"""Of one call, by botocore; between them it pauses by itself."""
MOST_BREAKS = 8
"""How often in a row a call may fail without a byte that is new."""
DENIED_PAUSES = 5
"""How often a refusal is tried again: IAM spreads a new role for up to a minute."""
LONGEST_PAUSE_SECONDS = 30.0
BLOCK_BYTES = 1 << 20
_HIDING = frozenset({"403", "AccessDenied"})
"""What S3 says of a missing key to who may not list the whole bucket."""


class BrokenAnswerError(Exception):
    """A connection ended within an object."""


@dataclass(frozen=True)
class StoredObject:
    """
    An object as S3 has it now.

    Attributes:
        bucket: Where it is.
        key: Its name.
        size: In bytes.
        etag: Names its content, in quotes as S3 has it.
        checksums: Algorithm -> value in base64, of the whole object.
        is_etag_md5: Whether the ETag is the MD5 of the content.
    """

    bucket: str
    key: str
    size: int
    etag: str
    checksums: tuple[tuple[str, str], ...] = ()
    is_etag_md5: bool = False

    def __str__(self) -> str:
        """Name it as users write it."""
        return f"s3://{self.bucket}/{self.key}"


class ObjectStore:
    """S3 in one region, as the node's role may read it."""

    def __init__(self, region: str, clock: Clock, connections: int) -> None:
        """Make no call yet; `connections` is how many threads read at the same time."""
        self._region = region
        self._clock = clock
        self._connections = connections

    @cached_property
    def client(self) -> Any:
        """The client; its retries are what lets one call through a moment's fault."""
        session = botocore.session.Session()
        session.set_config_variable("ec2_metadata_v1_disabled", "true")
        session.set_config_variable("metadata_service_timeout", METADATA_SECONDS)
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=self._connections,
            s3={"addressing_style": "path" if "AWS_ENDPOINT_URL" in os.environ else "auto"},
        )
        return session.create_client("s3", region_name=self._region, config=config)

    def describe(self, bucket: str, key: str) -> StoredObject:
        """
        Ask S3 what an object is.

        Raises:
            ProvisionFailure: It cannot be had, with the reason.
        """

        def ask() -> Any:
            try:
                return self.client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
            except ClientError as error:
                self.refuse_missing(bucket, key, error)
                if error_code(error).isdigit():  # A refused HEAD has no words; the same GET has.
                    self.client.get_object(Bucket=bucket, Key=key)["Body"].close()
                raise

        found = self.call(ask, f"s3://{bucket}/{key}")
        is_whole = found.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT"
        names = [name for name in found if name.startswith("Checksum") and name != "ChecksumType"]
        checksums = [(name.removeprefix("Checksum"), found[name]) for name in sorted(names) if "-" not in found[name]]
        is_plain = found.get("ServerSideEncryption", "AES256") == "AES256" and "SSECustomerAlgorithm" not in found
        is_md5 = is_plain and "-" not in found["ETag"]
        return StoredObject(
            bucket, key, found["ContentLength"], found["ETag"], tuple(checksums) if is_whole else (), is_md5
        )

    def refuse_missing(self, bucket: str, key: str, error: ClientError) -> None:
        """
        Where S3 hides whether a key is missing, ask the listing, which the node may read below the key.

        Raises:
            ClientError: The listing does not have it.
        """
        if error_code(error) not in _HIDING:
            return
        try:
            page = self.client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        except ClientError:
            return
        if key not in [entry["Key"] for entry in page.get("Contents", [])]:
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no such key is listed"}}, "HeadObject")

    def list_pages(self, bucket: str, prefix: str) -> Iterator[list[StoredObject]]:
        """
        Return all objects whose keys begin with a prefix, a page at a time, in S3's order.

        Raises:
            ProvisionFailure: They cannot be listed, with the reason.
        """
        token: dict[str, str] = {}
        while True:
            request = {"Bucket": bucket, "Prefix": prefix, **token}
            page = self.call(lambda request=request: self.client.list_objects_v2(**request), f"s3://{bucket}/{prefix}")  # type: ignore[misc]
            yield [StoredObject(bucket, e["Key"], e["Size"], e["ETag"]) for e in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def read_text(self, bucket: str, key: str) -> str:
        """
        Return how a small object begins; nothing when it is not there or not open to this node.

        Raises:
            ProvisionFailure: S3 does not say which.
        """

        def ask() -> str:
            try:
                answer = self.client.get_object(Bucket=bucket, Key=key, Range="bytes=0-1023")
            except ClientError as error:
                if is_passing(error):
                    raise
                return ""
            return b"".join(_read_body(answer["Body"], answer["ContentLength"])).decode("utf-8", "replace")

        return self.call(ask, f"s3://{bucket}/{key}")

    def call(self, action: Callable[[], T], what: str) -> T:
        """
        Make a call until it is answered, a few times.

        Raises:
            ProvisionFailure: It was refused, or not answered, with the reason.
        """
        for failures in range(1, MOST_BREAKS + 1):
            try:
                return action()
            except (*AwsError, BrokenAnswerError) as error:  # noqa: PERF203 - waiting dwarfs it
                self._pause(error, failures, what)
        raise AssertionError("the last failure is raised")

    def read_blocks(self, item: StoredObject, start: int, end: int) -> Iterator[bytes]:
        """
        Return a range of an object in blocks; where a connection breaks, another goes on.

        A whole object is compared with the checksum that S3 sends, if it sends one.

        Raises:
            SourceChangedError: The object is not the one that was described.
            ProvisionFailure: It cannot be read, with the reason.
        """
        position, failures = start, 0
        while position < end:
            is_rest = position > 0 or end < item.size
            limits = {"Range": f"bytes={position}-{end - 1}"} if is_rest else {}
            try:
                answer = self.client.get_object(Bucket=item.bucket, Key=item.key, IfMatch=item.etag, **limits)
                for block in _read_body(answer["Body"], end - position):
                    position += len(block)
                    failures = 0
                    yield block
            except FlexibleChecksumError as error:  # What was yielded is wrong: the caller begins anew.
                raise explain_error(error, str(item)) from error
            except (*AwsError, BrokenAnswerError) as error:
                failures += 1
                self._pause(error, failures, str(item))

    def _pause(self, error: Exception, failures: int, what: str) -> None:
        is_short = is_denied(error) and failures <= DENIED_PAUSES
        may_pass = isinstance(error, BrokenAnswerError) or is_passing(error)
        if failures >= MOST_BREAKS or not (is_short or may_pass):
            _raise(error, what)
        self._clock.wait(min(2.0**failures, LONGEST_PAUSE_SECONDS))


def _read_body(body: Any, expected: int) -> Iterator[bytes]:
    with body:
        while True:
            try:
                block = body.read(BLOCK_BYTES)
            except AwsError:
                raise
            except Exception as error:  # What the HTTP library lets through of sockets and TLS.
                raise BrokenAnswerError(f"{type(error).__name__}: {error}") from error
            if not block:
                break
            expected -= len(block)
            yield block
    if expected:
        raise BrokenAnswerError(f"the answer was {expected} bytes too short")


def _raise(error: Exception, what: str) -> NoReturn:
    if error_code(error) in {"PreconditionFailed", "InvalidRange", "412", "416"}:
        raise SourceChangedError(f"{what} changed while it was read") from error
    raise explain_error(error, what) from error
