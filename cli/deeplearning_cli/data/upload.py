"""Uploads to S3 in parts, goes on where an upload was interrupted, and looks at what arrived."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deeplearning_cli.data.bundle import Bundle
from deeplearning_cli.data.download import Tell
from deeplearning_cli.data.sources import Destination, InputError, PreparationError

PART_BYTES = 16 << 20
"""Eight are in memory at a time."""
MOST_PARTS = 10_000
AT_ONCE = 8
DIGEST = "sha256"
"""The object's own metadata: a second run sees by it that nothing is to be done."""
AGAIN = "run the same command again, it goes on from there"
_REMEDIES = {
    "AccessDenied": "the credentials need s3:PutObject, s3:GetObject, s3:ListBucket and s3:AbortMultipartUpload there",
    "403": "see that the bucket is yours and the credentials may use it: aws sts get-caller-identity",
    "404": "make the bucket first: aws s3 mb",
    "NoSuchBucket": "make the bucket first: aws s3 mb",
    "ExpiredToken": "log in again; then run the same command again, it goes on from there",
}


@dataclass(frozen=True)
class Part:
    """A part that is in S3, and what it is here."""

    etag: str
    md5: bytes
    size: int


@dataclass(frozen=True)
class Upload:
    """An upload that was begun: what it is of, and how S3 knows it."""

    bucket: str
    key: str
    upload_id: str
    part_bytes: int
    sha256: str


def make_client() -> Any:
    """
    Return an S3 client of the user's own credentials and region.

    Raises:
        InputError: boto3 is not installed.
    """
    try:
        import boto3  # noqa: PLC0415 - takes half a second, and only this command needs it
        from botocore.config import Config  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InputError("missing: boto3; run: pip install 'deeplearning-cdk[data]'") from error
    with explain():
        retries = {"max_attempts": 5, "mode": "standard"}
        return boto3.session.Session().client("s3", config=Config(retries=retries, max_pool_connections=AT_ONCE))


@contextmanager
def explain() -> Iterator[None]:
    """
    Turn what AWS answers into a cause with a remedy.

    Raises:
        PreparationError: A call failed.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415 - see above

    try:
        yield
    except NoCredentialsError as error:
        raise PreparationError("AWS credentials must be there, none were found; run: aws configure") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise PreparationError(f"S3 answers: {error}; {_REMEDIES.get(code, AGAIN)}") from error
    except BotoCoreError as error:
        raise PreparationError(f"S3 cannot be reached: {error}; {AGAIN}") from error


def is_there(client: Any, bundle: Bundle, destination: Destination) -> bool:
    """Tell whether the object is there already, of the same size and digest."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - see above

    with explain():
        try:
            head = client.head_object(Bucket=destination.bucket, Key=destination.key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:  # noqa: PLR2004 - not found
                return False
            raise
    return bool(head["ContentLength"] == bundle.size and head["Metadata"].get(DIGEST) == bundle.sha256)


def upload(
    client: Any, bundle: Bundle, destination: Destination, note: Path, tell: Tell, *, part_bytes: int = PART_BYTES
) -> bool:
    """
    Bring a file to S3; one that is there already is not sent again.

    Args:
        client: An S3 client.
        bundle: The file, with its size and digest.
        destination: Its bucket and key.
        note: Where an upload that was begun is remembered.
        tell: Told the bytes that are there.
        part_bytes: Least size of a part; S3 takes no less than 5 MiB, but for the last.

    Returns:
        Whether anything was sent.

    Raises:
        PreparationError: A call failed, or another thing arrived than was sent.
    """
    if is_there(client, bundle, destination):
        tell(destination.key, bundle.size, bundle.size)
        return False
    with explain():
        begun, there = _resume(client, bundle, destination, note)
        if begun is None:
            begun = _begin(client, bundle, destination, part_bytes, note)
        sent = _send(client, bundle, begun, there, tell)
        parts = [{"PartNumber": number, "ETag": sent[number].etag} for number in sorted(sent)]
        client.complete_multipart_upload(
            Bucket=begun.bucket, Key=begun.key, UploadId=begun.upload_id, MultipartUpload={"Parts": parts}
        )
        head = client.head_object(Bucket=begun.bucket, Key=begun.key)
    note.unlink(missing_ok=True)
    _verify(head, bundle, begun, [sent[number].md5 for number in sorted(sent)])
    return True


def _begin(client: Any, bundle: Bundle, destination: Destination, part_bytes: int, note: Path) -> Upload:
    least = -(-bundle.size // MOST_PARTS)
    part_bytes = max(part_bytes, -(-least >> 20) << 20)
    answer = client.create_multipart_upload(
        Bucket=destination.bucket, Key=destination.key, Metadata={DIGEST: bundle.sha256}
    )
    begun = Upload(destination.bucket, destination.key, answer["UploadId"], part_bytes, bundle.sha256)
    note.write_text(json.dumps(asdict(begun)), encoding="utf-8")
    return begun


def _resume(
    client: Any, bundle: Bundle, destination: Destination, note: Path
) -> tuple[Upload | None, Mapping[int, Mapping[str, Any]]]:
    """Return the upload of the same file that was begun, and its parts; None when there is none."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - see above

    try:
        begun = Upload(**json.loads(note.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None, {}
    is_same = (begun.bucket, begun.key, begun.sha256) == (destination.bucket, destination.key, bundle.sha256)
    where = {"Bucket": begun.bucket, "Key": begun.key, "UploadId": begun.upload_id}
    try:
        if not is_same:  # What it is of is no more: its parts would only cost money.
            client.abort_multipart_upload(**where)
            return None, {}
        pages = client.get_paginator("list_parts").paginate(**where)
        return begun, {part["PartNumber"]: part for page in pages for part in page.get("Parts", [])}
    except ClientError as error:
        if error.response["Error"]["Code"] != "NoSuchUpload":
            raise
        return None, {}


def _send(
    client: Any, bundle: Bundle, begun: Upload, there: Mapping[int, Mapping[str, Any]], tell: Tell
) -> dict[int, Part]:
    """Send the parts that are not there, or not as they are here; return every part."""
    offsets = range(0, max(bundle.size, 1), begun.part_bytes)
    sent: dict[int, Part] = {}
    done = 0

    def send(number: int, offset: int) -> tuple[int, Part]:
        with bundle.file.open("rb") as stream:
            stream.seek(offset)
            body = stream.read(begun.part_bytes)
        digest = hashlib.md5(body, usedforsecurity=False)
        found = there.get(number)
        if found and found["Size"] == len(body) and _is_etag(found["ETag"], digest.hexdigest()):
            return number, Part(found["ETag"], digest.digest(), len(body))
        answer = client.upload_part(
            Bucket=begun.bucket,
            Key=begun.key,
            UploadId=begun.upload_id,
            PartNumber=number,
            Body=body,
            ContentMD5=base64.b64encode(digest.digest()).decode(),
        )
        return number, Part(answer["ETag"], digest.digest(), len(body))

    with ThreadPoolExecutor(AT_ONCE, "upload") as pool:
        futures = [pool.submit(send, number, offset) for number, offset in enumerate(offsets, start=1)]
        try:
            for future in as_completed(futures):
                number, part = future.result()
                sent[number] = part
                done += part.size
                tell(begun.key, done, bundle.size)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sent


def _is_etag(etag: str, digest: str) -> bool:
    """Tell whether a part's ETag is its MD5; with a KMS key it is something else, and S3 checked the part itself."""
    found = etag.strip('"')
    return found == digest or len(found) != len(digest)


def _verify(head: Mapping[str, Any], bundle: Bundle, begun: Upload, digests: Sequence[bytes]) -> None:
    """Compare size, digest and, where S3 tells it, the checksum over the parts."""
    where = f"s3://{begun.bucket}/{begun.key}"
    if head["ContentLength"] != bundle.size or head["Metadata"].get(DIGEST) != bundle.sha256:
        found = f"{head['ContentLength']} bytes of {head['Metadata'].get(DIGEST, 'no digest')}"
        raise PreparationError(f"{where} must have {bundle.size} bytes of {bundle.sha256}, has {found}; {AGAIN}")
    expected = f"{hashlib.md5(b''.join(digests), usedforsecurity=False).hexdigest()}-{len(digests)}"
    if head.get("ServerSideEncryption", "AES256") == "AES256" and head["ETag"].strip('"') != expected:
        raise PreparationError(f"{where} must have the checksum {expected}, has {head['ETag']}; {AGAIN}")
